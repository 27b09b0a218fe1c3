//! What became of a dispatch, and the end of an unknown outcome.
//!
//! Owns the moves out of `DISPATCHED` and `INDETERMINATE`. Invariant: the outcome is durable before anybody is told, and nothing is
//! recorded as "not executed" while an earlier attempt may have been.

use placet_types::envelope::result::ToolResultEnvelope;

use super::{Ledger, LedgerError, Outcome, content_of};
use crate::{
    audit::{AuditEvent, AuditKind},
    dispatch::{Settlement, Subject},
    record::{EffectRecord, EffectState},
    store::{Admission, Changes, Durability, EffectChange, StoreError},
};

impl Ledger {
    /// Records what became of a dispatch, durably, before anybody is told (T4 to T6).
    ///
    /// # Errors
    /// [`LedgerError`] when it could not be kept: the outcome must be treated as unknown by whoever asks.
    pub async fn settle(
        &self,
        settlement: Settlement,
        outcome: Outcome,
        result: &ToolResultEnvelope,
    ) -> Result<Option<EffectRecord>, LedgerError> {
        match settlement.subject {
            Subject::Effect(record) => self.settle_effect(*record, outcome, result).await.map(Some),
            Subject::Read(event) => {
                let mut event = *event;
                event.kind = AuditKind::ReadSettled;
                event.code = result.error.as_ref().map(|error| error.error_code);
                self.note(event, Durability::Written).await.map(|()| None)
            }
        }
    }

    /// Records the end of an unknown outcome that an operator, a probe or a late answer brought to light (T8).
    ///
    /// # Errors
    /// [`LedgerError::WrongState`] when the outcome is not unknown.
    pub async fn resolve(
        &self,
        record: &EffectRecord,
        outcome: Outcome,
        result: &ToolResultEnvelope,
        mut event: AuditEvent,
    ) -> Result<EffectRecord, LedgerError> {
        if !matches!(record.state, EffectState::Indeterminate { .. }) {
            return Err(LedgerError::WrongState(record.state.name()));
        }
        let (bytes, digest) = content_of(result)?;
        let state = match outcome {
            Outcome::Succeeded => EffectState::Succeeded { result: digest },
            Outcome::FailedFinal(code) => EffectState::FailedFinal { code, result: digest },
            Outcome::FailedRetriable(_) | Outcome::Unknown(_) => {
                return Err(LedgerError::WrongState("still unknown"));
            }
        };
        let moved = record.moved(state, self.store.now()).map_err(StoreError::from)?;
        event.kind = AuditKind::Resolved;
        event.record_id = Some(record.record_id);
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        changes.content.push((record.scope.tenant.clone(), bytes));
        changes.effects.push(EffectChange::Put(Box::new(moved.clone())));
        changes.audit.push(event);
        self.store.commit(changes).await?;
        Ok(moved)
    }

    /// Records that the outcome of a dispatch of an earlier epoch is unknown (T7, class O).
    ///
    /// # Errors
    /// [`LedgerError`] when it could not be kept.
    pub async fn give_up(
        &self,
        record: &EffectRecord,
        reason: &str,
        result: &ToolResultEnvelope,
    ) -> Result<EffectRecord, LedgerError> {
        self.settle_effect(record.clone(), Outcome::Unknown(reason.to_owned()), result).await
    }

    /// Records what a probe found out about a dispatch of an earlier epoch (T7, class Q).
    ///
    /// # Errors
    /// [`LedgerError`] when it could not be kept.
    pub async fn settle_recovered(
        &self,
        record: &EffectRecord,
        outcome: Outcome,
        result: &ToolResultEnvelope,
    ) -> Result<EffectRecord, LedgerError> {
        self.settle_effect(record.clone(), outcome, result).await
    }

    async fn settle_effect(
        &self,
        record: EffectRecord,
        outcome: Outcome,
        result: &ToolResultEnvelope,
    ) -> Result<EffectRecord, LedgerError> {
        let EffectState::Dispatched(attempt) = &record.state else {
            return Err(LedgerError::WrongState(record.state.name()));
        };
        let (bytes, digest) = content_of(result)?;
        let state = match outcome {
            Outcome::Succeeded => EffectState::Succeeded { result: digest },
            Outcome::FailedFinal(code) => EffectState::FailedFinal { code, result: digest },
            // "Nothing happened" speaks for the last attempt only.
            Outcome::FailedRetriable(_) if attempt.after_unknown => EffectState::Indeterminate {
                attempt: attempt.clone(),
                reason: "this attempt had no effect, but an earlier one may have had".to_owned(),
                result: digest,
            },
            Outcome::FailedRetriable(code) => EffectState::FailedRetriable {
                code,
                result: digest,
                approval_id: attempt.approval_id.clone(),
            },
            Outcome::Unknown(reason) => {
                EffectState::Indeterminate { attempt: attempt.clone(), reason, result: digest }
            }
        };
        let mut event = AuditEvent::new(AuditKind::Settled);
        event.tenant = Some(record.scope.tenant.clone());
        event.call_id = Some(record.call_id.clone());
        event.run_id = Some(record.run_id.clone());
        event.capability = Some(record.scope.capability.clone());
        event.record_id = Some(record.record_id);
        event.code = result.error.as_ref().map(|error| error.error_code);
        event.trace_id = Some(result.trace_id.clone());
        event.note = Some(state.name().to_owned());
        event.digests.insert("result".to_owned(), digest);
        let moved = record.moved(state, self.store.now()).map_err(StoreError::from)?;
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        changes.content.push((record.scope.tenant.clone(), bytes));
        changes.effects.push(EffectChange::Put(Box::new(moved.clone())));
        changes.audit.push(event);
        self.store.commit(changes).await?;
        Ok(moved)
    }
}
