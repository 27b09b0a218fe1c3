//! From a permit to a dispatch.
//!
//! Owns the only path from a [`Permit`] to a [`Dispatch`], and the consumption of an approval on the way.
//! Invariant: a dispatch is returned only after the commit of its intent; every refusal comes before anything is recorded.

use serde_json::Value;

use placet_policy::permit::Permit;
use placet_types::{
    clock::Timestamp,
    contract::Dedup,
    digest::DigestBuilder,
    ids::{ApprovalId, DirectiveId},
    json::canonical_digest,
};

use super::{Ledger, LedgerError, content_of, keeping::superseded};
use crate::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditKind,
    dispatch::{Dispatch, DispatchGuard, Intent, Settlement, Subject},
    parked::ParkedCall,
    record::{Attempt, EffectRecord, EffectState, dispatch_token},
    store::{Admission, Changes, Durability, StoreError},
};

/// The safety margin at the end of a key's window, in milliseconds: for clock differences, and the way to the target.
const WINDOW_MARGIN_MS: i64 = 5_000;

impl Ledger {
    /// For how many milliseconds the token of `attempt` may still be sent again; not at all if 0 or less. A read always may; a keyed call
    /// may not if no clock can tell how long ago the first attempt was.
    pub fn may_repeat_for_ms(&self, attempt: &Attempt) -> i64 {
        match attempt.class {
            Dedup::ReadOnly => i64::MAX,
            Dedup::Keyed { window_ms } => {
                let window_ms = i64::try_from(window_ms).unwrap_or(i64::MAX);
                let open_ms = window_ms.saturating_sub(WINDOW_MARGIN_MS);
                let age_ms = self.store.age_ms(attempt.first_dispatched_at);
                age_ms.map_or(0, |age_ms| open_ms.saturating_sub(age_ms))
            }
            Dedup::Queryable { .. } | Dedup::Opaque => 0,
        }
    }

    /// Turns a permit into a dispatch of a read-only call, once its event is recorded.
    ///
    /// # Errors
    /// [`LedgerError::PermitMismatch`], and [`LedgerError::Store`] where a budget, a window or the grant is used up, or the basis of the
    /// decision has changed, before anything is recorded.
    pub async fn dispatch_read(
        &self,
        permit: Permit,
        intent: Intent,
        durability: Durability,
    ) -> Result<DispatchGuard, LedgerError> {
        check(&permit, &intent)?;
        if permit.write_class() {
            return Err(LedgerError::PermitMismatch);
        }
        let reserve = Box::new(intent.reserve.without_meters());
        let mut event = intent.audit;
        event.kind = AuditKind::ReadDispatched;
        event.directives.extend(permit.grant().cloned());
        let settled = Box::new(event.end_of_read());
        let mut changes = Changes::new(durability, Admission::New);
        changes.expect_policy = Some(permit.epoch());
        changes.expect_directives = Some(permit.directives());
        changes.spend = permit.grant().cloned();
        changes.reserve = Some(intent.reserve);
        changes.audit.push(event);
        self.store.commit(changes).await?;
        let token = DigestBuilder::new("placet.read.v1")
            .field("call", intent.call_id.as_str().as_bytes())
            .finish()
            .short();
        let dispatch = Dispatch {
            call_id: intent.call_id,
            tenant: intent.binding.principal_chain.actor.tenant_id,
            capability: intent.binding.capability,
            contract_digest: intent.binding.contract_digest,
            args: intent.args,
            token: format!("plc_read_{token}"),
            attempt: 1,
            key: None,
            deadline_at: intent.deadline_at,
        };
        let subject = Subject::Read { event: settled, reserve, durability };
        Ok(DispatchGuard { dispatch, settlement: Settlement { subject } })
    }

