//! From votes to the approval that policy sees, and from policies to what an approval needs.
//!
//! Owns which votes count, merging the requirements of several policies, and the ideal approval of the counterfactual.
//! Invariant: what policy sees never exceeds what the ledger's ballot counts, nor what distinct, eligible people agreed to
//! for exactly this request (a property test verifies it); an approval that is stale, refused or empty is not shown at all, so that
//! even a careless condition cannot use it.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{
    approval::{ApproverGroup, Escalation, HoldReason, Requirement, Voice, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    directory::Directory,
    ids::{GroupId, TenantId},
    principal::PrincipalChain,
};

use crate::{
    annotations::{ApprovalRule, EXPIRES_IN_MS_MAX, PolicyMeta, Route},
    decision::DenialKind,
    facts::{ApprovalFacts, ApprovalScope, Facts},
    route::has_group,
    vocabulary::NOBODY,
};

mod distinct;

/// The maximum age of the claims by which a vote counts for a group.
const CLAIMS_AGE_MS_MAX: i64 = 86_400_000;
/// How far ahead of our clock the time of somebody's authentication may be.
const CLOCK_SKEW_MS_MAX: i64 = 60_000;

/// An approval as policy sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApprovalRecord {
    pub(crate) request_digest: Digest,
    /// The name of the scope in policies.
    pub(crate) scope: &'static str,
    pub(crate) expires_at: Timestamp,
    /// Cedar ids of the people who agreed, and of those they agreed for.
    pub(crate) approvers: BTreeSet<String>,
    pub(crate) by_group: BTreeMap<ApproverGroup, u32>,
    pub(crate) total: u32,
    pub(crate) args_edited: bool,
}

/// An approval after counting.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counted {
    /// What policy sees, if any vote counts.
    pub(crate) record: Option<ApprovalRecord>,
    /// Why the approval as such can no longer be used.
    pub(crate) flaw: Option<DenialKind>,
}

/// Counts the votes of the call's approval, for the request as it is now.
///
/// An unusable standing grant is no flaw of the call: the call is treated as if there were none, and people are asked.
pub(crate) fn count(facts: &Facts<'_>, directory: &Directory, request_digest: Digest) -> Counted {
    let Some(approval) = facts.approval else { return Counted::default() };
    let standing = matches!(approval.scope, ApprovalScope::Standing(_));
    if standing && (facts.frozen || approval.requirement.once_only) {
        return Counted::default();
    }
    if let Some(kind) = flaw_of(approval, request_digest, facts.now) {
        return Counted { record: None, flaw: (!standing).then_some(kind) };
    }
    let electorate = Electorate { chain: facts.chain, directory, now: facts.now };
    let agreed: Vec<Agreement<'_>> = heard(approval)
        .filter_map(|vote| {
            electorate.groups_that_count(approval, vote).map(|groups| Agreement { vote, groups })
        })
        .collect();
    let tenant = facts.chain.tenant();
    Counted { record: (!agreed.is_empty()).then(|| record(approval, tenant, &agreed)), flaw: None }
}

fn flaw_of(approval: &ApprovalFacts, request_digest: Digest, now: Timestamp) -> Option<DenialKind> {
    if approval.request_digest != request_digest {
        return Some(DenialKind::ApprovalChanged);
    }
    let no = approval.votes.iter().filter(|vote| vote.choice == VoteChoice::Deny);
    let deniers: BTreeSet<Voice<'_>> = no.map(Vote::duty_of).collect();
    let threshold = usize::try_from(approval.requirement.deny_threshold.max(1));
    if threshold.is_ok_and(|threshold| deniers.len() >= threshold) {
        return Some(DenialKind::ApprovalRefused);
    }
    (now >= approval.expires_at).then_some(DenialKind::ApprovalExpired)
}

/// The agreements to what is shown now, each voice once: somebody who decided and the colleague they decided for are one voice.
/// Ineligible votes are left out only afterwards, so that a second vote of a voice cannot replace a first that does not count.
fn heard(approval: &ApprovalFacts) -> impl Iterator<Item = &Vote> {
    let mut voices: BTreeSet<Voice<'_>> = BTreeSet::new();
    let yes = approval.votes.iter().filter(|vote| {
        vote.choice == VoteChoice::Approve && vote.shown_digest == approval.shown_digest
    });
    yes.filter(move |vote| {
        let first = vote.voices().all(|voice| !voices.contains(&voice));
        voices.extend(vote.voices());
        first
    })
}

