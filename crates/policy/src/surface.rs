//! The tools that exist for a chain: those that it could call under some circumstances.
//!
//! Owns the question «could it ever?», answered by partial evaluation with everything left unknown that may change from call to
//! call: arguments, modes, time, budget, approval, lockdown. Invariant: whatever [`crate::decide`] can allow or hold is in
//! the surface; a property test verifies it. A question that cannot be evaluated hides the tool: it could not be decided either.

use std::collections::BTreeSet;

use cedar_policy::{
    Decision, Entities, EntityUid, PartialEntities, PartialEntityUid, PartialRequest,
};
use placet_types::{
    ids::{CapabilityId, GroupId},
    principal::PrincipalChain,
};

use crate::{
    decide::floor,
    entities,
    snapshot::{Snapshot, ToolPlan},
};

impl Snapshot {
    /// The tools that this chain could call or have held under some circumstances; all others do not exist for it. The groups
    /// are those of the user's verified claims.
    pub fn surface(
        &self,
        chain: &PrincipalChain,
        extra_user_groups: &BTreeSet<GroupId>,
    ) -> BTreeSet<CapabilityId> {
        surface(self, chain, extra_user_groups, |_| true)
    }

    /// Whether one tool is in that surface.
    pub(crate) fn offers(
        &self,
        chain: &PrincipalChain,
        extra_user_groups: &BTreeSet<GroupId>,
        tool: &CapabilityId,
    ) -> bool {
        !surface(self, chain, extra_user_groups, |id| id == tool).is_empty()
    }
}

fn surface(
    snapshot: &Snapshot,
    chain: &PrincipalChain,
    extra_user_groups: &BTreeSet<GroupId>,
    is_wanted: impl Fn(&CapabilityId) -> bool,
) -> BTreeSet<CapabilityId> {
    if floor::of_chain(&snapshot.directory, chain).is_some() {
        return BTreeSet::new();
    }
    let Ok(principals) =
        entities::principals(&snapshot.names, &snapshot.directory, chain, extra_user_groups)
    else {
        return BTreeSet::new();
    };
    let links: Vec<EntityUid> = std::iter::once(&chain.actor)
        .chain(&chain.on_behalf_of)
        .map(|principal| snapshot.names.principal_uid(principal))
        .collect();
    let could = |plan: &ToolPlan| {
        let known = principals
            .iter()
            .cloned()
            .chain([plan.entities.tool.clone(), plan.entities.adapter.clone()]);
        let known = Entities::from_entities(known, None).ok();
        let known =
            known.and_then(|known| PartialEntities::from_concrete(known, &snapshot.schema).ok());
        known.is_some_and(|known| links.iter().all(|link| could_link(snapshot, plan, link, &known)))
    };
    snapshot
        .tools
        .iter()
        .filter(|(id, _)| is_wanted(id))
        .filter(|(_, plan)| {
            let capability = plan.capability();
            capability.is_some_and(|capability| {
                floor::of_tool(chain, &plan.contract, capability).is_none()
            })
        })
        .filter(|(_, plan)| could(plan))
        .map(|(id, _)| id.clone())
        .collect()
}

fn could_link(
    snapshot: &Snapshot,
    plan: &ToolPlan,
    link: &EntityUid,
    known: &PartialEntities,
) -> bool {
    let request = PartialRequest::new(
        PartialEntityUid::from_concrete(link.clone()),
        plan.call.clone(),
        PartialEntityUid::from_concrete(plan.tool.clone()),
        None,
        &snapshot.schema,
    );
    let Ok(request) = request else { return false };
    let answer = plan.call_slice.tpe(&request, known, &snapshot.schema);
    answer.is_ok_and(|answer| answer.decision() != Some(Decision::Deny))
}

#[cfg(test)]
mod tests;
