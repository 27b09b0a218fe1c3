//! The reviewer: in which capacity a caller may see an approval or decide on it.
//!
//! Owns the way from a verified caller to Cedar's question. Decides nothing itself: every click is a request to the active policies, in the
//! caller's own right and for duties delegated to them.

use std::collections::BTreeSet;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    directive::Directive,
};
use placet_policy::review::{
    Review, ReviewAction, ReviewRefusal, ReviewedRequest, Reviewer, Withdrawal,
};
use placet_types::{
    approval::{Voice, Vote},
    clock::Timestamp,
    directive::Grant,
    ids::{GroupId, PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
};

use crate::{
    pending::query::{Duty, Viewer},
    service::Approvals,
};

/// The groups whose members see every approval of their tenant.
const SEE_ALL: [&str; 2] = ["auditors", "operators"];

/// What Cedar is asked about an approval.
fn question_of(approval: &ApprovalRecord) -> ReviewedRequest<'_> {
    ReviewedRequest {
        chain: &approval.chain,
        capability: &approval.capability,
        mode: approval.mode,
        asked: approval.asked().into_iter().cloned().collect(),
        fresh_auth_ms: approval.requirement.fresh_auth_ms,
        expires_at: approval.expires_at,
        decided_by: approval.deciders().collect(),
        authors: approval.authors().cloned().collect(),
    }
}

/// The caller's voice on a call of `tenant`.
pub(crate) fn voice_of<'a>(caller: &'a VerifiedCaller, tenant: &TenantId) -> Voice<'a> {
    let own = caller.tenant();
    Voice { tenant: (own != tenant).then_some(own), person: &caller.actor.principal().id }
}

/// The capacity in which a caller decides.
#[derive(Debug, Clone)]
pub(crate) struct Capacity {
    /// Their tenant, if it is not that of the call.
    pub(crate) external_of: Option<TenantId>,
    /// The colleague they decide for.
    pub(crate) stands_for: Option<PrincipalId>,
    /// The groups that their vote counts for.
    pub(crate) groups: BTreeSet<GroupId>,
    /// Those of the groups that no directory confirms.
    pub(crate) claimed: BTreeSet<GroupId>,
    /// When these groups were learnt.
    pub(crate) groups_as_of: Timestamp,
}

/// A person acting directly; an agent with a delegation is not one.
pub fn is_person(caller: &VerifiedCaller) -> bool {
    caller.actor.kind() == PrincipalKind::User && caller.delegation.is_none()
}

/// The groups of a caller: of the claims, and of the directory.
pub(crate) fn groups_of(service: &Approvals, caller: &VerifiedCaller) -> BTreeSet<GroupId> {
    let person = &caller.actor;
    let mut groups = person.groups().clone();
    if let Some(entry) = service.policies().directory.user(person.tenant(), &person.principal().id)
    {
        groups.extend(entry.groups.iter().cloned());
    }
    groups
}

/// Those of the caller's `groups` that only their token confirms.
pub(crate) fn only_claimed<'a>(
    service: &Approvals,
    caller: &VerifiedCaller,
    groups: impl IntoIterator<Item = &'a GroupId>,
) -> BTreeSet<GroupId> {
    let person = &caller.actor;
    let active = service.policies();
    let listed = active.directory.user(person.tenant(), &person.principal().id);
    let is_listed = |group: &GroupId| listed.is_some_and(|entry| entry.groups.contains(group));
    groups.into_iter().filter(|group| !is_listed(group)).cloned().collect()
}

/// The caller as the index filters by.
pub(crate) fn viewer(service: &Approvals, caller: &VerifiedCaller) -> Viewer {
    let is_person = is_person(caller);
    let groups = if is_person { groups_of(service, caller) } else { BTreeSet::new() };
    Viewer {
        tenant: caller.tenant().clone(),
        chain: caller.chain(),
        is_auditor: sees_all(&groups),
        groups,
        is_person,
        duties: duties(service, caller),
    }
}

/// Whether the caller is a person who sees every approval and decision of their tenant.
pub fn is_auditor(service: &Approvals, caller: &VerifiedCaller) -> bool {
    is_person(caller) && sees_all(&groups_of(service, caller))
}

fn sees_all(groups: &BTreeSet<GroupId>) -> bool {
    groups.iter().any(|group| SEE_ALL.contains(&group.as_str()))
}

/// The duties delegated to a caller.
pub(crate) fn duties(service: &Approvals, caller: &VerifiedCaller) -> Vec<Duty> {
    if !is_person(caller) {
        return Vec::new();
    }
    service.rules.open().duties(
        &service.policies().directory,
        caller.tenant(),
        &caller.actor.principal().id,
        service.ledger.store().now(),
    )
}

