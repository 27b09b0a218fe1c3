//! Retries: how a call is sent again, and with what.
//!
//! Owns the way back to the gate, and what is kept of a call whose earlier attempt is recorded; [`crate::lifecycle::transitions`] says when
//! that is safe. Invariant I1: a keyed token goes out again only while its target still knows it, which is checked before each step and
//! before the first byte.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::time::Instant;

use placet_ledger::{
    ledger::{Ledger, LedgerError},
    parked::{ParkedCall, ParkedEdit},
    record::{EffectRecord, EffectState},
};
use placet_policy::permit::Permit;
use placet_types::{
    binding::RequestBinding, envelope::call::AuthRef, error::Refusal, ids::RecordId,
    json::canonical_digest,
};

use crate::{
    call::{self, Brokered, Call, Resumed},
    context::Context,
    outcome::settlement_retry,
    responder::Responder,
    stages::parked::{envelope_of, parked_of},
};

/// How often a call is retried where its contract makes that safe.
const RETRIES_MAX: u32 = 2;
/// The pause before a retry, in milliseconds; doubles with each.
const RETRY_PAUSE_MS: u64 = 50;

/// The deadline for a call that goes out again: no later than its target forgets the token, since the commit may take long.
pub(crate) fn within_window(
    ledger: &Ledger,
    brokered: &Brokered,
    record: Option<&EffectRecord>,
    deadline: Instant,
) -> Instant {
    let attempt = record.and_then(|record| record.state.attempt());
    let Some(attempt) = attempt.filter(|_| is_repeated(brokered)) else { return deadline };
    let left_ms = u64::try_from(ledger.may_repeat_for_ms(attempt)).unwrap_or(0);
    let closes = Instant::now().checked_add(Duration::from_millis(left_ms));
    closes.map_or(deadline, |closes| deadline.min(closes))
}

/// Whether attempts and latency budget are left for a retry.
pub(crate) fn has_tries(brokered: &Brokered) -> bool {
    let due = Instant::now() + pause_before(brokered.built.retries);
    brokered.built.retries < RETRIES_MAX
        && brokered.built.deadline.is_some_and(|deadline| deadline > due)
}

/// Sends a keyed call again with the same token: through the gate, since every attempt needs a permit of its own.
pub(crate) async fn send_again(context: &Arc<Context>, call: Call<Brokered>, record: EffectRecord) {
    let Call { responder, stage: mut brokered } = call;
    match resumed_of(&context.ledger, record.clone()).await {
        Ok(resumed) => {
            brokered.built.resumed = Some(Box::new(resumed));
            repeat(context, Call { responder, stage: brokered }).await;
        }
        Err(error) => {
            context.node.noticed(&error);
            let reason = format!("it was sent, and cannot be read to be sent again: {error}");
            let answer = settlement_retry::give_up(&context.outcomes, &record, &reason).await;
            responder.finish(answer);
        }
    }
}

/// The pause before a retry.
pub(crate) fn pause_before(retries: u32) -> Duration {
    Duration::from_millis(RETRY_PAUSE_MS.saturating_mul(1_u64 << retries.min(8)))
}

/// Lets a call without an effect continue from its record, if it has one. `false` if the record does not permit another attempt.
pub(crate) async fn goes_on(
    context: &Context,
    brokered: &mut Brokered,
    record_id: Option<RecordId>,
) -> bool {
    let Some(record_id) = record_id else { return true };
    let record = context.ledger.store().effect(record_id).await.ok().flatten();
    let open = |record: &EffectRecord| matches!(record.state, EffectState::FailedRetriable { .. });
    let Some(record) = record.filter(open) else { return false };
    let resumed = resumed_of(&context.ledger, record).await.ok();
    let is_open = resumed.is_some();
    brokered.built.resumed = resumed.map(Box::new);
    is_open
}

/// Sends a call again after a pause: through the gate, since every attempt needs a permit of its own.
pub(crate) async fn repeat(context: &Context, call: Call<Brokered>) {
    let Call { responder, stage: mut brokered } = call;
    let retries = brokered.built.retries;
    tokio::time::sleep(pause_before(retries)).await;
    brokered.built.retries = retries.saturating_add(1);
    context.routes.gate(Call { responder, stage: brokered });
}

/// A client retries what failed, or what operators re-armed: if an approver edited the arguments, the approved ones are sent, whatever the
/// client sends, which then only identifies the record (decisions 12 and 21).
pub(crate) fn as_approved(stage: &mut Brokered, parked: &ParkedCall) -> Result<(), Refusal> {
    let Some(edit) = &parked.edited else { return Ok(()) };
    let args = stage.built.target.validate(&parked.envelope.args)?;
    stage.built.as_sent = Some(std::mem::replace(&mut stage.built.args, args));
    stage.built.edited = Some(edit.clone());
    digest_again(stage);
    Ok(())
}

/// The approval it failed under no longer suffices: what the client sent is decided instead. Returns whether that differs.
pub(crate) fn as_sent(stage: &mut Brokered) -> bool {
    let Some(args) = stage.built.as_sent.take() else { return false };
    stage.built.args = args;
    stage.built.edited = None;
    digest_again(stage);
    true
}

fn digest_again(stage: &mut Brokered) {
    stage.built.args_digest = canonical_digest(&Value::Object(stage.built.args.clone()));
    stage.binding.effective_args_digest = stage.built.args_digest;
    stage.request_digest = stage.binding.digest();
}

/// Whether the token was sent before.
pub(crate) fn is_repeated(brokered: &Brokered) -> bool {
    let resumed = brokered.built.resumed.as_ref();
    resumed.is_some_and(|resumed| matches!(resumed.record.state, EffectState::Dispatched(_)))
}

/// The binding, the tokens and the edit of a parked call.
fn said_in(kept: &ParkedCall) -> (RequestBinding, AuthRef, Option<ParkedEdit>) {
    (kept.binding.clone(), call::recorded_auth(kept), kept.edited.clone())
}

/// What is to be parked of the call: `None` if what is parked already says what is sent now.
pub(crate) async fn parked_again(
    ledger: &Ledger,
    responder: &Responder,
    brokered: &Brokered,
    permit: &Permit,
    record: &EffectRecord,
) -> Option<ParkedCall> {
    let kept = match (&record.state, &brokered.built.resumed) {
        (EffectState::Claimed { .. }, _) => None,
        (_, Some(resumed)) => Some(said_in(&resumed.parked)),
        // A client retries what failed; the contract may have changed.
        (_, None) => ledger.parked(record).await.ok().map(|kept| said_in(&kept)),
    };
    // A caller who came back has a new token, and the call runs with that one.
    let (built, auth) = (&brokered.built, &brokered.identity.auth_ref);
    if kept == Some((brokered.binding.clone(), auth.clone(), built.edited.clone())) {
        return None;
    }
    let mut envelope = envelope_of(responder, brokered, permit.decision());
    envelope.tool_call_id.clone_from(&record.call_id);
    Some(parked_of(responder, brokered, envelope))
}

/// What is recorded of a call that is taken up again.
pub(crate) async fn resumed_of(
    ledger: &Ledger,
    record: EffectRecord,
) -> Result<Resumed, LedgerError> {
    let approval = match record.state.approval_id() {
        Some(id) => ledger.store().approval(id).await?,
        None => None,
    };
    let parked = ledger.parked(&record).await?;
    Ok(Resumed { record, approval, parked })
}
