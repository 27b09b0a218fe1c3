//! Conditions on the approval that are written by hand, next to the annotations.
//!
//! Owns when such a condition is refused, and when it is missing. People are asked until the annotations are satisfied, so a condition
//! that counts more people than the annotations ask is never satisfied.

use std::collections::BTreeSet;

use cedar_policy::Policy;
use serde_json::Value;

use super::{Reader, Route};
use crate::mentions::{Mentions, is_access};

impl Reader<'_> {
    /// A condition on the approval is either generated or written by hand, never both; one by hand counts the groups that are asked.
    pub(super) fn condition(
        &mut self,
        policy: &Policy,
        mentions: &Mentions,
        is_custom: bool,
        route: Option<&Route>,
    ) {
        if !is_custom {
            if mentions.approval {
                self.error(
                    "`@approval(\"required\")` generates the condition on `context.req.approval`, and the policy has one as well",
                    "remove it (`placet policy expand` shows the generated one), or write `@approval(\"custom\")`",
                );
            }
            return;
        }
        if !mentions.approval {
            self.error(
                "`@approval(\"custom\")` has no condition on `context.req.approval`, so no approval lets the call pass",
                "write `@approval(\"required\")`: it generates the condition from the annotations",
            );
        }
        if mentions.approval && !applies_without(policy) {
            self.error(
                "without an approval this `forbid` does not apply, so nothing is held",
                "write the condition on `context.req.approval` as `unless`",
            );
        }
        if let Some((group, wanted, asked)) = route.and_then(|route| beyond(mentions, route)) {
            let of = group.map(|group| format!(" of `{group}`")).unwrap_or_default();
            self.error(
                format!("the condition needs {wanted} people{of}, and the annotations ask {asked}, so no approval lets the call pass"),
                "ask as many with `@quorum` and `@approver_group`, such as `security:2`, as the condition counts",
            );
        }
        let asked: BTreeSet<String> = route
            .into_iter()
            .flat_map(|route| route.groups.keys().chain(route.steps.iter().map(|step| &step.group)))
            .map(ToString::to_string)
            .collect();
        let unasked = mentions.groups.iter().find(|group| !asked.contains(*group));
        if let Some(group) = unasked.filter(|_| route.is_some()) {
            self.error(
                format!(
                    "the condition counts people of `{group}`, whom the annotations do not ask"
                ),
                "name the same groups in `@approver_group` or `@escalate` and in the condition",
            );
        }
    }
}

/// Whether the policy may apply to a call that has no approval.
fn applies_without(policy: &Policy) -> bool {
    let json = policy.to_json().unwrap_or_default();
    let mut conditions = json.get("conditions").and_then(Value::as_array).into_iter().flatten();
    !conditions.any(|condition| {
        let is_unless = condition.get("kind").and_then(Value::as_str) == Some("unless");
        condition.get("body").and_then(truth_without) == Some(is_unless)
    })
}

/// Whether an expression is true where there is no approval; `None`: it depends on more.
fn truth_without(expression: &Value) -> Option<bool> {
    let (operator, of) = expression.as_object()?.iter().next()?;
    let side = |name: &str| of.get(name).and_then(truth_without);
    let either = |sought: bool| match (side("left"), side("right")) {
        (Some(one), _) | (_, Some(one)) if one == sought => Some(sought),
        (Some(_), Some(_)) => Some(!sought),
        _ => None,
    };
    match operator.as_str() {
        "has" if is_access(Some(of)) => Some(false),
        "Value" => of.as_bool(),
        "!" => side("arg").map(std::ops::Not::not),
        "&&" => either(false),
        "||" => either(true),
        _ => None,
    }
}

/// Where the condition needs more people, of a group or in all, than the annotations ask: how many, and how many are asked.
fn beyond<'a>(mentions: &'a Mentions, route: &Route) -> Option<(Option<&'a String>, u64, u64)> {
    let of = |group: Option<&String>| -> u64 {
        let groups = route.groups.iter().map(|(one, people)| (one.to_string(), *people));
        let later = route.steps.iter().map(|step| (step.group.to_string(), step.people));
        let counted = |people: u32| u64::from(people);
        match group {
            Some(group) => {
                let its = groups.chain(later).filter(|(one, _)| one == group);
                its.map(|(_, people)| counted(people)).max().unwrap_or_default()
            }
            None => {
                groups.map(|(_, people)| counted(people)).sum::<u64>().max(counted(route.quorum))
            }
        }
    };
    let all = mentions.least.iter().map(|(group, wanted)| (group.as_ref(), *wanted));
    let mut all = all.map(|(group, wanted)| (group, wanted, of(group)));
    all.find(|(_, wanted, asked)| *asked > 0 && wanted > asked)
}
