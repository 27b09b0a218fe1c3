//! The outcome of a dispatch, and the end of an unknown outcome.
//!
//! Owns the moves out of `DISPATCHED` and `INDETERMINATE`. Invariant: an outcome is durable before any caller is told, and nothing is
//! recorded as "not executed" while an earlier attempt may have been.

use std::collections::BTreeSet;

use placet_types::{
    contract::Dedup,
    digest::Digest,
    envelope::result::ToolResultEnvelope,
    error::{ErrorCode, Execution},
};

use super::{Ledger, LedgerError, Outcome, content_of, keeping::superseded};
use crate::{
    approval::ApprovalState,
    audit::{AuditEvent, AuditKind},
    dispatch::{Settlement, Subject},
    record::{Attempt, EffectRecord, EffectState, Resolution, is_in_its_words},
    reservation::Reservation,
    run::{RunKey, RunTaint},
    store::{Admission, Changes, Durability, StoreError},
};

impl Ledger {
    /// Records the outcome of a dispatch durably, before any caller is told (T4 to T6).
    ///
    /// # Errors
    /// [`LedgerError`] when it could not be recorded: the caller must then treat the outcome as unknown.
    pub async fn settle(
        &self,
        settlement: Settlement,
        outcome: Outcome,
        result: &ToolResultEnvelope,
    ) -> Result<Option<EffectRecord>, LedgerError> {
        match settlement.subject {
            Subject::Effect { record } => {
                self.settle_recorded(&record, outcome, None, result).await.map(Some)
            }
            Subject::Read { event, reserve, durability } => {
                let mut event = *event;
                event.code = result.error.as_ref().map(|error| error.error_code);
                self.settle_read(event, &reserve, &outcome, durability).await.map(|()| None)
            }
        }
    }

    /// Records the end of a read. If its result brings taint into the run, that is synced like a record, since it cannot be untold; so is
    /// what it returns to the run's budget if nothing happened, since another attempt takes it again. Otherwise the answer waits for it only
    /// where reads are to be durable.
    async fn settle_read(
        &self,
        mut event: AuditEvent,
        reserve: &Reservation,
        outcome: &Outcome,
        durability: Durability,
    ) -> Result<(), LedgerError> {
        let brought = reserve.brought().filter(|_| has_words(outcome));
        let refund = matches!(outcome, Outcome::FailedRetriable(_)).then(|| reserve.clone());
        let is_synced = brought.is_some() || refund.is_some();
        let durability = if is_synced { Durability::Synced } else { durability };
        let mut changes = Changes::new(durability, Admission::Completion);
        changes.refund = refund;
        bring(&mut changes, &mut event, brought);
        changes.audit.push(event);
        match durability {
            Durability::Synced => self.store.commit(changes).await.map(drop)?,
            Durability::Written => self.store.commit_later(changes).await?,
        }
        Ok(())
    }

