//! People of another tenant at the desk: what they are shown of the calls that they are asked about.
//!
//! Owns how an approval is narrowed for a guest, and what a guest's decision names. Whether somebody is asked at all is Cedar's answer and
//! the engine's floor under it. Invariant: a guest sees no person, group, vote, budget, credential or earlier call of the tenant that asks;
//! only what it asks to run, in whose name, why, and how far the guest's own groups are.

use placet_identity::VerifiedCaller;
use placet_ledger::approval::ApprovalRecord;
use placet_types::{
    approval::{Requirement, Vote},
    digest::Digest,
    envelope::proposal::GuestPart,
    error::Refusal,
    ids::TenantId,
    principal::PrincipalChain,
};

use super::people;
use crate::{
    context::{Context, ledger_refusal},
    views::{ApprovalView, desk::GroupProgress},
};

/// Whether the caller is of another tenant than the call.
pub(crate) fn is_guest(caller: &VerifiedCaller, approval: &ApprovalRecord) -> bool {
    caller.tenant() != approval.chain.tenant()
}

/// The part of the proposal that a guest is shown.
pub(crate) async fn part(
    context: &Context,
    guest: &TenantId,
    approval: &ApprovalRecord,
) -> Result<GuestPart, Refusal> {
    let proposal = context.ledger.proposal(approval).await;
    Ok(GuestPart::of(&proposal.map_err(|error| ledger_refusal(&error))?, guest))
}

/// What a decision of the caller has to name: the digest of the proposal, or of the guest's part of it.
pub(crate) async fn digest_for(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Result<(Digest, Option<Digest>), Refusal> {
    if !is_guest(caller, approval) {
        return Ok((approval.proposal, None));
    }
    let digest = part(context, caller.tenant(), approval).await?.digest();
    Ok((digest, Some(digest)))
}

/// An approval as the caller is shown it.
pub(crate) async fn view_for(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> ApprovalView {
    let view = people::view_of(approval);
    if !is_guest(caller, approval) {
        return view;
    }
    // What retention has deleted is not decided on any more.
    let digest = digest_for(context, caller, approval).await;
    let digest = digest.map_or(approval.proposal, |(digest, _)| digest);
    narrowed(view, caller.tenant(), (approval, digest))
}

fn narrowed(
    view: ApprovalView,
    guest: &TenantId,
    (approval, digest): (&ApprovalRecord, Digest),
) -> ApprovalView {
    let made = usize::try_from(approval.escalated).unwrap_or(usize::MAX);
    let escalations = approval.requirement.escalations.iter().take(made);
    let own = escalations.filter(|one| one.group.guest_tenant() == Some(guest)).count();
    let chain = &approval.chain;
    ApprovalView {
        principal_chain: PrincipalChain { on_behalf_of: None, via: Vec::new(), ..chain.clone() },
        requirement: own_part(&view.requirement, guest),
        votes: view.votes.into_iter().filter_map(|vote| own_vote(vote, guest)).collect(),
        escalated: u32::try_from(own).unwrap_or(u32::MAX),
        // What became of a tool over there is not theirs to know.
        void_reason: None,
        digest,
        ..view
    }
}

/// A colleague's decision, on the part that they were shown.
fn own_vote(mut vote: Vote, guest: &TenantId) -> Option<Vote> {
    if vote.tenant.as_ref() != Some(guest) {
        return None;
    }
    vote.shown_digest = vote.part_digest.unwrap_or(vote.shown_digest);
    Some(vote)
}

/// What is asked of one tenant's people; the quorum is that of their own groups.
fn own_part(requirement: &Requirement, guest: &TenantId) -> Requirement {
    let mut own = requirement.clone();
    own.groups.retain(|group, _| group.guest_tenant() == Some(guest));
    own.escalations.retain(|one| one.group.guest_tenant() == Some(guest));
    own.quorum = own.groups.values().copied().max().unwrap_or(1);
    own
}

/// How far the groups are that the caller is shown.
pub(crate) fn progress_for(
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Vec<GroupProgress> {
    let mut progress = people::progress_of(approval);
    if is_guest(caller, approval) {
        progress.retain(|one| one.group.guest_tenant() == Some(caller.tenant()));
    }
    progress
}