/// A vote that counts, and the groups it counts for.
#[derive(Debug)]
struct Agreement<'a> {
    vote: &'a Vote,
    groups: BTreeSet<ApproverGroup>,
}

fn record(approval: &ApprovalFacts, tenant: &TenantId, agreed: &[Agreement<'_>]) -> ApprovalRecord {
    let mut by_group: BTreeMap<ApproverGroup, u32> = BTreeMap::new();
    for group in agreed.iter().flat_map(|agreement| &agreement.groups) {
        let people = by_group.entry(group.clone()).or_default();
        *people = people.saturating_add(1);
    }
    let voices = agreed.iter().flat_map(|agreement| agreement.vote.voices());
    let uid = |voice: Voice<'_>| format!("{}/{}", voice.tenant.unwrap_or(tenant), voice.person);
    ApprovalRecord {
        request_digest: approval.request_digest,
        scope: approval.scope.as_str(),
        expires_at: approval.expires_at,
        approvers: voices.map(uid).collect(),
        by_group,
        total: u32::try_from(agreed.len()).unwrap_or(u32::MAX),
        args_edited: approval.args_edited,
    }
}

struct Electorate<'a> {
    chain: &'a PrincipalChain,
    directory: &'a Directory,
    now: Timestamp,
}

impl Electorate<'_> {
    /// The groups a vote counts for; `None` if it does not count.
    fn groups_that_count(
        &self,
        approval: &ApprovalFacts,
        vote: &Vote,
    ) -> Option<BTreeSet<ApproverGroup>> {
        if vote.at >= approval.expires_at || self.has_lapsed(&approval.requirement, vote) {
            return None;
        }
        let tenant = self.tenant_of(vote);
        let groups = self.groups_still(vote).map(|group| self.asked_as(vote, group));
        let groups: BTreeSet<ApproverGroup> = match &vote.tenant {
            // External approvers count only for the groups they were asked as, while their tenant still lets those be asked.
            Some(_) => {
                let asked = asked_now(approval);
                let may = |group: &ApproverGroup| {
                    asked.contains(group) && has_group(self.directory, tenant, group.group())
                };
                groups.filter(may).collect()
            }
            None => {
                let too_early = not_asked_yet(approval);
                groups.filter(|group| !too_early.contains(group)).collect()
            }
        };
        (!groups.is_empty()).then_some(groups)
    }

    /// Whether an agreement no longer counts as it was given: its giver may no longer agree, did not authenticate recently enough for what
    /// is asked now, or is no longer known to be in a group that is asked.
    fn has_lapsed(&self, requirement: &Requirement, vote: &Vote) -> bool {
        let still: BTreeSet<&GroupId> = self.groups_still(vote).collect();
        let later = requirement.escalations.iter().map(|escalation| &escalation.group);
        let asked: BTreeSet<&ApproverGroup> = requirement.groups.keys().chain(later).collect();
        let mut gone = vote.groups.iter().filter(|group| !still.contains(group));
        still.is_empty()
            || !self.is_eligible(requirement, vote)
            || gone.any(|group| asked.contains(&self.asked_as(vote, group)))
    }

    fn is_eligible(&self, requirement: &Requirement, vote: &Vote) -> bool {
        let fresh = requirement
            .fresh_auth_ms
            .is_none_or(|within| proved_lately(vote.authenticated_at, vote.at, within));
        fresh && !vote.voices().any(|voice| self.is_interested(voice) || self.is_inactive(voice))
    }

    /// The groups of a vote that the voter is still known to be in.
    fn groups_still<'v>(&self, vote: &'v Vote) -> impl Iterator<Item = &'v GroupId> {
        let claims_hold = self.now.since_ms(vote.groups_as_of) <= CLAIMS_AGE_MS_MAX;
        let listed = self.directory.user(self.tenant_of(vote), vote.duty_of().person);
        let listed = move |group: &GroupId| listed.is_some_and(|user| user.groups.contains(group));
        // Claims of a token count for a day. Groups from the directory are looked up again, and stop counting once removed there.
        let claimed = move |group: &GroupId| claims_hold && vote.claimed.contains(group);
        vote.groups.iter().filter(move |group| listed(group) || claimed(group))
    }

    fn tenant_of<'v>(&'v self, vote: &'v Vote) -> &'v TenantId {
        vote.tenant.as_ref().unwrap_or(self.chain.tenant())
    }

    fn asked_as(&self, vote: &Vote, group: &GroupId) -> ApproverGroup {
        ApproverGroup::of(self.chain.tenant(), self.tenant_of(vote).clone(), group.clone())
    }

    fn is_inactive(&self, voice: Voice<'_>) -> bool {
        let tenant = voice.tenant.unwrap_or(self.chain.tenant());
        self.directory.user(tenant, voice.person).is_some_and(|user| !user.active)
    }

    fn is_interested(&self, voice: Voice<'_>) -> bool {
        is_interested(self.directory, self.chain, voice)
    }
}

