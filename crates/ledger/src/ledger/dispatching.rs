//! From a permit to a dispatch.
//!
//! Owns the only path from a [`Permit`] to a [`Dispatch`], and the consumption of an approval on the way.
//! Invariant: a dispatch is returned only after the commit of its intent; every refusal comes before anything is recorded.

use serde_json::Value;

use placet_policy::permit::Permit;
use placet_types::{
    clock::Timestamp, contract::Dedup, digest::DigestBuilder, ids::ApprovalId,
    json::canonical_digest,
};

use super::{Ledger, LedgerError, content_of};
use crate::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditKind,
    dispatch::{Armed, Dispatch, Intent, Settlement, Subject},
    parked::ParkedCall,
    record::{Attempt, Class, EffectRecord, EffectState, dispatch_token},
    sabotage::{Guard, removed},
    store::{Admission, Changes, Durability, EffectChange, StoreError},
};

impl Ledger {
    /// Turns a permit into a dispatch of a read-only call: once its event is recorded.
    ///
    /// # Errors
    /// [`LedgerError::PolicyMoved`] and [`LedgerError::PermitMismatch`] before anything is recorded.
    pub async fn dispatch_read(
        &self,
        permit: Permit,
        intent: Intent,
        durability: Durability,
    ) -> Result<Armed, LedgerError> {
        check(&permit, &intent)?;
        if permit.write_class() {
            return Err(LedgerError::PermitMismatch);
        }
        let mut event = intent.audit.clone();
        event.kind = AuditKind::ReadDispatched;
        let mut changes = Changes::new(durability, Admission::New);
        changes.expect_policy = Some(permit.epoch());
        changes.reserve = Some(intent.reserve.clone());
        changes.audit.push(event.clone());
        self.store.commit(changes).await?;
        let token = DigestBuilder::new("placet.read.v1")
            .field("call", intent.call_id.as_str().as_bytes())
            .finish()
            .short();
        let dispatch = Dispatch {
            call_id: intent.call_id,
            capability: intent.binding.capability,
            contract_digest: intent.binding.contract_digest,
            args: intent.args,
            token: format!("plc_read_{token}"),
            attempt: 1,
            key: None,
            deadline_at: intent.deadline_at,
        };
        Ok(Armed { dispatch, settlement: Settlement { subject: Subject::Read(Box::new(event)) } })
    }

