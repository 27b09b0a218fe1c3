//! Another arm for an unknown outcome, and the end of retention.
//!
//! Owns re-arming (T9), tombstones (T10) and their end. Invariant: a key that had an effect is never free again, unless it tells its own
//! age and is refused as too old from then on.

use placet_types::{digest::Digest, ids::TenantId};

use super::{Ledger, LedgerError, settling::event_of};
use crate::{
    approval::{ApprovalRecord, ApprovalState},
    audit::{AuditEvent, AuditKind},
    directive::Directive,
    record::{EffectRecord, EffectState, Rearm},
    store::{Admission, Changes, Durability, EffectChange, StoreError},
};

impl Ledger {
    /// An operator asks for a call with an unknown outcome to be sent again under a new token (T9). With `two_people` the first request is
    /// recorded, and that of another person re-arms the record; otherwise one is enough.
    ///
    /// # Errors
    /// [`LedgerError::WrongState`] when the outcome is not unknown, [`LedgerError::SamePerson`] when the same operator asks twice.
    pub async fn rearm(
        &self,
        record: &EffectRecord,
        word: Rearm,
        two_people: bool,
        mut event: AuditEvent,
    ) -> Result<EffectRecord, LedgerError> {
        let EffectState::Indeterminate { attempt, reason, result, rearm } = &record.state else {
            return Err(LedgerError::WrongState(record.state.name()));
        };
        let state = match rearm.as_deref() {
            Some(first) if first.operator == word.operator => return Err(LedgerError::SamePerson),
            Some(first) => EffectState::Rearmed { by: vec![first.clone(), word] },
            None if two_people => EffectState::Indeterminate {
                attempt: attempt.clone(),
                reason: reason.clone(),
                result: *result,
                rearm: Some(Box::new(word)),
            },
            None => EffectState::Rearmed { by: vec![word] },
        };
        let moved = record.moved(state, self.store.now()).map_err(StoreError::from)?;
        event.kind = AuditKind::Rearmed;
        event.record_id = Some(record.record_id);
        let mut changes = Changes::completing(event);
        changes.forget_content = superseded(record, &moved);
        changes.put(&moved);
        self.store.commit(changes).await?;
        Ok(moved)
    }

    /// Reverts a re-arm that was not dispatched: the outcome is unknown as before.
    ///
    /// # Errors
    /// [`LedgerError::WrongState`] when the record is not re-armed.
    pub async fn disarm(
        &self,
        record: &EffectRecord,
        reason: &str,
    ) -> Result<EffectRecord, LedgerError> {
        if !matches!(record.state, EffectState::Rearmed { .. }) {
            return Err(LedgerError::WrongState(record.state.name()));
        }
        let rearmed = EffectState::Rearmed { by: Vec::new() };
        let unknown = record.ended_without_dispatch(rearmed);
        let moved = record.moved(unknown, self.store.now()).map_err(StoreError::from)?;
        let mut event = event_of(AuditKind::Rearmed, record);
        event.note = Some(format!("came to nothing: {reason}"));
        let mut changes = Changes::completing(event);
        changes.put(&moved);
        self.store.commit(changes).await?;
        Ok(moved)
    }

    /// Drops result, arguments and evidence of records whose retention has ended, and leaves tombstones (T10). All of `records` or none.
    ///
    /// # Errors
    /// [`LedgerError::Store`] with [`StoreError::Illegal`] when one is not settled, [`StoreError::Conflict`] when one moved.
    pub async fn bury(&self, records: &[EffectRecord]) -> Result<(), LedgerError> {
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        for record in records {
            let tombstone = EffectState::Tombstone {
                was: record.state.name().to_owned(),
                code: record.state.code(),
                settled_at: record.updated_at,
            };
            let moved = record.moved(tombstone, self.store.now()).map_err(StoreError::from)?;
            let tenant = &record.scope.tenant;
            changes.forget_content.extend(record.contents().map(|digest| (tenant.clone(), digest)));
            let approval = self.store.approval_of_call(&record.call_id).await?;
            if let Some(approval) = approval.filter(|of| of.record_id == record.record_id) {
                changes.forget_content.extend(shown(&approval));
            }
            changes.put(&moved);
            changes.audit.push(event_of(AuditKind::Buried, record));
        }
        self.store.commit(changes).await?;
        Ok(())
    }

