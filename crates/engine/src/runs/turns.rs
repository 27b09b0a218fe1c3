//! The past turns of a run.
//!
//! Owns what is kept of its batches, and what their results change about it (TS-07, TS-12). Invariant: a batch that is sent again does not
//! count as another turn, and is told apart from a different one with the same id.

use std::{collections::VecDeque, sync::Arc};

use serde_json::{Map, Value};

use placet_types::{
    contract::Capability,
    digest::{Digest, DigestBuilder},
    envelope::result::{ResultStatus, ToolResultEnvelope},
    error::{ErrorCode, Refusal},
    ids::IdempotencyKey,
    json::canonical_digest,
};

use super::{
    batch::{Place, Turn},
    batch_views::{Batch, BatchDebug, BatchRecord, CallRecord, CallResult},
    exposure,
    offer::Tools,
    state::Run,
};

/// How many batches of a run are kept.
const BATCHES_MAX: usize = 100;

/// The batches of a run, oldest first.
#[derive(Debug, Clone, Default)]
pub(crate) struct Turns {
    over: VecDeque<Over>,
}

#[derive(Debug, Clone)]
struct Over {
    digest: Digest,
    record: BatchRecord,
    /// What it was checked against, in case it is sent again.
    turn: Arc<Turn>,
}

/// A batch that begins.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) turn: Arc<Turn>,
    /// Of what that iteration allows, only these tools are called, if it is over.
    pub(crate) only: Option<Tools>,
    pub(crate) iteration: u32,
    /// Whether it was sent before.
    pub(crate) repeated: bool,
}

impl Turns {
    /// The batches, oldest first.
    pub(crate) fn records(&self) -> Vec<BatchRecord> {
        self.over.iter().map(|over| over.record.clone()).collect()
    }

    fn known(&self, id: Option<&IdempotencyKey>) -> Option<&Over> {
        let id = id?;
        self.over.iter().find(|over| over.record.batch_id.as_ref() == Some(id))
    }
}

/// The digest that equal batches share.
pub(crate) fn digest_of(batch: &Batch) -> Digest {
    let calls = serde_json::to_value(&batch.calls).unwrap_or_default();
    DigestBuilder::new("placet.batch.v1")
        .field("calls", canonical_digest(&calls).as_bytes())
        .finish()
}

impl Run {
    /// Begins a batch: like the one that it repeats, or for the next turn.
    pub(crate) fn begin(&self, batch: &Batch, usable: &Tools) -> Result<Begun, Refusal> {
        let next = || {
            let offered = self.offered(usable);
            let choice = self.choice(&offered);
            let calls_max = usize::try_from(self.calls_per_batch_max).unwrap_or(usize::MAX);
            Turn { offered, choice, calls_max }
        };
        let Some(known) = self.turns.known(batch.batch_id.as_ref()) else {
            let next = next();
            let last = self.turns.over.back().map(|last| Arc::clone(&last.turn));
            let turn = last.filter(|last| last.is_like(&next)).unwrap_or_else(|| Arc::new(next));
            return Ok(Begun { turn, only: None, iteration: self.iteration, repeated: false });
        };
        if known.digest != digest_of(batch) {
            let message = "a batch of this id had other calls; send these under another id";
            return Err(Refusal::new(ErrorCode::IdempotencyConflict, message));
        }
        let last = self.turns.over.back();
        let is_last = last.is_some_and(|last| last.record.batch_id == batch.batch_id);
        let (turn, iteration) = (Arc::clone(&known.turn), known.record.iteration);
        let only = (!is_last).then(|| next().offered);
        Ok(Begun { turn, only, iteration, repeated: true })
    }

    /// Takes in the results of a batch and notes on them what they change, but not what they already changed before.
    pub(crate) fn end(
        &mut self,
        batch: &Batch,
        begun: Begun,
        places: &[Place],
        results: &mut [CallResult],
        usable: &Tools,
        debug: BatchDebug,
    ) {
        // Also if no call of the batch got as far as the ledger.
        self.request.taint.extend(batch.taint.iter().copied());
        let before =
            self.turns.known(batch.batch_id.as_ref()).map(|over| over.record.calls.clone());
        for (number, (place, result)) in (0_usize..).zip(places.iter().zip(results.iter_mut())) {
            let of =
                |tools: &Tools| place.capability.as_ref().and_then(|id| tools.get(id)).cloned();
            let capability = of(&begun.turn.offered).or_else(|| of(usable));
            let (Some(capability), None) = (capability, &result.duplicate_of) else { continue };
            let known = before.as_ref().and_then(|calls| calls.get(number));
            if known.is_none_or(|known| known.status != ResultStatus::Succeeded) {
                self.learn(&capability, place, result, usable);
            }
        }
        let calls = places.iter().zip(results.iter());
        let calls = calls.map(|(place, result)| recorded(place, result));
        let earlier = before.into_iter().flatten().map(Some).chain(std::iter::repeat(None));
        let calls = calls.zip(earlier).map(|(now, earlier)| match earlier {
            // What was executed is not made undone by a repeat that is refused here.
            Some(earlier) if now.tool_call_id.is_none() && earlier.tool_call_id.is_some() => {
                earlier
            }
            Some(_) | None => now,
        });
        let calls = calls.collect();
        let record = BatchRecord {
            batch_id: batch.batch_id.clone(),
            iteration: begun.iteration,
            calls,
            debug,
        };
        let digest = digest_of(batch);
        if begun.repeated {
            let known = |over: &&mut Over| over.record.batch_id == record.batch_id;
            if let Some(over) = self.turns.over.iter_mut().find(known) {
                over.record = record;
            }
            return;
        }
        self.iteration = self.iteration.saturating_add(1);
        self.turns.over.push_back(Over { digest, record, turn: begun.turn });
        while self.turns.over.len() > BATCHES_MAX {
            self.turns.over.pop_front();
        }
    }

    /// Applies what one result changes about the run.
    fn learn(
        &mut self,
        capability: &Capability,
        place: &Place,
        result: &mut CallResult,
        usable: &Tools,
    ) {
        let Some(envelope) = &result.result else { return };
        if envelope.status == ResultStatus::Refused {
            return;
        }
        self.used.insert(capability.id.clone());
        self.evaluation_checks.extend(capability.evaluation_checks.iter().cloned());
        if envelope.status != ResultStatus::Succeeded {
            return;
        }
        if let Some(args) = ran_with(capability, place, envelope) {
            self.history.remember(&capability.id, &capability.run_keys, &args);
        }
        result.exposure = exposure::apply(self, usable, capability, &envelope.output);
    }
}

/// The arguments that ran: as an approver edited them, or as they were sent, with their defaults.
fn ran_with(
    capability: &Capability,
    place: &Place,
    envelope: &ToolResultEnvelope,
) -> Option<Map<String, Value>> {
    let schema = capability.arguments.as_ref().ok()?;
    let sent = || schema.validate(&Value::Object(place.args.clone())).ok();
    let ran = envelope.edited_args.clone().or_else(sent)?;
    ran.as_object().cloned()
}

fn recorded(place: &Place, result: &CallResult) -> CallRecord {
    CallRecord {
        id: result.id.clone(),
        tool: result.tool.clone(),
        capability_id: place.capability.clone(),
        tool_call_id: result.result.as_ref().map(|result| result.tool_call_id.clone()),
        status: result.status,
        error_code: result.code(),
        duplicate_of: result.duplicate_of.clone(),
    }
}
