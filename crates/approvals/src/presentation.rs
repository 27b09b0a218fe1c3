//! An approval as it is shown to people of its own tenant.
//!
//! Owns the forms. Whether somebody may see it is asked before; what others are shown is [`crate::external`]'s.

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_types::approval::ApproverGroup;

use crate::views::{ApprovalView, GroupProgress, WithdrawalView};

/// How far each group is that is asked, those besides that were asked after a while of silence.
pub(crate) fn progress_of(approval: &ApprovalRecord) -> Vec<GroupProgress> {
    let ballot = approval.ballot();
    let agreed = |group: &ApproverGroup| u32::try_from(ballot.agreed_of(group)).unwrap_or(u32::MAX);
    let of = |(group, wanted, escalated): (&ApproverGroup, u32, bool)| GroupProgress {
        group: group.clone(),
        wanted,
        agreed: agreed(group),
        escalated,
    };
    let requirement = &approval.requirement;
    let first = requirement.groups.iter().map(|(group, wanted)| (group, *wanted, false));
    let made = usize::try_from(approval.escalated).unwrap_or(usize::MAX);
    let escalations = requirement.escalations.iter().take(made);
    let later = escalations.map(|escalation| (&escalation.group, escalation.people, true));
    first.chain(later).map(of).collect()
}

/// An approval as it is shown, in its state as [`crate::outcome`] has it.
pub(crate) fn view_of(approval: &ApprovalRecord, state: &str) -> ApprovalView {
    let (mut void_reason, mut withdrawn) = (None, None);
    match &approval.state {
        ApprovalState::Void { reason } => void_reason = Some(reason.clone()),
        ApprovalState::Withdrawn { by, reason, at } => {
            withdrawn = Some(WithdrawalView { by: by.clone(), reason: reason.clone(), at: *at });
        }
        ApprovalState::Pending
        | ApprovalState::Approved
        | ApprovalState::Denied
        | ApprovalState::Expired
        | ApprovalState::Consumed { .. } => {}
    }
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
        lapsed: approval.lapsed.clone(),
        created_at: approval.created_at,
        expires_at: approval.expires_at,
        mode: approval.mode,
        edits: u32::try_from(approval.edits.len()).unwrap_or(u32::MAX),
        escalated: approval.escalated,
        digest: approval.shown(),
    }
}