    /// Drops the evidence of void approvals, which have no record that could be buried. All of them or none.
    ///
    /// # Errors
    /// [`LedgerError::WrongState`] when one is not void, [`LedgerError::Store`] when the store failed.
    pub async fn forget_proposals(&self, approvals: &[ApprovalRecord]) -> Result<(), LedgerError> {
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        for approval in approvals {
            if !matches!(approval.state, ApprovalState::Void { .. }) {
                return Err(LedgerError::WrongState(approval.state.name()));
            }
            changes.forget_content.extend(shown(approval));
            changes.audit.push(event_of_approval(AuditKind::Buried, approval));
        }
        self.store.commit(changes).await?;
        Ok(())
    }

    /// Drops approvals and entries of the approval service that ended longer ago than their tenant's retention. The chain still has their
    /// history. All of them or none.
    ///
    /// # Errors
    /// [`LedgerError::Store`] with [`StoreError::Conflict`] when one moved or has not ended.
    pub async fn forget_directive(
        &self,
        approvals: &[ApprovalRecord],
        entries: &[Directive],
    ) -> Result<(), LedgerError> {
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        for approval in approvals {
            changes.forget_approvals.push((approval.approval_id.clone(), approval.rev));
            changes.forget_content.extend(shown(approval));
            changes.audit.push(event_of_approval(AuditKind::Forgotten, approval));
        }
        for entry in entries {
            changes.forget_directive.push((entry.directive_id.clone(), entry.rev));
            let mut event = AuditEvent::new(AuditKind::Forgotten);
            event.tenant = Some(entry.tenant.clone());
            event.note = Some(format!("{} `{}`", entry.kind().as_str(), entry.directive_id));
            changes.audit.push(event);
        }
        self.store.commit(changes).await?;
        Ok(())
    }

    /// Drops tombstones whose keys tell their own age. All of `records` or none.
    ///
    /// # Errors
    /// [`LedgerError::Store`] with [`StoreError::Conflict`] when one is not such a tombstone.
    pub async fn forget(&self, records: &[EffectRecord]) -> Result<(), LedgerError> {
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        for record in records {
            let (record_id, rev) = (record.record_id, record.rev);
            changes.effects.push(EffectChange::Forget { record_id, rev });
            changes.audit.push(event_of(AuditKind::Forgotten, record));
        }
        self.store.commit(changes).await?;
        Ok(())
    }
}

fn event_of_approval(kind: AuditKind, approval: &ApprovalRecord) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(approval.chain.tenant().clone());
    event.approval_id = Some(approval.approval_id.clone());
    event.call_id = Some(approval.call_id.clone());
    event
}

/// The contents that a record no longer refers to after its move: unreachable, so dropped in the same commit.
pub(super) fn superseded(before: &EffectRecord, after: &EffectRecord) -> Vec<(TenantId, Digest)> {
    if before.rev == 0 {
        // A claim: none of it was stored yet.
        return Vec::new();
    }
    let kept: Vec<Digest> = after.contents().collect();
    let gone = before.contents().filter(|digest| !kept.contains(digest));
    gone.map(|digest| (before.scope.tenant.clone(), digest)).collect()
}

/// The evidence, and what was parked and shown before each edit; these contain the arguments.
fn shown(approval: &ApprovalRecord) -> impl Iterator<Item = (TenantId, Digest)> {
    let tenant = approval.chain.tenant();
    let edits = approval.edits.iter();
    let before = edits.flat_map(|edit| [edit.from_proposal, edit.from_parked]);
    before.chain([approval.proposal]).map(|digest| (tenant.clone(), digest))
}