/// The indices of the agreements that no longer count as they were given, under what is asked now.
pub(crate) fn lapsed(
    directory: &Directory,
    chain: &PrincipalChain,
    requirement: &Requirement,
    votes: &[Vote],
    now: Timestamp,
) -> BTreeSet<usize> {
    let electorate = Electorate { chain, directory, now };
    let votes = votes.iter().enumerate();
    let agreed = votes.filter(|(_, vote)| vote.choice == VoteChoice::Approve);
    let gone = agreed.filter(|(_, vote)| electorate.has_lapsed(requirement, vote));
    gone.map(|(place, _)| place).collect()
}

/// Whether somebody answers for the caller, is the caller, or is the one it acts for: all of them of the caller's tenant.
pub(crate) fn is_interested(
    directory: &Directory,
    chain: &PrincipalChain,
    voice: Voice<'_>,
) -> bool {
    let owner = directory.agent(chain.tenant(), &chain.actor.id).map(|agent| &agent.owner);
    voice.tenant.is_none()
        && (owner == Some(voice.person)
            || &chain.actor.id == voice.person
            || chain.on_behalf_of.as_ref().is_some_and(|user| &user.id == voice.person))
}

/// Whether somebody authenticated at most `within_ms` before `at`; an unknown time does not count.
pub(crate) fn proved_lately(
    authenticated_at: Option<Timestamp>,
    at: Timestamp,
    within_ms: u64,
) -> bool {
    let within = i64::try_from(within_ms).unwrap_or(i64::MAX);
    authenticated_at.is_some_and(|proved| {
        let age_ms = at.since_ms(proved);
        age_ms >= CLOCK_SKEW_MS_MAX.saturating_neg() && age_ms <= within
    })
}

/// The groups that are asked: at once, and by the escalations that were made.
fn asked_now(approval: &ApprovalFacts) -> BTreeSet<&ApproverGroup> {
    let requirement = &approval.requirement;
    let made = usize::try_from(approval.escalated).unwrap_or(usize::MAX);
    let escalated = requirement.escalations.iter().take(made).map(|one| &one.group);
    requirement.groups.keys().chain(escalated).collect()
}

/// Groups of escalations that are not due yet: nobody counts as one of their members before.
fn not_asked_yet(approval: &ApprovalFacts) -> BTreeSet<&ApproverGroup> {
    let asked = asked_now(approval);
    let later = approval.requirement.escalations.iter().map(|escalation| &escalation.group);
    later.filter(|group| !asked.contains(group)).collect()
}

/// The groups of a route as they are for one call.
#[derive(Debug)]
struct Asked {
    groups: BTreeMap<ApproverGroup, u32>,
    steps: Vec<(u64, ApproverGroup, u32)>,
}

impl Asked {
    fn by(route: &Route, facts: &Facts<'_>, directory: &Directory) -> Result<Self, String> {
        let mut groups: BTreeMap<ApproverGroup, u32> = BTreeMap::new();
        for (written, people) in &route.groups {
            let needed = groups.entry(written.resolve(facts, directory)?).or_default();
            *needed = (*needed).max(*people);
        }
        let mut steps = Vec::new();
        for step in &route.steps {
            let group = step.group.resolve(facts, directory)?;
            // Groups that are written differently may be the same for this call: it is asked at once then, and not again later.
            if !groups.contains_key(&group) {
                steps.push((step.after_ms, group, step.people));
            }
        }
        Ok(Self { groups, steps })
    }

    /// The other tenants whose groups are asked, at once or later.
    fn external_tenants(&self) -> BTreeSet<TenantId> {
        let later = self.steps.iter().map(|(_, group, _)| group);
        let groups = self.groups.keys().chain(later);
        groups.filter_map(ApproverGroup::external_tenant).cloned().collect()
    }
}

