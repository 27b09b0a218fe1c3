//! Edited arguments for a held call, and escalation to the next group.
//!
//! Owns the moves of an approval that change what is asked or who is asked, and the effect that moves with them. Not here: whether the new
//! arguments fit the schema and the policies, which is checked before. Invariant: what the record would run, what approvers are shown and
//! what they agree to change in one commit.

use std::collections::BTreeSet;

use placet_types::{
    approval::Vote, envelope::proposal::ToolProposalEnvelope, ids::PrincipalId, narrowing::Change,
};

use super::{Ledger, LedgerError, approvals::waiting, content_of};
use crate::{
    approval::{ApprovalRecord, Edited, VoteError},
    audit::{AuditEvent, AuditKind},
    parked::ParkedCall,
    record::{EffectRecord, EffectState},
    store::{Changes, StoreError},
};

/// What replaces a held call and what its approvers were shown.
#[derive(Debug, Clone, Copy)]
pub struct Replacement<'a> {
    /// The call with the new arguments; what duplicates are matched by does not change.
    pub parked: &'a ParkedCall,
    /// What approvers are shown: the request, who has to agree, and until when.
    pub proposal: &'a ToolProposalEnvelope,
    /// How the arguments changed.
    pub change: &'a Change,
}

impl Ledger {
    /// Replaces the arguments of a held call. Where the new ones are narrower, the editor's `vote` is the first agreement to them;
    /// otherwise it only says whose they are. It never extends the time left.
    ///
    /// # Errors
    /// [`LedgerError::Vote`] when the edit does not count, [`LedgerError::EditMismatch`] when it is of another call,
    /// [`LedgerError::WrongState`] when the call was sent before under another arm, and [`LedgerError::Store`] with [`StoreError::Conflict`] when a vote came first: read the approval again.
    pub async fn edit_approval(
        &self,
        approval: &ApprovalRecord,
        replacement: Replacement<'_>,
        vote: Vote,
        mut event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let Replacement { parked, proposal, change } = replacement;
        let now = self.store.now();
        let record = self.waiting_effect(approval).await?;
        if !matches!(record.state, EffectState::PendingApproval { .. }) {
            // A last approval came first.
            return Err(LedgerError::WrongState(record.state.name()));
        }
        if record.unknown.is_some() {
            // What became of an earlier arm is found out by what is parked.
            return Err(LedgerError::WrongState("one whose call was sent before"));
        }
        check(approval, &record, replacement)?;
        check_shown(approval, replacement, &vote)?;
        let tenant = approval.chain.tenant().clone();
        let (parked_bytes, parked_digest) = content_of(parked)?;
        let (proposal_bytes, proposal_digest) = content_of(proposal)?;
        let edit = Edited {
            request_digest: proposal.evidence.request_digest,
            proposal: proposal_digest,
            from_parked: record.parked,
            requirement: proposal.requirement.clone(),
            change: change.clone(),
        };
        // The proposal shows the last editor's reason alone; the audit keeps that of each edit.
        let instead = vote.stands_for.as_ref().map(|colleague| format!(", for {colleague}"));
        let (how, instead) = (noted(change), instead.unwrap_or_default());
        let note = format!("{how}{instead}{}; why: {}", vote.with_token(), vote.reason);
        let vote = Vote { shown_digest: proposal_digest, ..vote };
        let mut next = approval.edited(edit, vote, now)?;
        next.bundle_digest = proposal.evidence.bundle_digest;
        // `next.taint` stays what approvers were told: the editor has not seen later taint either. The next approvers see it in the
        // evidence, and at redemption agreements that were given without it do not count.
        next.expires_at = approval.expires_at.min(proposal.expires_at);
        if next.expires_at <= now {
            return Err(VoteError::Late { state: "expired" }.into());
        }
        let mut moved = record.moved(waiting(&next)?, now).map_err(StoreError::from)?;
        moved.parked = parked_digest;
        event.kind = AuditKind::Edited;
        event.note = Some(note);
        event.approval_id = Some(next.approval_id.clone());
        for (name, digest) in [
            ("request", next.request_digest),
            ("request_before", approval.request_digest),
            ("proposal", next.proposal),
            ("proposal_before", approval.proposal),
        ] {
            event.digests.insert(name.to_owned(), digest);
        }
        let mut changes = Changes::completing(event);
        changes.content = vec![(tenant.clone(), parked_bytes), (tenant, proposal_bytes)];
        changes.put(&moved);
        changes.approvals.push(next.clone());
        self.store.commit(changes).await?;
        Ok(next)
    }

    /// Asks the next group, once that is due; earlier agreements of its members count from now on.
    ///
    /// # Errors
    /// [`LedgerError::Vote`] when none is due or it is not pending; [`LedgerError::Store`] with [`StoreError::Conflict`] when another move
    /// was faster.
    pub async fn escalate_approval(
        &self,
        approval: &ApprovalRecord,
        mut event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let next = approval.escalate(self.store.now())?;
        event.kind = AuditKind::Escalated;
        event.approval_id = Some(next.approval_id.clone());
        self.keep_moved(next, event).await
    }
}

/// Checks that the new call is the held one except for its arguments.
fn check(
    approval: &ApprovalRecord,
    record: &EffectRecord,
    Replacement { parked, proposal, .. }: Replacement<'_>,
) -> Result<(), LedgerError> {
    let same = proposal.approval_id == approval.approval_id
        && parked.requested_digest == record.requested_digest
        && parked.binding.digest() == proposal.evidence.request_digest
        && parked.envelope.tool_call_id == approval.call_id
        && parked.envelope.principal_chain == approval.chain
        && parked.binding.principal_chain == approval.chain
        && parked.envelope.capability_id == approval.capability
        && parked.binding.capability == approval.capability
        && parked.envelope.approval_mode_effective <= approval.mode;
    if same { Ok(()) } else { Err(LedgerError::EditMismatch) }
}

/// Checks that approvers are shown the authors and the changed masked values, and that the parked call records them.
fn check_shown(
    approval: &ApprovalRecord,
    Replacement { parked, proposal, change }: Replacement<'_>,
    vote: &Vote,
) -> Result<(), LedgerError> {
    let editors = vote.voices().map(|voice| voice.person).filter(|_| !change.narrower);
    let authors: BTreeSet<&PrincipalId> = approval.authors().chain(editors).collect();
    let earlier = approval.edits.iter().flat_map(|edit| &edit.masked);
    let mut masked = earlier.chain(&change.masked);
    let is_shown = proposal.evidence.edited.as_ref().is_some_and(|edited| {
        authors == edited.authors.iter().collect()
            && masked.all(|place| edited.masked.contains(place))
    });
    let mut by = approval.edits.iter().map(|edit| &edit.by).chain([&vote.approver]);
    let is_kept = parked.edited.as_ref().is_some_and(|edit| {
        by.all(|editor| edit.by.contains(editor)) && change.masked.is_subset(&edit.masked)
    });
    // A change of a masked value is never narrower: approvers could not see it.
    let may_count = !change.narrower || change.masked.is_empty();
    if is_shown && is_kept && may_count { Ok(()) } else { Err(LedgerError::EditMismatch) }
}

/// The audit note of an edit.
fn noted(change: &Change) -> &'static str {
    match (change.narrower, change.masked.is_empty()) {
        (true, _) => "narrower, which counts as the editor's approval",
        (false, true) => "not narrower: the editor does not decide",
        (false, false) => "masked values changed: the editor does not decide",
    }
}