    /// Turns a permit into a dispatch of a recorded call, consuming its approval, or a use of its standing grant, in the same commit (T3).
    /// Sending it again for want of an answer is the same use of the grant.
    ///
    /// # Errors
    /// [`StoreError::GrantSpent`] when the grant is no longer in force or used up: approval is required.
    /// [`LedgerError`] before anything is recorded; then the adapter must not be called.
    pub async fn dispatch(
        &self,
        permit: Permit,
        intent: Intent,
        record: &EffectRecord,
        parked: Option<&ParkedCall>,
        dedup: &Dedup,
    ) -> Result<DispatchGuard, LedgerError> {
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
            && matches!(earlier.class, Dedup::Keyed { .. })
            && self.may_repeat_for_ms(earlier) <= 0
        {
            return Err(LedgerError::WrongState("dispatched too long ago to be sent again"));
        }
        let attempt = next_attempt(&permit, &intent, record, *dedup, (now, self.store.epoch()));
        let mut changes = Changes::new(Durability::Synced, Admission::New);
        let mut moved = record
            .moved(EffectState::Dispatched(attempt.clone()), now)
            .map_err(StoreError::from)?;
        if let Some(parked) = parked {
            let (bytes, digest) = content_of(parked)?;
            moved.parked = digest;
            changes.content.push((record.scope.tenant.clone(), bytes));
        }
        changes.forget_content = superseded(record, &moved);
        if let Some(approval_id) = permit.approval_id() {
            changes.approvals.push(self.consumed(approval_id, record, &permit, now).await?);
        }
        let mut event = intent.audit;
        event.kind = AuditKind::Dispatched;
        event.record_id = Some(record.record_id);
        event.approval_id = permit.approval_id().cloned();
        event.directives.extend(permit.grant().cloned());
        changes.spend = permit.grant().filter(|grant| !is_paid(record, grant)).cloned();
        changes.put(&moved);
        changes.expect_policy = Some(permit.epoch());
        changes.expect_directives = Some(permit.directives());
        // A repeated call was paid for at its first dispatch: its target executes it once.
        let is_repeated = matches!(record.state, EffectState::Dispatched(_));
        changes.reserve = (!is_repeated).then_some(intent.reserve);
        changes.audit.push(event);
        // Durable before anything may act on it (I2).
        self.store.commit(changes).await?;
        let dispatch = Dispatch {
            call_id: intent.call_id,
            tenant: intent.binding.principal_chain.actor.tenant_id,
            capability: intent.binding.capability,
            contract_digest: intent.binding.contract_digest,
            args: intent.args,
            token: attempt.token,
            attempt: attempt.number,
            key: Some(record.key.clone()),
            deadline_at: intent.deadline_at,
        };
        let subject = Subject::Effect { record: Box::new(moved) };
        Ok(DispatchGuard { dispatch, settlement: Settlement { subject } })
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
        if approval.is_consumed() && record.state.approval_id() != Some(approval_id) {
            return Err(LedgerError::WrongState("consumed"));
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

/// Whether the dispatch in flight has already used the grant.
fn is_paid(record: &EffectRecord, grant: &DirectiveId) -> bool {
    matches!(&record.state, EffectState::Dispatched(earlier) if earlier.grant.as_ref() == Some(grant))
}

/// The next attempt, at `moment` and in its epoch.
fn next_attempt(
    permit: &Permit,
    intent: &Intent,
    record: &EffectRecord,
    class: Dedup,
    moment: (Timestamp, u64),
) -> Attempt {
    let (now, epoch) = moment;
    let (first_dispatched_at, after_unknown, reserve) =
        if let EffectState::Dispatched(earlier) = &record.state {
            let mut reserve = earlier.reserve.clone();
            if let Some(reserve) = &mut reserve {
                reserve.brings.extend(&intent.reserve.brings);
            }
            (earlier.first_dispatched_at, true, reserve)
        } else {
            // The first attempt of a new arm; its findings are about itself only.
            (now, record.unknown.is_some(), Some(Box::new(intent.reserve.without_meters())))
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
        grant: permit.grant().cloned(),
        reserve,
    }
}
