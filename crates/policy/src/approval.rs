//! From votes to what policy is told about an approval, and from policies to what an approval needs.
//!
//! Owns which votes count, merging the requirements of several policies, and the ideal approval of the counterfactual
//!. Invariant: what policy is told never exceeds what distinct, eligible people agreed to for exactly this
//! request; an approval that is stale, refused or empty is not told at all, so that even a careless condition cannot use it.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    approval::{HoldReason, Requirement, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    directory::Directory,
    ids::{GroupId, PrincipalId, TenantId},
    principal::PrincipalChain,
};

use crate::{
    annotations::{ApprovalRule, EXPIRES_IN_MS_MAX, PolicyMeta},
    facts::{ApprovalFacts, Facts},
    verdict::DenialKind,
    vocabulary::NOBODY,
};

/// How old the claims may be by which a vote counts for a group.
const CLAIMS_AGE_MS_MAX: i64 = 86_400_000;

/// What policy is told about an approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalRecord {
    pub(crate) request_digest: Digest,
    pub(crate) expires_at: Timestamp,
    /// Cedar ids of the people who agreed.
    pub(crate) approvers: BTreeSet<String>,
    pub(crate) by_group: BTreeMap<GroupId, u32>,
    pub(crate) total: u32,
}

/// An approval after counting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counted {
    /// What policy is told, if anything counts.
    pub(crate) record: Option<ApprovalRecord>,
    /// Why the approval as such is of no use any more.
    pub(crate) flaw: Option<DenialKind>,
}

/// Counts the votes of the call's approval, for the request as it is now.
pub(crate) fn count(facts: &Facts<'_>, directory: &Directory, request_digest: Digest) -> Counted {
    let Some(approval) = facts.approval else { return Counted::default() };
    let flaw = |kind| Counted { record: None, flaw: Some(kind) };
    if approval.request_digest != request_digest {
        return flaw(DenialKind::ApprovalChanged);
    }
    if approval.votes.iter().any(|vote| vote.choice == VoteChoice::Deny) {
        return flaw(DenialKind::ApprovalRefused);
    }
    if facts.now >= approval.expires_at {
        return flaw(DenialKind::ApprovalExpired);
    }
    let electorate = Electorate { chain: facts.chain, directory, now: facts.now };
    let mut counted: BTreeMap<&PrincipalId, BTreeSet<&GroupId>> = BTreeMap::new();
    for vote in &approval.votes {
        if let Some(groups) = electorate.groups_that_count(approval, vote) {
            counted.entry(&vote.approver).or_default().extend(groups);
        }
    }
    let tenant = facts.chain.tenant();
    Counted {
        record: (!counted.is_empty()).then(|| record(approval, tenant, &counted)),
        flaw: None,
    }
}

fn record(
    approval: &ApprovalFacts,
    tenant: &TenantId,
    counted: &BTreeMap<&PrincipalId, BTreeSet<&GroupId>>,
) -> ApprovalRecord {
    let mut by_group: BTreeMap<GroupId, u32> = BTreeMap::new();
    for group in counted.values().flatten() {
        let people = by_group.entry((*group).clone()).or_default();
        *people = people.saturating_add(1);
    }
    ApprovalRecord {
        request_digest: approval.request_digest,
        expires_at: approval.expires_at,
        approvers: counted.keys().map(|id| format!("{tenant}/{id}")).collect(),
        by_group,
        total: u32::try_from(counted.len()).unwrap_or(u32::MAX),
    }
}

struct Electorate<'a> {
    chain: &'a PrincipalChain,
    directory: &'a Directory,
    now: Timestamp,
}

impl<'a> Electorate<'a> {
    /// The groups a vote counts for; nothing if it does not count.
    fn groups_that_count(
        &self,
        approval: &ApprovalFacts,
        vote: &'a Vote,
    ) -> Option<BTreeSet<&'a GroupId>> {
        let listed = self.directory.user(self.chain.tenant(), &vote.approver);
        if vote.shown_digest != approval.shown_digest
            || vote.at >= approval.expires_at
            || self.is_interested(&vote.approver)
            || listed.is_some_and(|user| !user.active)
        {
            return None;
        }
        let fresh = self.now.since_ms(vote.groups_as_of) <= CLAIMS_AGE_MS_MAX;
        let claimed = vote.groups.iter().filter(|_| fresh);
        let groups: BTreeSet<&GroupId> =
            claimed.chain(listed.into_iter().flat_map(|user| &user.groups)).collect();
        (!groups.is_empty()).then_some(groups)
    }

    /// Whether somebody answers for the caller, is the caller, or is the one it acts for.
    fn is_interested(&self, person: &PrincipalId) -> bool {
        let owner = self
            .directory
            .agent(self.chain.tenant(), &self.chain.actor.id)
            .map(|agent| &agent.owner);
        owner == Some(person)
            || &self.chain.actor.id == person
            || self.chain.on_behalf_of.as_ref().is_some_and(|user| &user.id == person)
    }
}

/// What people have to agree to so that none of these policies stands against the call; nothing if one cannot be set aside.
pub(crate) fn requirement<'a>(
    forbids: impl IntoIterator<Item = &'a PolicyMeta>,
) -> Option<Requirement> {
    let mut merged = Requirement {
        groups: BTreeMap::new(),
        quorum: 1,
        expires_in_ms: EXPIRES_IN_MS_MAX,
        reasons: Vec::new(),
    };
    for forbid in forbids {
        let ApprovalRule::Required(route) = &forbid.rule else { return None };
        for (group, people) in &route.groups {
            let needed = merged.groups.entry(group.clone()).or_default();
            *needed = (*needed).max(*people);
        }
        merged.quorum = merged.quorum.max(route.quorum);
        merged.expires_in_ms = merged.expires_in_ms.min(route.expires_in_ms);
        let reason = forbid.reason().unwrap_or_default().to_owned();
        merged.reasons.push(HoldReason { policy: forbid.id.clone(), reason });
    }
    (!merged.reasons.is_empty()).then_some(merged)
}

/// The least approval that meets a requirement, from people who are nobody in particular.
pub(crate) fn ideal(
    requirement: &Requirement,
    facts: &Facts<'_>,
    request_digest: Digest,
) -> ApprovalRecord {
    let tenant = facts.chain.tenant();
    ApprovalRecord {
        request_digest,
        expires_at: facts.now.plus_ms(i64::try_from(requirement.expires_in_ms).unwrap_or(i64::MAX)),
        approvers: (0..requirement.quorum).map(|n| format!("{tenant}/{NOBODY}-{n}")).collect(),
        by_group: requirement.groups.clone(),
        total: requirement.quorum,
    }
}

#[cfg(test)]
mod tests;
