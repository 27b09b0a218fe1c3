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
    /// The groups whose people they count.
    pub(crate) groups: Vec<String>,
}

impl Mentions {
    /// Looks through a policy's conditions. One that has no JSON form says nothing.
    pub(crate) fn of(policy: &Policy) -> Self {
        let mut found = Self::default();
        if let Ok(json) = policy.to_json() {
            found.look(json.get("conditions").unwrap_or(&Value::Null));
        }
        found
    }

    fn look(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                self.approval |= is_approval(value) || is_access(fields.get("has"));
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
fn is_access(access: Option<&Value>) -> bool {
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
    }
}
