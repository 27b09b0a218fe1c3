//! People of another tenant in the approval service: what they are shown of the calls that they are asked about.
//!
//! Owns how an approval is narrowed for an external approver, and what an external approver's decision names. Whether somebody is asked at all is Cedar's answer and
//! the engine's floor under it. Invariants: an external approver sees no person, group, vote, budget, credential or earlier call of the tenant that asks;
//! only what it asks to run, in whose name, why, and how far the external approver's own groups are. Whatever an external approver is shown is in the part whose
//! digest their decision names, or a live fact: views are made of the part, never of the approval.

use placet_identity::VerifiedCaller;
use placet_ledger::{approval::ApprovalRecord, refusal::ledger_refusal};
use placet_types::{
    approval::Vote,
    clock::Timestamp,
    digest::Digest,
    envelope::proposal::{Asking, Evidence, ExternalPart},
    error::Refusal,
    ids::TenantId,
    principal::PrincipalChain,
};

use crate::{
    outcome, presentation,
    reviewer::is_external,
    service::Approvals,
    views::{ApprovalView, GroupProgress, NextEscalation},
};

/// The part of an approval, as it stands now, that an external approver is shown.
pub(crate) fn part_of(
    approval: &ApprovalRecord,
    evidence: Option<&Evidence>,
    external: &TenantId,
) -> ExternalPart {
    let asking = Asking {
        approval_id: &approval.approval_id,
        call_id: &approval.call_id,
        chain: &approval.chain,
        capability_id: &approval.capability,
        mode: approval.mode,
        bundle_digest: approval.bundle_digest,
        requirement: &approval.requirement,
        escalated: approval.escalated,
        edits: u32::try_from(approval.edits.len()).unwrap_or(u32::MAX),
        edited_at: approval.edits.last().map(|edit| edit.at),
        asked_at: approval.created_at,
        expires_at: approval.expires_at,
        evidence,
    };
    ExternalPart::of(&asking, external)
}

/// The same, with the evidence as it is kept.
pub(crate) async fn part(
    service: &Approvals,
    external: &TenantId,
    approval: &ApprovalRecord,
) -> Result<ExternalPart, Refusal> {
    let proposal = service.ledger.proposal(approval).await;
    let proposal = proposal.map_err(|error| ledger_refusal(&error))?;
    Ok(part_of(approval, Some(&proposal.evidence), external))
}

/// What a decision of the caller has to name: the digest of what they are shown. With it that digest again, where it is not the proposal's.
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

/// An approval as the caller is shown it.
pub(crate) async fn view_for(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> ApprovalView {
    if !is_external(caller, approval) {
        let view = presentation::view_of(approval, outcome::read(service, approval).await);
        return ApprovalView { unreachable: service.is_unreachable(approval), ..view };
    }
    // What retention has deleted is listed without it, and not decided on any more.
    let proposal = service.ledger.proposal(approval).await.ok();
    let evidence = proposal.as_ref().map(|proposal| &proposal.evidence);
    view_of(part_of(approval, evidence, caller.tenant()), approval)
}

/// What lists and pages show an external approver: the part, and how it stands.
pub(crate) fn view_of(part: ExternalPart, approval: &ApprovalRecord) -> ApprovalView {
    let digest = part.digest();
    let votes = approval.votes.iter().filter_map(|vote| own_vote(vote, &part.asked_of));
    ApprovalView {
        // What became of a call or a tool over there is not theirs to know.
        state: outcome::of(approval, None).to_owned(),
        void_reason: None,
        unreachable: false,
        withdrawn: None,
        votes: votes.collect(),
        lapsed: std::collections::BTreeSet::new(),
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

/// A colleague's decision, on the part that they were shown.
fn own_vote(vote: &Vote, external: &TenantId) -> Option<Vote> {
    if vote.tenant.as_ref() != Some(external) {
        return None;
    }
    Some(Vote { shown_digest: vote.part_digest.unwrap_or(vote.shown_digest), ..vote.clone() })
}

/// When the next group of the external approver's own tenant is asked.
pub(crate) fn next_escalation(
    approval: &ApprovalRecord,
    external: &TenantId,
) -> Option<NextEscalation> {
    // Nothing is due of what is not asked any more.
    approval.escalation_due()?;
    let part = part_of(approval, None, external);
    part.next_escalation(approval.asked_since())
        .map(|(at, group): (Timestamp, _)| NextEscalation { at, group: group.clone() })
}

/// How far the groups are that the caller is shown.
pub(crate) fn progress_for(
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Vec<GroupProgress> {
    let mut progress = presentation::progress_of(approval);
    if is_external(caller, approval) {
        progress.retain(|one| one.group.external_tenant() == Some(caller.tenant()));
    }
    progress
}
