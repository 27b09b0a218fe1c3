//! The views of an approval: the whole of it for people of its own tenant, their part for external approvers.
//!
//! Owns the views, how an approval is narrowed for an external approver, and what an external approver's decision names. Visibility is
//! checked before. Invariants: an external approver sees no person, group, vote, budget, credential or earlier call of the asking tenant;
//! only what it asks to run, in whose name, why, and the progress of their own groups. Whatever an external approver is shown is in the
//! part whose digest their decision names, or a live fact: views are made of the part, never of the approval.

use serde_json::Value;

use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    ledger::LedgerError,
    store::StoreError,
};
use placet_types::{
    approval::{ApproverGroup, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    envelope::proposal::{Evidence, ExternalPart, ExternalPartVersion, ToolProposalEnvelope},
    error::Refusal,
    ids::TenantId,
    json::canonical_digest,
    principal::PrincipalChain,
};

use crate::{
    outcome,
    refusals::read,
    reviewer::{is_external, is_person},
    service::Approvals,
    views::{ApprovalView, GroupProgress, NextEscalation, WithdrawalView},
};

/// The progress of each asked group, escalations included: for an external approver, only groups of their tenant.
pub(crate) fn progress_for(
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Vec<GroupProgress> {
    let ballot = approval.ballot();
    let of = |(group, wanted, escalated): (&ApproverGroup, u32, bool)| GroupProgress {
        group: group.clone(),
        wanted,
        agreed: u32::try_from(ballot.agreed_of(group)).unwrap_or(u32::MAX),
        escalated,
    };
    let requirement = &approval.requirement;
    let first = requirement.groups.iter().map(|(group, wanted)| (group, *wanted, false));
    let made = usize::try_from(approval.escalated).unwrap_or(usize::MAX);
    let escalations = requirement.escalations.iter().take(made);
    let later = escalations.map(|escalation| (&escalation.group, escalation.people, true));
    let mut progress: Vec<GroupProgress> = first.chain(later).map(of).collect();
    if is_external(caller, approval) {
        progress.retain(|one| one.group.external_tenant() == Some(caller.tenant()));
    }
    progress
}

/// The view of an approval, with its state as in [`crate::outcome`].
pub(crate) fn view_of(approval: &ApprovalRecord, state: &str) -> ApprovalView {
    let (void_reason, withdrawn) = match &approval.state {
        ApprovalState::Void { reason } => (Some(reason.clone()), None),
        ApprovalState::Withdrawn { by, reason, at } => {
            (None, Some(WithdrawalView { by: by.clone(), reason: reason.clone(), at: *at }))
        }
        ApprovalState::Pending
        | ApprovalState::Approved
        | ApprovalState::Denied
        | ApprovalState::Expired
        | ApprovalState::Consumed { .. } => (None, None),
    };
    ApprovalView {
        approval_id: approval.approval_id.clone(),
        state: state.to_owned(),
        void_reason,
        unreachable: false,
        withdrawn,
        call_id: approval.call_id.clone(),
        capability_id: approval.capability.clone(),
        principal_chain: approval.chain.clone(),
        requirement: approval.requirement.clone(),
        votes: approval.votes.clone(),
        lapsed: approval.uncounted(),
        created_at: approval.created_at,
        expires_at: approval.expires_at,
        mode: approval.mode,
        edits: u32::try_from(approval.edits.len()).unwrap_or(u32::MAX),
        escalated: approval.escalated,
        digest: approval.shown(),
    }
}

/// The part of an approval that an external approver is shown, as it stands now.
pub(crate) fn part_of(
    approval: &ApprovalRecord,
    evidence: Option<&Evidence>,
    external: &TenantId,
) -> ExternalPart {
    let preview = evidence.map_or(Value::Null, |evidence| evidence.preview.clone());
    let made = usize::try_from(approval.escalated).unwrap_or(usize::MAX);
    let made = approval.requirement.escalations.iter().take(made);
    let own = made.filter(|one| one.group.external_tenant() == Some(external)).count();
    ExternalPart {
        part_version: ExternalPartVersion::V1,
        approval_id: approval.approval_id.clone(),
        call_id: approval.call_id.clone(),
        asked_by: approval.chain.tenant().clone(),
        asked_of: external.clone(),
        requester: approval.chain.actor.clone(),
        capability_id: approval.capability.clone(),
        description: evidence.map_or_else(String::new, |evidence| evidence.description.clone()),
        mode: approval.mode,
        preview_digest: canonical_digest(&preview),
        preview,
        preview_masked: evidence
            .map(|evidence| evidence.preview_masked.clone())
            .unwrap_or_default(),
        contract_digest: evidence.map(|evidence| evidence.contract_digest),
        bundle_digest: approval.bundle_digest,
        edits: u32::try_from(approval.edits.len()).unwrap_or(u32::MAX),
        edited_at: approval.edits.last().map(|edit| edit.at),
        edited_masked: evidence
            .and_then(|evidence| evidence.edited.as_ref())
            .map(|edited| edited.masked.clone())
            .unwrap_or_default(),
        requirement: approval.requirement.part_of(external),
        escalated: u32::try_from(own).unwrap_or(u32::MAX),
        asked_at: approval.created_at,
        expires_at: approval.expires_at,
    }
}

/// The same, with the recorded evidence.
pub(crate) async fn part(
    service: &Approvals,
    external: &TenantId,
    approval: &ApprovalRecord,
) -> Result<ExternalPart, Refusal> {
    let proposal = proposal(service, approval).await?;
    Ok(part_of(approval, proposal.as_ref().map(|proposal| &proposal.evidence), external))
}

/// What approvers were shown; `None` if the approval has ended and retention has deleted it since.
pub(crate) async fn proposal(
    service: &Approvals,
    approval: &ApprovalRecord,
) -> Result<Option<ToolProposalEnvelope>, Refusal> {
    match service.ledger.proposal(approval).await {
        Err(LedgerError::Store(StoreError::ContentMissing(_))) if !approval.state.is_open() => {
            Ok(None)
        }
        found => read(found).map(Some),
    }
}

/// The digest that the caller's decision must name, which covers what they are shown. With it that digest again, if it is not the
/// proposal's.
pub(crate) async fn digest_for(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(Digest, Option<Digest>), Refusal> {
    let shown = if is_external(caller, approval) {
        part(service, caller.tenant(), approval).await?.digest()
    } else {
        approval.shown()
    };
    Ok((shown, (shown != approval.proposal).then_some(shown)))
}

/// The view of an approval for the caller.
pub(crate) async fn view_for(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> ApprovalView {
    if !is_external(caller, approval) {
        return own_view(service, caller, approval, outcome::seen(service, caller, approval).await);
    }
    // Without the proposal, which retention has deleted, it is still listed but cannot be decided.
    let proposal = service.ledger.proposal(approval).await.ok();
    let evidence = proposal.as_ref().map(|proposal| &proposal.evidence);
    view_of_part(part_of(approval, evidence, caller.tenant()), approval)
}

/// The view for a caller of the call's own tenant. Programs, the agent that asks among them, are not shown policies and the words of
/// people.
pub(crate) fn own_view(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
    state: &str,
) -> ApprovalView {
    let mut view =
        ApprovalView { unreachable: service.is_unreachable(approval), ..view_of(approval, state) };
    if !is_person(caller) {
        view.requirement.reasons.clear();
        view.withdrawn.iter_mut().for_each(|withdrawn| withdrawn.reason.clear());
        for vote in &mut view.votes {
            vote.reason.clear();
            vote.claimed.clear();
            (vote.client, vote.token_ref) = (None, None);
        }
    }
    view
}

/// The view for an external approver in lists and pages: the part, and its state.
pub(crate) fn view_of_part(part: ExternalPart, approval: &ApprovalRecord) -> ApprovalView {
    let digest = part.digest();
    let votes = approval.votes.iter().filter_map(|vote| own_vote(vote, &part.asked_of));
    let own = approval.votes.iter().filter(|vote| vote.tenant.as_ref() == Some(&part.asked_of));
    // Why one lapsed is not for them to know; that the arguments changed, the part says too.
    let superseded = |(place, vote): (usize, &Vote)| {
        (vote.choice == VoteChoice::Approve && vote.shown_digest != approval.proposal)
            .then_some(place)
    };
    ApprovalView {
        // What became of a call or a tool of another tenant is hidden from them.
        state: outcome::of(approval, None).to_owned(),
        void_reason: None,
        unreachable: false,
        withdrawn: None,
        votes: votes.collect(),
        lapsed: own.enumerate().filter_map(superseded).collect(),
        digest,
        approval_id: part.approval_id,
        call_id: part.call_id,
        capability_id: part.capability_id,
        principal_chain: PrincipalChain {
            actor: part.requester,
            on_behalf_of: None,
            via: Vec::new(),
        },
        requirement: part.requirement,
        created_at: part.asked_at,
        expires_at: part.expires_at,
        mode: part.mode,
        edits: part.edits,
        escalated: part.escalated,
    }
}

/// A colleague's vote, on the part that they were shown.
fn own_vote(vote: &Vote, external: &TenantId) -> Option<Vote> {
    if vote.tenant.as_ref() != Some(external) {
        return None;
    }
    Some(Vote { shown_digest: vote.part_digest.unwrap_or(vote.shown_digest), ..vote.clone() })
}

/// When the next group is asked: for an external approver, the next one of their own tenant.
pub(crate) fn next_escalation(
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Option<NextEscalation> {
    // Nothing is due once it is no longer pending.
    let at = approval.escalation_due()?;
    if is_external(caller, approval) {
        let part = part_of(approval, None, caller.tenant());
        let next = part.next_escalation(approval.asked_since());
        return next.map(|(at, group): (Timestamp, _)| NextEscalation { at, group: group.clone() });
    }
    let next = usize::try_from(approval.escalated).ok()?;
    let escalation = approval.requirement.escalations.get(next)?;
    Some(NextEscalation { at, group: escalation.group.clone() })
}

#[cfg(test)]
mod tests;