    /// Records the outcome of an unknown call that an operator, a probe or a late answer found (T8). If it waits for an approval to be sent
    /// again, or is approved and not sent yet, the approval ends in the same commit.
    ///
    /// # Errors
    /// [`LedgerError::WrongState`] when the outcome is not unknown, or `outcome` is still unknown; [`StoreError::Illegal`] when the
    /// evidence is about another attempt, [`StoreError::Conflict`] when a vote was faster.
    pub async fn resolve(
        &self,
        record: &EffectRecord,
        outcome: Outcome,
        by: Resolution,
        result: &ToolResultEnvelope,
        mut event: AuditEvent,
    ) -> Result<EffectRecord, LedgerError> {
        let Some(attempt) = unknown_attempt(record, &outcome, &by) else {
            return Err(LedgerError::WrongState(record.state.name()));
        };
        let brought = attempt.reserve.as_ref().and_then(|reserve| reserve.brought());
        let refund = given_back(record, attempt, &by, &outcome, result);
        let (bytes, digest) = content_of(result)?;
        let resolved_by = Some(by.clone());
        let state = match outcome {
            Outcome::Succeeded => EffectState::Succeeded { result: digest, resolved_by },
            // "Nothing happened" is about the last attempt only; an operator's word is about all of them.
            Outcome::FailedFinal(_) | Outcome::FailedRetriable(_) | Outcome::Declined(_)
                if attempt.after_unknown && by.attempt().is_some() =>
            {
                return Err(LedgerError::WrongState("still unknown"));
            }
            Outcome::FailedFinal(code)
            | Outcome::FailedRetriable(code)
            | Outcome::Declined(code) => {
                EffectState::FailedFinal { code, result: digest, resolved_by }
            }
            Outcome::Unknown(_) => return Err(LedgerError::WrongState("still unknown")),
        };
        let brought = brought.filter(|_| state.has_words());
        let moved = record.moved(state, self.store.now()).map_err(StoreError::from)?;
        event.kind = AuditKind::Resolved;
        event.record_id = Some(record.record_id);
        event.code = result.error.as_ref().map(|error| error.error_code);
        event.digests.insert("result".to_owned(), digest);
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        changes.content.push((record.scope.tenant.clone(), bytes));
        changes.forget_content = superseded(record, &moved);
        changes.refund = refund;
        changes.put(&moved);
        self.bring_to_others(record, brought.as_ref(), &mut changes).await?;
        bring(&mut changes, &mut event, brought);
        changes.audit.push(event);
        self.call_off(record, &moved, &mut changes).await?;
        self.store.commit(changes).await?;
        Ok(moved)
    }

    /// The result is told to other runs than the one whose attempt brought it: the record's own run asks by the call's id, and the run of
    /// the parked call may be waiting for approval. The result's taint enters their contexts in the commit that records the outcome.
    async fn bring_to_others(
        &self,
        record: &EffectRecord,
        brought: Option<&RunTaint>,
        changes: &mut Changes,
    ) -> Result<(), LedgerError> {
        let Some(RunTaint { run, taint, .. }) = brought else { return Ok(()) };
        let mut others = BTreeSet::from([record.run_id.clone()]);
        match self.parked(record).await {
            Ok(parked) => drop(others.insert(parked.run.run_id)),
            Err(error) if error.is_transient() => return Err(error),
            // A parked call that cannot be read cannot be waited for.
            Err(_damaged) => {}
        }
        others.remove(&run.run_id);
        for run_id in others {
            let mut event = event_of(AuditKind::RunTainted, record);
            event.run_id = Some(run_id.clone());
            event.taint.clone_from(taint);
            // The scope of a key is one agent, for one user.
            let run = RunKey { run_id, ..run.clone() };
            match self.store.run(&run).await {
                Ok(Some(known)) if known.tainted(taint).is_some() => {
                    changes.taint.push(RunTaint { run, session: None, taint: taint.clone() });
                }
                Ok(_) => continue,
                // A run that is damaged decides nothing, and keeps no other run's outcome from being recorded.
                Err(StoreError::Damaged(why)) => {
                    event.note =
                        Some(format!("could not be kept in the context of the run: {why}"));
                }
                Err(error) => return Err(error.into()),
            }
            changes.audit.push(event);
        }
        Ok(())
    }

    /// Ends the approval that `before` waited for, if `moved` ended without it: it has nothing left to approve.
    async fn call_off(
        &self,
        before: &EffectRecord,
        moved: &EffectRecord,
        changes: &mut Changes,
    ) -> Result<(), LedgerError> {
        let (EffectState::PendingApproval { approval_id, .. }
        | EffectState::Approved { approval_id, .. }) = &before.state
        else {
            return Ok(());
        };
        let approval =
            self.store.approval(approval_id).await?.ok_or(LedgerError::WrongState("absent"))?;
        let reason = format!(
            "the call was sent before, and it has come to light how that ended: {}; it is not sent again",
            moved.state.name()
        );
        let mut event = event_of(AuditKind::ApprovalEnded, before);
        event.chain = Some(approval.chain.clone());
        event.approval_id = Some(approval.approval_id.clone());
        event.digests.insert("request".to_owned(), approval.request_digest);
        event.code = Some(ErrorCode::ApprovalVoid);
        event.note = Some(reason.clone());
        let ended = approval
            .moved(ApprovalState::Void { reason })
            // It has already ended, and its record moved with it since it was read.
            .ok_or(StoreError::Conflict)?;
        changes.approvals.push(ended);
        changes.audit.push(event);
        Ok(())
    }

