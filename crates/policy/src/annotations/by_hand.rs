//! Conditions on the approval that are written by hand, beside the annotations.
//!
//! Owns when such a condition is refused, and when it is missing.

use std::collections::BTreeSet;

use cedar_policy::Policy;

use super::{Reader, Route};
use crate::mentions::Mentions;

impl Reader<'_> {
    /// A condition on the approval is either generated or written by hand, never both; one by hand counts the groups that are asked.
    pub(super) fn condition(&mut self, policy: &Policy, is_custom: bool, route: Option<&Route>) {
        let mentions = Mentions::of(policy);
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