/// Whether the caller may see an approval: it is their call, or Cedar permits it, to them or to whom they stand for.
pub(crate) fn may_view(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> bool {
    let question = question_of(approval);
    let now = service.ledger.store().now();
    let policy = &service.policies().policy;
    let sees = |reviewer: &Reviewer<'_>| policy.may_view(reviewer, &question, now).is_ok();
    let own = Reviewer { principal: caller.actor.principal(), groups: caller.actor.groups() };
    if is_external(caller, approval) {
        return is_person(caller)
            && approval.external_tenants.contains(caller.tenant())
            && sees(&own);
    }
    // A caller may see what their own call waits for.
    if approval.chain.is_same_caller(&caller.chain()) {
        return true;
    }
    sees(&own)
        || duties(service, caller).iter().any(|duty| {
            if !question.asked.iter().any(|group| group.has(None, &duty.groups)) {
                return false;
            }
            let author = author_of(caller, duty);
            sees(&Reviewer { principal: &author, groups: &duty.groups })
        })
}

fn author_of(caller: &VerifiedCaller, duty: &Duty) -> Principal {
    Principal {
        kind: PrincipalKind::User,
        id: duty.author.clone(),
        tenant_id: caller.tenant().clone(),
        display: None,
    }
}

/// The capacity in which policy now lets the caller do this with an approval: in their own right, else for a colleague.
///
/// # Errors
/// Why not in their own right.
pub(crate) fn capacity(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    action: ReviewAction,
) -> Result<Capacity, ReviewRefusal> {
    capacity_for(service, caller, &question_of(approval), action)
}

/// The same for a proposed standing grant.
///
/// # Errors
/// Why not in their own right.
pub(crate) fn capacity_for_grant(
    service: &Approvals,
    caller: &VerifiedCaller,
    entry: &Directive,
    grant: &Grant,
    action: ReviewAction,
) -> Result<Capacity, ReviewRefusal> {
    let question = ReviewedRequest {
        chain: &grant.chain,
        capability: &grant.capability,
        mode: grant.mode,
        asked: entry.requirement.groups.keys().cloned().collect(),
        fresh_auth_ms: entry.requirement.fresh_auth_ms,
        expires_at: entry.expires_at,
        decided_by: entry.votes.iter().flat_map(Vote::voices).collect(),
        authors: grant.authors.clone(),
    };
    capacity_for(service, caller, &question, action)
}

fn capacity_for(
    service: &Approvals,
    caller: &VerifiedCaller,
    question: &ReviewedRequest<'_>,
    action: ReviewAction,
) -> Result<Capacity, ReviewRefusal> {
    let policy = &service.policies().policy;
    let person = &caller.actor;
    let review = Review {
        reviewer: Reviewer { principal: person.principal(), groups: person.groups() },
        stands_for: None,
        request: question,
        action,
        authenticated_at: person.authenticated_at(),
        now: service.ledger.store().now(),
    };
    let external_of = voice_of(caller, question.chain.tenant()).tenant.cloned();
    let mut refusal = match policy.may_review(&review) {
        Ok(()) => {
            let mut own = own(service, caller);
            if let Some(tenant) = &external_of {
                // The owner's ledger learns only the groups that the external approver is asked as.
                let asked_as = |group: &GroupId| {
                    let mut asked = question.asked.iter();
                    asked.any(|of| of.external_tenant() == Some(tenant) && of.group() == group)
                };
                own.groups.retain(asked_as);
                own.claimed.retain(asked_as);
            }
            return Ok(Capacity { external_of, ..own });
        }
        Err(refusal) => refusal,
    };
    // External approvers decide in their own right: duties delegated to them are for calls of their own tenant.
    for duty in duties(service, caller).into_iter().filter(|_| external_of.is_none()) {
        let author = author_of(caller, &duty);
        let stands_for = Some(Reviewer { principal: &author, groups: &duty.groups });
        match policy.may_review(&Review { stands_for, ..review }) {
            Ok(()) => {
                return Ok(Capacity {
                    external_of: None,
                    stands_for: Some(duty.author),
                    groups: duty.groups,
                    claimed: duty.claimed,
                    groups_as_of: duty.since,
                });
            }
            Err(other) => refusal.needs_fresh_auth |= other.needs_fresh_auth,
        }
    }
    Err(refusal)
}

/// The caller in their own right, within their own tenant.
pub(crate) fn own(service: &Approvals, caller: &VerifiedCaller) -> Capacity {
    let groups = groups_of(service, caller);
    Capacity {
        external_of: None,
        stands_for: None,
        claimed: only_claimed(service, caller, &groups),
        groups,
        groups_as_of: caller.actor.groups_as_of(),
    }
}

/// Whether the caller may withdraw the call of an approval, in their own right alone.
///
/// # Errors
/// Why not.
pub(crate) fn may_withdraw(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(), ReviewRefusal> {
    // An agent with a delegation acts only for that user.
    let is_requester = approval.chain.is_same_caller(&caller.chain());
    service.policies().policy.may_withdraw(&Withdrawal {
        by: Reviewer { principal: caller.actor.principal(), groups: caller.actor.groups() },
        is_requester,
        request: &question_of(approval),
        authenticated_at: caller.actor.authenticated_at(),
        now: service.ledger.store().now(),
    })
}

/// Whether the caller is of another tenant than the call.
pub fn is_external(caller: &VerifiedCaller, approval: &ApprovalRecord) -> bool {
    caller.tenant() != approval.chain.tenant()
}

/// A colleague for whom the caller could decide, and who has decided.
fn author_who_decided(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Option<PrincipalId> {
    let is_asked = |duty: &Duty| approval.asked().iter().any(|of| of.has(None, &duty.groups));
    let voted = |author: &PrincipalId| {
        approval.shown_votes().flat_map(Vote::voices).any(|voice| voice == Voice::own(author))
    };
    let duties = duties(service, caller).into_iter().filter(is_asked);
    duties.map(|duty| duty.author).find(voted)
}

/// Why the caller may not agree, in words; if only a new sign-in is missing, that.
pub(crate) fn why_not(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    needs_fresh_auth: bool,
) -> String {
    if approval.state != ApprovalState::Pending {
        return format!("it is {} already: nothing is left to decide", approval.state.in_words());
    }
    if service.ledger.store().now() >= approval.expires_at {
        return "it has expired: nothing is left to decide".to_owned();
    }
    if !is_person(caller) {
        return "only people decide, in their own name".to_owned();
    }
    let own = voice_of(caller, approval.chain.tenant());
    let person = &caller.actor.principal().id;
    let speaks = |vote: &&Vote| vote.voices().any(|voice| voice == own);
    if let Some(vote) = approval.shown_votes().find(speaks) {
        return if vote.approver == *person {
            "you have decided on this already".to_owned()
        } else {
            format!("{} has decided on this already, in your place", vote.approver)
        };
    }
    if own.tenant.is_none()
        && let Some(author) = author_who_decided(service, caller, approval)
    {
        return format!("{author}, in whose place you decide, has decided on this already");
    }
    if own.tenant.is_none() && approval.authors().any(|author| author == person) {
        return "you wrote these arguments: somebody else has to decide on them".to_owned();
    }
    let directory = &service.policies().directory;
    let agent = directory.agent(approval.chain.tenant(), &approval.chain.actor.id);
    let agent = agent.filter(|_| own.tenant.is_none());
    if agent.is_some_and(|agent| agent.owner == *person) {
        return "you own the agent that asks: somebody else has to decide; you may withdraw its call"
            .to_owned();
    }
    let user = approval.chain.on_behalf_of.as_ref().filter(|_| own.tenant.is_none());
    if user.is_some_and(|user| user.id == *person) {
        return "the call is made for you: somebody else has to decide".to_owned();
    }
    let entry = directory.user(caller.tenant(), person);
    if entry.is_some_and(|entry| !entry.active) {
        return "your account is not active".to_owned();
    }
    let mut asked = approval.asked();
    // An external approver must not learn whom else it asks.
    asked.retain(|group| own.tenant.is_none() || group.external_tenant() == own.tenant);
    let groups = groups_of(service, caller);
    let is_asked = asked.iter().any(|group| group.has(own.tenant, &groups))
        || duties(service, caller)
            .iter()
            .any(|duty| asked.iter().any(|group| group.has(own.tenant, &duty.groups)));
    if !is_asked {
        let names: Vec<String> = asked.iter().map(ToString::to_string).collect();
        return format!("you are in none of the groups that are asked: {}", names.join(", "));
    }
    if needs_fresh_auth {
        let minutes = approval.requirement.fresh_auth_ms.unwrap_or(0).div_ceil(60_000);
        return format!("sign in again: this asks for a sign-in at most {minutes} minutes ago");
    }
    "the policies do not let you decide on this".to_owned()
}

/// Whether the caller is an operator: an active person in the operators' group.
pub fn is_operator(service: &Approvals, caller: &VerifiedCaller) -> bool {
    if !is_person(caller) {
        return false;
    }
    let person = &caller.actor;
    let policies = service.policies();
    let entry = policies.directory.user(person.tenant(), &person.principal().id);
    entry.is_none_or(|entry| entry.active)
        && groups_of(service, caller).contains(&service.settings.operators)
}
