//! Holding a call, counting decisions on it, and ending approvals.
//!
//! Owns every move of an approval except its consumption, which is part of dispatch, and those in `edits`. Invariant: an approval and the
//! effect that waits for it move in one commit.

use std::collections::BTreeSet;

use placet_types::{
    approval::{Requirement, Vote},
    envelope::proposal::ToolProposalEnvelope,
    error::ErrorCode,
    taint::Taint,
};

use super::{Ledger, LedgerError, content_of, keeping::superseded};
use crate::{
    approval::{APPROVAL_VERSION, ApprovalRecord, ApprovalState, Tally, VoteError},
    audit::{AuditEvent, AuditKind},
    parked::ParkedCall,
    record::{EffectRecord, EffectState},
    store::{Admission, Changes, Durability, EffectChange, StoreError},
};

impl Ledger {
    /// Parks a claimed call until it is decided (T2).
    ///
    /// # Errors
    /// [`LedgerError`] when the claim is gone or the store failed; nothing is parked then.
    pub async fn hold(
        &self,
        claimed: &EffectRecord,
        parked: &ParkedCall,
        proposal: &ToolProposalEnvelope,
        event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let tenant = claimed.scope.tenant.clone();
        let now = self.store.now();
        let (parked_bytes, parked_digest) = content_of(parked)?;
        let (proposal_bytes, proposal_digest) = content_of(proposal)?;
        let approval = ApprovalRecord {
            version: APPROVAL_VERSION,
            approval_id: proposal.approval_id.clone(),
            record_id: claimed.record_id,
            call_id: claimed.call_id.clone(),
            chain: parked.envelope.principal_chain.clone(),
            capability: parked.envelope.capability_id.clone(),
            mode: parked.envelope.approval_mode_effective,
            request_digest: proposal.evidence.request_digest,
            proposal: proposal_digest,
            bundle_digest: proposal.evidence.bundle_digest,
            requirement: proposal.requirement.clone(),
            created_at: now,
            expires_at: proposal.expires_at,
            rev: 1,
            votes: Vec::new(),
            escalated: 0,
            lapsed: BTreeSet::new(),
            reopened: 0,
            reopened_at: None,
            external_tenants: proposal.requirement.external_tenants(),
            edits: Vec::new(),
            taint: proposal.evidence.taint.clone(),
            callback: parked.callback.clone(),
            state: ApprovalState::Pending,
        };
        let pending = EffectState::PendingApproval {
            approval_id: proposal.approval_id.clone(),
            expires_at: proposal.expires_at,
        };
        let mut record = claimed.moved(pending, now).map_err(StoreError::from)?;
        record.parked = parked_digest;
        let mut changes = Changes::new(Durability::Synced, Admission::New);
        changes.content = vec![(tenant.clone(), parked_bytes), (tenant, proposal_bytes)];
        changes.forget_content = superseded(claimed, &record);
        changes.put(&record);
        changes.approvals.push(approval.clone());
        changes.audit.push(event);
        self.store.commit(changes).await?;
        Ok(approval)
    }

    /// Adds a vote; when it completes the approval, the effect moves with it.
    ///
    /// # Errors
    /// [`LedgerError::Vote`] when the vote does not count; [`LedgerError::Store`] with [`StoreError::Conflict`] when another vote
    /// came first: read the approval again.
    pub async fn vote(
        &self,
        approval: &ApprovalRecord,
        vote: Vote,
        event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        self.keep_moved(approval.cast(vote, self.store.now())?, event).await
    }

    /// Ends an approval without an effect: expired and withdrawn leave the key denied, void releases it.
    ///
    /// # Errors
    /// [`LedgerError::WrongState`] when the approval has already ended, [`LedgerError::Store`] when it moved meanwhile.
    pub async fn end_approval(
        &self,
        approval: &ApprovalRecord,
        end: ApprovalState,
        mut event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let now = self.store.now();
        let next = approval.moved(end).ok_or(LedgerError::WrongState(approval.state.name()))?;
        let record = self.waiting_effect(&next).await?;
        let change = match &next.state {
            ApprovalState::Expired | ApprovalState::Withdrawn { .. } => {
                let expired = next.state == ApprovalState::Expired;
                let denied = EffectState::Denied {
                    code: if expired {
                        ErrorCode::ApprovalExpired
                    } else {
                        ErrorCode::ApprovalWithdrawn
                    },
                    approval_id: next.approval_id.clone(),
                };
                let ended = record.ended_without_dispatch(denied);
                EffectChange::Put(Box::new(record.moved(ended, now).map_err(StoreError::from)?))
            }
            ApprovalState::Void { .. } if record.unknown.is_none() => {
                EffectChange::Remove { record_id: record.record_id, rev: record.rev }
            }
            ApprovalState::Void { .. } => {
                let claimed = EffectState::Claimed { epoch: self.store.epoch() };
                let ended = record.ended_without_dispatch(claimed);
                EffectChange::Put(Box::new(record.moved(ended, now).map_err(StoreError::from)?))
            }
            ApprovalState::Pending
            | ApprovalState::Approved
            | ApprovalState::Denied
            | ApprovalState::Consumed { .. } => {
                return Err(LedgerError::WrongState(next.state.name()));
            }
        };
        event.kind = AuditKind::ApprovalEnded;
        let mut changes = Changes::completing(event);
        if matches!(change, EffectChange::Remove { .. }) {
            let tenant = &record.scope.tenant;
            changes.forget_content.extend(record.contents().map(|digest| (tenant.clone(), digest)));
        }
        changes.effects.push(change);
        changes.approvals.push(next.clone());
        self.store.commit(changes).await?;
        Ok(next)
    }

