//! What the conditions of a policy say of approvals.
//!
//! Owns the search in a policy's JSON form. Does not know what annotations mean.

use cedar_policy::Policy;
use serde_json::Value;

/// What the conditions of a policy say of approvals.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Mentions {
    /// Whether they look at `context.req.approval` at all.
    pub(crate) approval: bool,
    /// Whether they look at a freeze.
    pub(crate) freeze: bool,
    /// Whether they look at what is in the run's context.
    pub(crate) taint: bool,
    /// Whether they look at the mode that the call is lowered to.
    pub(crate) target: bool,
    /// The groups whose people they count.
    pub(crate) groups: Vec<String>,
    /// The least number of people that the only `unless` asks for, of a group or in all, according to its terms joined by `&&`.
    pub(crate) least: Vec<(Option<String>, u64)>,
}

impl Mentions {
    /// Searches a policy's conditions. A policy without a JSON form mentions nothing.
    pub(crate) fn of(policy: &Policy) -> Self {
        let mut found = Self::default();
        if let Ok(json) = policy.to_json() {
            let conditions = json.get("conditions").unwrap_or(&Value::Null);
            found.look(conditions);
            let is_unless =
                |one: &&Value| one.get("kind").and_then(Value::as_str) == Some("unless");
            let mut unless = conditions.as_array().into_iter().flatten().filter(is_unless);
            if let (Some(only), None) = (unless.next(), unless.next()) {
                found.terms(only.get("body").unwrap_or(&Value::Null));
            }
        }
        found
    }

    fn terms(&mut self, term: &Value) {
        if let Some(both) = term.get("&&") {
            [both.get("left"), both.get("right")]
                .into_iter()
                .flatten()
                .for_each(|one| self.terms(one));
        }
        for (operator, more) in [(">=", 0), (">", 1)] {
            let Some(compared) = term.get(operator) else { continue };
            let number = compared.pointer("/right/Value").and_then(Value::as_u64);
            let Some(number) = number.map(|number| number.saturating_add(more)) else { continue };
            let counted = compared.get("left").unwrap_or(&Value::Null);
            if counted.pointer("/./left").is_some_and(is_approval)
                && counted.pointer("/./attr").and_then(Value::as_str) == Some("total")
            {
                self.least.push((None, number));
            }
            if let Some(tag) =
                counted.get("getTag").filter(|tag| tag.get("left").is_some_and(is_approval))
            {
                let group = tag.pointer("/right/Value").and_then(Value::as_str);
                self.least.extend(group.map(|group| (Some(group.to_owned()), number)));
            }
        }
    }

    fn look(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.approval |= is_approval(value) || is_access(fields.get("has"));
                let attr = fields.get("attr").and_then(Value::as_str);
                self.freeze |= attr == Some("frozen");
                self.taint |= attr == Some("taint");
                self.target |= attr == Some("mode_target");
                for tag in ["hasTag", "getTag"].into_iter().filter_map(|name| fields.get(name)) {
                    let named = tag.pointer("/right/Value").and_then(Value::as_str);
                    let of_approval = tag.get("left").is_some_and(is_approval);
                    self.groups.extend(named.filter(|_| of_approval).map(str::to_owned));
                }
                fields.values().for_each(|inner| self.look(inner));
            }
            Value::Array(items) => items.iter().for_each(|inner| self.look(inner)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// Whether an expression is `context.req.approval`.
fn is_approval(expression: &Value) -> bool {
    is_access(expression.get("."))
}

/// Whether an access is one to `approval` of `context.req`.
pub(crate) fn is_access(access: Option<&Value>) -> bool {
    access.is_some_and(|access| {
        access.get("attr").and_then(Value::as_str) == Some("approval")
            && access.pointer("/left/./attr").and_then(Value::as_str) == Some("req")
            && access.pointer("/left/./left/Var").and_then(Value::as_str) == Some("context")
    })
}

#[cfg(test)]
mod tests {
    use super::Mentions;

    fn mentions(condition: &str) -> Mentions {
        let text = format!("forbid (principal, action, resource) unless {{ {condition} }};");
        Mentions::of(&text.parse().unwrap())
    }

    #[test]
    fn only_the_approval_of_the_request_is_a_mention() {
        for condition in [
            "context.req has approval",
            "context.req has approval && context.req.approval.total >= 1",
            "true || (principal.x && !context.req.approval.denied)",
            "context[\"req\"][\"approval\"].denied",
        ] {
            assert!(mentions(condition).approval, "{condition}");
        }
        for condition in
            ["context.input.approval", "context.req.now < x.approval", "\"approval\" == x"]
        {
            assert!(!mentions(&condition.replace(" x", " context.x")).approval, "{condition}");
        }
    }

    #[test]
    fn counted_groups_are_those_of_the_approval() {
        let found = mentions(
            "context.req.approval.hasTag(\"a\") && context.req.approval.getTag(\"b\") > 1 && principal.hasTag(\"c\")",
        );
        assert_eq!(found.groups, ["a", "b"]);
        assert_eq!(found.least, [(Some("b".to_owned()), 2)]);
    }

    #[test]
    fn the_least_that_is_asked_for_is_what_every_way_through_needs() {
        let found = mentions(
            "context.req has approval && context.req.approval.total >= 2 && (context.req.approval.getTag(\"b\") > 1 && principal.x) && (context.req.approval.total >= 9 || principal.y)",
        );
        assert_eq!(found.least, [(None, 2), (Some("b".to_owned()), 2)]);
    }
}
