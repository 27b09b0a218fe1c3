//! Which tools no gate holds, and which no freeze.
//!
//! Owns the search, for a note to authors. Invariant: it decides nothing; what a condition means in full only a decision says.

use cedar_policy::{Effect, Policy};
use placet_types::{ids::CapabilityId, mode::ApprovalMode};

use super::{Snapshot, ToolPlan};
use crate::{annotations::ApprovalRule, decision::PolicyEffect, mentions::Mentions};

/// The modes whose calls wait at a gate (TM-09).
const GATED: [ApprovalMode; 3] =
    [ApprovalMode::Network, ApprovalMode::Delegated, ApprovalMode::Destructive];

impl Snapshot {
    /// The tools that some permit names and that no gate is for, though their mode calls for one.
    ///
    /// A gate whose condition names modes is for these alone. One about freezes or taint is for none: most calls pass it.
    pub fn ungated_tools(&self) -> impl Iterator<Item = (&CapabilityId, ApprovalMode)> {
        self.tools.iter().filter_map(|(id, plan)| {
            let mode = plan.capability()?.mode_highest;
            (GATED.contains(&mode) && self.is_ungated(plan, mode)).then_some((id, mode))
        })
    }

    fn is_ungated(&self, plan: &ToolPlan, mode: ApprovalMode) -> bool {
        let meta = |policy: &Policy| self.policies.get(&policy.id().to_string());
        let mut permits = plan.call_slice.policies().filter_map(meta);
        let mut gates = plan.call_slice.policies().filter(|policy| {
            meta(policy).is_some_and(|meta| matches!(meta.rule, ApprovalRule::Required(_)))
        });
        permits.any(|meta| meta.effect == PolicyEffect::Permit)
            && !gates.any(|gate| self.is_for(gate, mode))
    }

    /// The tools that write, and whose calls no policy holds or forbids in a freeze.
    pub fn unfrozen_tools(&self) -> impl Iterator<Item = &CapabilityId> {
        self.tools.iter().filter_map(|(id, plan)| {
            let writes = plan.capability()?.is_write_class();
            let mut forbids = plan
                .call_slice
                .policies()
                .filter(|policy| policy.effect() == Effect::Forbid && Mentions::of(policy).freeze);
            (writes && forbids.next().is_none()).then_some(id)
        })
    }

    fn is_for(&self, gate: &Policy, mode: ApprovalMode) -> bool {
        let named = gate.entity_literals();
        let names = |mode: &ApprovalMode| named.contains(&self.names.mode(*mode));
        let mentions = Mentions::of(gate);
        !mentions.freeze && !mentions.taint && (!GATED.iter().any(names) || names(&mode))
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        bundle::BundleSource,
        testing::{compile, shipped, world},
    };

    #[test]
    fn a_mode_whose_gate_is_missing_is_found() {
        let mut bundle = shipped();
        let ungated = |bundle: &BundleSource| -> Vec<String> {
            let snapshot = compile(bundle, &world()).unwrap();
            snapshot.ungated_tools().map(|(tool, _)| tool.to_string()).collect()
        };
        assert!(ungated(&bundle).is_empty());
        for file in &mut bundle.files {
            // What is left of the gate is about another mode.
            file.text =
                file.text.replace("ApprovalMode::\"network\" }", "ApprovalMode::\"delegated\" }");
        }
        assert_eq!(ungated(&bundle), ["ops/fetch"]);
    }

    #[test]
    fn tools_that_no_freeze_holds_are_found() {
        let mut bundle = shipped();
        assert_eq!(compile(&bundle, &world()).unwrap().unfrozen_tools().count(), 0);
        for file in &mut bundle.files {
            file.text =
                file.text.replace("context.req.frozen && resource.writes", "resource.writes");
        }
        let snapshot = compile(&bundle, &world()).unwrap();
        assert!(snapshot.unfrozen_tools().any(|tool| tool.to_string() == "ops/refund"));
    }
}