    /// Takes over the duty to settle a dispatch whose epoch has ended (T7): of two survivors one gets it.
    ///
    /// # Errors
    /// [`LedgerError::Store`] with [`StoreError::Conflict`] when another survivor has it, or the record moved.
    pub async fn adopt(&self, record: &EffectRecord) -> Result<EffectRecord, LedgerError> {
        let EffectState::Dispatched(attempt) = &record.state else {
            return Err(LedgerError::WrongState(record.state.name()));
        };
        let adopted = Attempt { adopted_by: Some(self.store.epoch()), ..attempt.clone() };
        let moved = record
            .moved(EffectState::Dispatched(adopted), self.store.now())
            .map_err(StoreError::from)?;
        let mut event = event_of(AuditKind::Adopted, record);
        event.note = Some(format!("epoch {} is over", attempt.duty()));
        let mut changes = Changes::completing(event);
        changes.put(&moved);
        self.store.commit(changes).await?;
        Ok(moved)
    }

    /// Records the outcome of a dispatch whose settlement is gone: one of an earlier epoch (T7), or an outcome that could not be recorded
    /// at first. `by` is the probe that found it, if one did.
    ///
    /// # Errors
    /// [`LedgerError`] when it could not be recorded.
    pub async fn settle_recorded(
        &self,
        record: &EffectRecord,
        outcome: Outcome,
        by: Option<Resolution>,
        result: &ToolResultEnvelope,
    ) -> Result<EffectRecord, LedgerError> {
        let EffectState::Dispatched(attempt) = &record.state else {
            return Err(LedgerError::WrongState(record.state.name()));
        };
        let (bytes, digest) = content_of(result)?;
        let state = state_after(record, attempt, outcome, by, digest);
        let brought = attempt.reserve.as_ref().and_then(|reserve| reserve.brought());
        let brought = brought.filter(|_| state.has_words());
        let is_of_another =
            brought.as_ref().is_some_and(|brought| brought.run.run_id != record.run_id);
        let told = brought.as_ref().filter(|_| is_of_another);
        let mut event = event_of(AuditKind::Settled, record);
        event.code = result.error.as_ref().map(|error| error.error_code);
        event.trace_id = Some(result.trace_id.clone());
        event.note = Some(state.name().to_owned());
        event.digests.insert("result".to_owned(), digest);
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        if matches!(state, EffectState::FailedRetriable { .. }) {
            changes.refund = attempt.reserve.as_deref().cloned();
        }
        let moved = record.moved(state, self.store.now()).map_err(StoreError::from)?;
        changes.content.push((record.scope.tenant.clone(), bytes));
        changes.put(&moved);
        self.bring_to_others(record, told, &mut changes).await?;
        bring(&mut changes, &mut event, brought);
        changes.audit.push(event);
        self.store.commit(changes).await?;
        Ok(moved)
    }
}

/// What an unknown outcome returns to its run's budget once it is known that nothing happened. Only then: what was executed and failed is
/// paid for. An operator's word also returns the cost of an earlier arm, but only one call.
fn given_back(
    record: &EffectRecord,
    attempt: &Attempt,
    by: &Resolution,
    outcome: &Outcome,
    result: &ToolResultEnvelope,
) -> Option<Reservation> {
    let nothing_happened = match outcome {
        Outcome::FailedRetriable(_) | Outcome::Declined(_) => true,
        Outcome::FailedFinal(_) => {
            let error = result.error.as_ref();
            error.is_some_and(|error| error.execution == Execution::NotExecuted)
        }
        Outcome::Succeeded | Outcome::Unknown(_) => false,
    };
    let mut back = attempt.reserve.as_deref().filter(|_| nothing_happened)?.clone();
    let earlier = record.unknown.as_ref().map(|unknown| &unknown.attempt);
    let earlier = earlier.filter(|earlier| by.attempt().is_none() && *earlier != attempt);
    if let Some(earlier) = earlier.and_then(|earlier| earlier.reserve.as_deref())
        && earlier.run == back.run
    {
        back.cents = back.cents.saturating_add(earlier.cents);
    }
    Some(back)
}