    /// Returns a held or approved call to its approvers, because the active policies ask for something else, or its run's context has
    /// grown. The agreements at the positions `lapsed` no longer count, and none do where `taint` has more than approvers were told.
    ///
    /// # Errors
    /// [`LedgerError`] when the approval moved meanwhile.
    pub async fn reopen_approval(
        &self,
        approval: &ApprovalRecord,
        requirement: Requirement,
        lapsed: &BTreeSet<usize>,
        taint: &BTreeSet<Taint>,
        event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let next = self.back(approval, requirement, lapsed, taint)?;
        self.keep_moved(next, event).await
    }

    /// As [`Self::reopen_approval`] for a call that is not decided yet; if the votes so far satisfy the new requirement, the call is
    /// approved.
    ///
    /// # Errors
    /// [`LedgerError`] when the approval moved meanwhile.
    pub async fn recount_approval(
        &self,
        approval: &ApprovalRecord,
        requirement: Requirement,
        lapsed: &BTreeSet<usize>,
        taint: &BTreeSet<Taint>,
        event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let mut next = self.back(approval, requirement, lapsed, taint)?;
        if next.ballot().tally() == Tally::Satisfied {
            next.state = ApprovalState::Approved;
        }
        self.keep_moved(next, event).await
    }

    /// Approves a held call because the active policies no longer require approval.
    ///
    /// # Errors
    /// [`LedgerError`] when the approval moved meanwhile.
    pub async fn release_approval(
        &self,
        approval: &ApprovalRecord,
        event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let next = approval.moved(ApprovalState::Approved);
        self.keep_moved(next.ok_or(LedgerError::WrongState(approval.state.name()))?, event).await
    }

    fn back(
        &self,
        approval: &ApprovalRecord,
        requirement: Requirement,
        lapsed: &BTreeSet<usize>,
        taint: &BTreeSet<Taint>,
    ) -> Result<ApprovalRecord, LedgerError> {
        if requirement.external_tenants() != approval.external_tenants {
            return Err(VoteError::Elsewhere.into());
        }
        let mut lapsed = lapsed.clone();
        if approval.is_stale(taint) {
            lapsed.extend(approval.agreements());
        }
        let mut next = approval
            .back(requirement, &lapsed, self.store.now())
            .ok_or(LedgerError::WrongState(approval.state.name()))?;
        next.taint.extend(taint);
        Ok(next)
    }

    /// Records an approval after its move, and the effect that waits for it if that moves with it.
    pub(super) async fn keep_moved(
        &self,
        next: ApprovalRecord,
        event: AuditEvent,
    ) -> Result<ApprovalRecord, LedgerError> {
        let record = self.waiting_effect(&next).await?;
        let state = waiting(&next)?;
        let mut changes = Changes::completing(event);
        if state.name() != record.state.name() {
            let denied = matches!(state, EffectState::Denied { .. });
            let state = if denied { record.ended_without_dispatch(state) } else { state };
            changes.put(&record.moved(state, self.store.now()).map_err(StoreError::from)?);
        }
        changes.approvals.push(next.clone());
        self.store.commit(changes).await?;
        Ok(next)
    }

    pub(super) async fn waiting_effect(
        &self,
        approval: &ApprovalRecord,
    ) -> Result<EffectRecord, LedgerError> {
        let record = self
            .store
            .effect(approval.record_id)
            .await?
            .ok_or(LedgerError::WrongState("absent"))?;
        if let EffectState::PendingApproval { approval_id, .. }
        | EffectState::Approved { approval_id, .. } = &record.state
            && *approval_id == approval.approval_id
        {
            return Ok(record);
        }
        Err(LedgerError::WrongState(record.state.name()))
    }
}

/// The effect's state for an approval that is, or was until now, open.
pub(super) fn waiting(approval: &ApprovalRecord) -> Result<EffectState, LedgerError> {
    let (approval_id, expires_at) = (approval.approval_id.clone(), approval.expires_at);
    match &approval.state {
        ApprovalState::Pending => Ok(EffectState::PendingApproval { approval_id, expires_at }),
        ApprovalState::Approved => Ok(EffectState::Approved { approval_id, expires_at }),
        ApprovalState::Denied => {
            Ok(EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id })
        }
        ApprovalState::Expired
        | ApprovalState::Withdrawn { .. }
        | ApprovalState::Void { .. }
        | ApprovalState::Consumed { .. } => Err(LedgerError::WrongState(approval.state.name())),
    }
}