    /// Turns a permit into a dispatch of a recorded call, consuming its approval in the same commit (T3).
    ///
    /// # Errors
    /// [`LedgerError`] before anything is recorded; the adapter must not be called then.
    #[expect(
        clippy::too_many_arguments,
        reason = "one commit needs each of them, and `self` is counted"
    )]
    pub async fn dispatch(
        &self,
        permit: Permit,
        intent: Intent,
        record: &EffectRecord,
        parked: Option<&ParkedCall>,
        dedup: &Dedup,
    ) -> Result<Armed, LedgerError> {
        check(&permit, &intent)?;
        if permit.record() != Some(record.record_id) {
            return Err(LedgerError::PermitMismatch);
        }
        if let EffectState::Approved { approval_id, .. } = &record.state
            && permit.approval_id() != Some(approval_id)
        {
            // Dispatched without it, the approval would stay open for ever.
            return Err(LedgerError::PermitMismatch);
        }
        let now = self.store.now();
        if let EffectState::Dispatched(earlier) = &record.state
            && let Class::Keyed { window_ms } = earlier.class
            && self
                .store
                .age_ms(earlier.first_dispatched_at)
                .and_then(|age_ms| u64::try_from(age_ms).ok())
                .is_none_or(|age_ms| age_ms >= window_ms)
        {
            return Err(LedgerError::WrongState("dispatched too long ago to be sent again"));
        }
        let attempt =
            next_attempt(&permit, &intent, record, Class::from(dedup), (now, self.store.epoch()));
        let mut changes = Changes::new(Durability::Synced, Admission::New);
        let mut moved = record
            .moved(EffectState::Dispatched(attempt.clone()), now)
            .map_err(StoreError::from)?;
        if let Some(parked) = parked {
            let (bytes, digest) = content_of(parked)?;
            moved.parked = digest;
            changes.content.push((record.scope.tenant.clone(), bytes));
        }
        if let Some(approval_id) = permit.approval_id() {
            changes.approvals.push(self.consumed(approval_id, record, &permit, now).await?);
        }
        let mut event = intent.audit;
        event.kind = AuditKind::Dispatched;
        event.record_id = Some(record.record_id);
        event.approval_id = permit.approval_id().cloned();
        changes.effects.push(EffectChange::Put(Box::new(moved.clone())));
        changes.expect_policy = Some(permit.epoch());
        changes.reserve = Some(intent.reserve.clone());
        changes.audit.push(event);
        self.keep_intent(changes).await?;
        let dispatch = Dispatch {
            call_id: intent.call_id,
            capability: intent.binding.capability,
            contract_digest: intent.binding.contract_digest,
            args: intent.args,
            token: attempt.token,
            attempt: attempt.number,
            key: Some(record.key.clone()),
            deadline_at: intent.deadline_at,
        };
        let subject = Subject::Effect { record: Box::new(moved), reserve: intent.reserve };
        Ok(Armed { dispatch, settlement: Settlement { subject } })
    }

    /// Keeps an intent, durably: nothing may act upon it before (I2).
    async fn keep_intent(&self, mut changes: Changes) -> Result<(), LedgerError> {
        if removed(Guard::PolicyEpochUnchecked) {
            changes.expect_policy = None;
        }
        if removed(Guard::ApprovalOutsideTransaction) && !changes.approvals.is_empty() {
            let mut apart = Changes::new(Durability::Synced, Admission::New);
            apart.approvals = std::mem::take(&mut changes.approvals);
            self.store.commit(apart).await?;
        }
        #[cfg(feature = "sabotage")]
        if removed(Guard::DispatchNotDurable) {
            crate::sabotage::hold_back(changes);
            return Ok(());
        }
        self.store.commit(changes).await?;
        Ok(())
    }

    async fn consumed(
        &self,
        approval_id: &ApprovalId,
        record: &EffectRecord,
        permit: &Permit,
        now: Timestamp,
    ) -> Result<ApprovalRecord, LedgerError> {
        let approval =
            self.store.approval(approval_id).await?.ok_or(LedgerError::WrongState("absent"))?;
        if now >= approval.expires_at {
            return Err(LedgerError::WrongState("expired"));
        }
        let fits = approval.record_id == record.record_id
            && approval.request_digest == permit.request_digest();
        if !fits {
            return Err(LedgerError::PermitMismatch);
        }
        approval
            .moved(ApprovalState::Consumed { arm: record.arm, at: now })
            .ok_or(LedgerError::WrongState(approval.state.name()))
    }
}

/// Whether the permit is for exactly this call. Its policy epoch is compared inside the commit.
fn check(permit: &Permit, intent: &Intent) -> Result<(), LedgerError> {
    let args_digest = canonical_digest(&Value::Object(intent.args.clone()));
    let exact = permit.request_digest() == intent.binding.digest()
        && intent.binding.effective_args_digest == args_digest;
    if exact { Ok(()) } else { Err(LedgerError::PermitMismatch) }
}

/// The next call of the adapter, at `moment` and in its epoch.
fn next_attempt(
    permit: &Permit,
    intent: &Intent,
    record: &EffectRecord,
    class: Class,
    moment: (Timestamp, u64),
) -> Attempt {
    let (now, epoch) = moment;
    let (first_dispatched_at, after_unknown) =
        if let EffectState::Dispatched(earlier) = &record.state {
            (earlier.first_dispatched_at, true)
        } else {
            // Under a new arm an attempt is the first, and what it finds out speaks for itself only.
            (now, record.unknown.is_some())
        };
    Attempt {
        number: record.attempts.saturating_add(1),
        token: dispatch_token(&record.record_id, record.arm),
        class,
        deadline_at: intent.deadline_at,
        first_dispatched_at,
        after_unknown,
        epoch,
        adopted_by: None,
        decision_id: permit.decision().id.clone(),
        bundle_digest: permit.decision().bundle_digest,
        request_digest: permit.request_digest(),
        contract_digest: intent.binding.contract_digest,
        approval_id: permit.approval_id().cloned(),
    }
}