/// Whether the result of an outcome contains words of the target: a success, a reported failure, or a refusal in its own words.
const fn has_words(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Succeeded | Outcome::FailedFinal(_) => true,
        Outcome::FailedRetriable(code) | Outcome::Declined(code) => is_in_its_words(*code),
        Outcome::Unknown(_) => false,
    }
}

/// The taint of a result enters its run's context in the commit that records the result.
fn bring(changes: &mut Changes, event: &mut AuditEvent, brought: Option<RunTaint>) {
    if let Some(brought) = brought {
        event.taint.clone_from(&brought.taint);
        changes.taint.push(brought);
    }
}

/// The state that an outcome leads to.
fn state_after(
    record: &EffectRecord,
    attempt: &Attempt,
    outcome: Outcome,
    resolved_by: Option<Resolution>,
    result: Digest,
) -> EffectState {
    let unknown = |reason: String| EffectState::Indeterminate {
        attempt: attempt.clone(),
        reason,
        result,
        rearm: None,
    };
    match outcome {
        Outcome::Succeeded => EffectState::Succeeded { result, resolved_by },
        Outcome::Unknown(reason) => unknown(reason),
        // "Nothing happened" is about the last attempt only.
        Outcome::FailedRetriable(_) | Outcome::Declined(_)
            if attempt.after_unknown
                && (attempt.class != Dedup::ReadOnly || record.unknown.is_some()) =>
        {
            unknown("this attempt had no effect, but an earlier one may have had".to_owned())
        }
        Outcome::FailedFinal(_) if record.unknown.is_some() => {
            unknown("this attempt failed, and an earlier one may have had an effect".to_owned())
        }
        Outcome::FailedFinal(code) => EffectState::FailedFinal { code, result, resolved_by },
        Outcome::FailedRetriable(code) => {
            let approval_id = attempt.kept_approval(is_in_its_words(code));
            EffectState::FailedRetriable { code, result, approval_id }
        }
        Outcome::Declined(code) => {
            EffectState::FailedRetriable { code, result, approval_id: attempt.kept_approval(true) }
        }
    }
}

/// The attempt with an unknown outcome that the evidence is about: also while another arm waits for its dispatch, and, for a success, when
/// that arm's outcome is unknown as well.
fn unknown_attempt<'a>(
    record: &'a EffectRecord,
    outcome: &Outcome,
    by: &Resolution,
) -> Option<&'a Attempt> {
    let earlier = record.unknown.as_ref().map(|unknown| &unknown.attempt);
    match &record.state {
        EffectState::Indeterminate { .. }
            if matches!(outcome, Outcome::Succeeded)
                && earlier.is_some_and(|earlier| by.attempt() == Some(earlier.number)) =>
        {
            earlier
        }
        EffectState::Indeterminate { attempt, .. } => Some(attempt),
        EffectState::Rearmed { .. }
        | EffectState::PendingApproval { .. }
        | EffectState::Approved { .. } => earlier,
        EffectState::Claimed { .. }
        | EffectState::Dispatched(_)
        | EffectState::Succeeded { .. }
        | EffectState::FailedFinal { .. }
        | EffectState::FailedRetriable { .. }
        | EffectState::Denied { .. }
        | EffectState::Tombstone { .. } => None,
    }
}

/// An event about a record.
pub(super) fn event_of(kind: AuditKind, record: &EffectRecord) -> AuditEvent {
    let mut event = AuditEvent::new(kind);
    event.tenant = Some(record.scope.tenant.clone());
    event.call_id = Some(record.call_id.clone());
    event.run_id = Some(record.run_id.clone());
    event.capability = Some(record.scope.capability.clone());
    event.record_id = Some(record.record_id);
    event
}