/// What people have to agree to so that none of these policies forbids the call; `None` if one of them cannot be set aside.
///
/// # Errors
/// The reason for the audit, when a policy asks a group that does not exist.
pub(crate) fn requirement<'a>(
    forbids: impl IntoIterator<Item = &'a PolicyMeta>,
    facts: &Facts<'_>,
    directory: &Directory,
) -> Result<Option<Requirement>, String> {
    let mut merged = Requirement::new(BTreeMap::new(), 1, EXPIRES_IN_MS_MAX);
    merged.deny_threshold = u32::MAX;
    let mut routes: Vec<Asked> = Vec::new();
    for forbid in forbids {
        let ApprovalRule::Required(route) = &forbid.rule else { return Ok(None) };
        let asked = Asked::by(route, facts, directory)?;
        for (group, people) in &asked.groups {
            let needed = merged.groups.entry(group.clone()).or_default();
            *needed = (*needed).max(*people);
        }
        merged.quorum = merged.quorum.max(route.quorum);
        merged.deny_threshold = merged.deny_threshold.min(route.deny_threshold);
        merged.fresh_auth_ms =
            [merged.fresh_auth_ms, route.fresh_auth_ms].into_iter().flatten().min();
        merged.once_only |= route.once_only;
        merged.expires_in_ms = merged.expires_in_ms.min(route.expires_in_ms);
        let reason = forbid.reason().unwrap_or_default().to_owned();
        merged.reasons.push(HoldReason {
            policy: forbid.id.clone(),
            reason,
            asks: asked.external_tenants(),
        });
        routes.push(asked);
    }
    merged.escalations = escalations(&routes, merged.expires_in_ms);
    // Another tenant approves single calls only, never a standing grant.
    merged.once_only |= !merged.external_tenants().is_empty();
    merged.quorum = distinct::people_needed(&merged, facts.chain, directory);
    Ok((!merged.reasons.is_empty()).then_some(merged))
}

/// The escalations of several policies, one for each group that is asked later, in the order in which they are due.
///
/// Another group stands in for a group only if it is of the same tenant and every policy that asks the one lets the other stand in; the
/// most people and the longest wait apply. Else an escalation of one policy would answer for another policy that has none.
fn escalations(routes: &[Asked], expires_in_ms: u64) -> Vec<Escalation> {
    let mut merged: BTreeMap<&ApproverGroup, Escalation> = BTreeMap::new();
    for (route, (after_ms, later, people)) in
        routes.iter().flat_map(|route| route.steps.iter().map(move |step| (route, step)))
    {
        let replaceable = route.groups.keys().filter(|group| {
            let mut asking = routes.iter().filter(|other| other.groups.contains_key(*group));
            group.external_tenant() == later.external_tenant()
                && asking.all(|other| other.steps.iter().any(|(_, one, _)| one == later))
        });
        let replaceable: BTreeSet<ApproverGroup> = replaceable.cloned().collect();
        let one = merged.entry(later).or_insert_with(|| Escalation {
            after_ms: *after_ms,
            group: later.clone(),
            people: *people,
            stands_in_for: BTreeSet::new(),
        });
        one.after_ms = one.after_ms.max(*after_ms);
        one.people = one.people.max(*people);
        one.stands_in_for.extend(replaceable);
    }
    let mut found: Vec<Escalation> = merged
        .into_values()
        .filter(|one| !one.stands_in_for.is_empty() && one.after_ms < expires_in_ms)
        .collect();
    found.sort_by(|a, b| (a.after_ms, &a.group).cmp(&(b.after_ms, &b.group)));
    found
}

/// The least approval that meets a requirement, by fictitious people; with an escalation, the least one in which its group stands in
/// where it may.
pub(crate) fn ideal(
    requirement: &Requirement,
    escalation: Option<&Escalation>,
    facts: &Facts<'_>,
    request_digest: Digest,
) -> ApprovalRecord {
    let mut by_group = requirement.groups.clone();
    let mut total = requirement.quorum;
    if let Some(escalation) = escalation {
        by_group.retain(|group, _| !escalation.stands_in_for.contains(group));
        let people = by_group.entry(escalation.group.clone()).or_default();
        *people = (*people).max(escalation.people);
        total = total.max(escalation.people);
    }
    let tenant = facts.chain.tenant();
    ApprovalRecord {
        request_digest,
        scope: ApprovalScope::Once.as_str(),
        expires_at: facts.now.plus_ms(i64::try_from(requirement.expires_in_ms).unwrap_or(i64::MAX)),
        approvers: (0..total).map(|n| format!("{tenant}/{NOBODY}-{n}")).collect(),
        by_group,
        total,
        args_edited: facts.approval.is_some_and(|approval| approval.args_edited),
    }
}

#[cfg(test)]
mod tests;
