//! A check for authors of adapters: does the target keep its contract's promises about repeated calls?
//!
//! Owns the order of calls and probes for each class, and the verdict. Does not make a [`Dispatch`], wait or measure time: the caller
//! brings a [`Bench`], whose dispatches come from a ledger like every dispatch. Invariant: what could not be observed is
//! [`Standing::NotChecked`], never passed.

use std::fmt;

use async_trait::async_trait;
use serde_json::{Map, Value};

use placet_types::{
    contract::{Capability, Contract, Dedup},
    ids::{CapabilityId, CapabilityName},
};

use crate::{
    adapter::{Adapter, Conditions, Dispatch, Inquiry, PrepareRequest, SessionOwner},
    outcome::{Answer, Outcome, Probe, Rejection},
};

mod asking;
mod repeating;

/// How far a call may exceed its deadline, in milliseconds.
pub const GRACE_MS: u64 = 1_000;
/// The longest settle delay that a check waits out, in milliseconds.
pub const SETTLE_WAIT_MS_MAX: u64 = 120_000;

/// The input of a check.
#[derive(Debug, Clone)]
pub struct Conformance {
    /// Harmless arguments.
    pub args: Map<String, Value>,
    /// How effects are counted; absent: a repeated effect shows only in the answers.
    pub observe: Option<Observation>,
}

/// A capability that tells how many effects have been applied so far.
#[derive(Debug, Clone)]
pub struct Observation {
    /// It has `mode: read_only`.
    pub tool: CapabilityName,
    /// Its arguments.
    pub args: Map<String, Value>,
    /// The place of the number in its answer, as a JSON pointer.
    pub count: String,
}

/// What a check needs from its caller.
#[async_trait]
pub trait Bench: Send {
    /// Leave to call `capability` once: the same key gives the same token, another key another one. A call that changes nothing takes
    /// any key.
    ///
    /// # Errors
    /// Why there is none; nothing was called then.
    async fn dispatch(
        &mut self,
        capability: &CapabilityId,
        args: &Map<String, Value>,
        key: &str,
    ) -> Result<Dispatch, String>;

    /// The conditions of a call that may take `timeout_ms`.
    ///
    /// # Errors
    /// Why there is no credential.
    fn conditions(&mut self, timeout_ms: u64) -> Result<Conditions, String>;

    /// A token that was never used.
    fn strange_token(&mut self) -> String;

    /// Waits.
    async fn pause(&mut self, ms: u64);

    /// The time since some moment, in milliseconds, by the monotonic clock.
    fn elapsed_ms(&self) -> u64;
}

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It holds.
    Passed,
    /// It does not hold: the target breaks a promise of the contract.
    Failed,
    /// It could not be seen.
    NotChecked,
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "ok",
            Self::Failed => "FAILED",
            Self::NotChecked => "not checked",
        })
    }
}

/// One check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What was checked, in a sentence that is true if it holds.
    pub name: &'static str,
    /// Its result.
    pub standing: Standing,
    /// What was observed.
    pub detail: String,
}

/// The findings about one capability.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The capability.
    pub capability: CapabilityId,
    /// Its class, as its contract says.
    pub class: &'static str,
    /// How often it was called for real.
    pub calls: u32,
    /// The checks, in their order.
    pub checks: Vec<Check>,
}

impl Report {
    /// Whether nothing failed.
    pub fn conforms(&self) -> bool {
        self.checks.iter().all(|check| check.standing != Standing::Failed)
    }
}

/// Checks the promises of `capability`, by real calls with the arguments of `conformance`.
///
/// A keyed tool has three effects at most counting the broken promise, a queryable one has one, an opaque one is not called at all.
pub async fn verify(
    adapter: &dyn Adapter,
    contract: &Contract,
    capability: &Capability,
    conformance: &Conformance,
    bench: &mut dyn Bench,
    timeout_ms: u64,
) -> Report {
    let mut run = Run {
        adapter,
        contract,
        capability,
        conformance,
        bench,
        timeout_ms,
        calls: 0,
        checks: Vec::new(),
    };
    match &capability.dedup {
        Dedup::Opaque => run.note(
            "nothing is promised",
            Standing::NotChecked,
            "an opaque tool is never sent twice by itself; it was not called",
        ),
        Dedup::ReadOnly => repeating::read_only(&mut run).await,
        Dedup::Keyed { .. } => repeating::keyed(&mut run).await,
        Dedup::Queryable { settle_delay_ms } => {
            asking::queryable(&mut run, *settle_delay_ms).await;
        }
    }
    Report {
        capability: capability.id.clone(),
        class: capability.dedup.name(),
        calls: run.calls,
        checks: run.checks,
    }
}

/// A running check.
struct Run<'a> {
    adapter: &'a dyn Adapter,
    contract: &'a Contract,
    capability: &'a Capability,
    conformance: &'a Conformance,
    bench: &'a mut dyn Bench,
    timeout_ms: u64,
    calls: u32,
    checks: Vec<Check>,
}

/// A call that was answered.
struct Called {
    token: String,
    answer: Answer,
    /// When its deadline would have been, by the bench's clock.
    deadline_ms: u64,
}

impl Run<'_> {
    fn note(&mut self, name: &'static str, standing: Standing, detail: impl Into<String>) {
        self.checks.push(Check { name, standing, detail: detail.into() });
    }

    fn judge(&mut self, name: &'static str, holds: bool, detail: impl Into<String>) -> bool {
        self.note(name, if holds { Standing::Passed } else { Standing::Failed }, detail);
        holds
    }

    /// Calls the capability; returns the token and the outcome.
    async fn invoke(&mut self, key: &str, timeout_ms: u64) -> Result<(String, Outcome), String> {
        let (id, args) = (&self.capability.id, &self.conformance.args);
        let dispatch = self.bench.dispatch(id, args, key).await?;
        let token = dispatch.token().to_owned();
        let conditions = self.bench.conditions(timeout_ms)?;
        self.calls = self.calls.saturating_add(1);
        let begun = self.bench.elapsed_ms();
        let outcome = self.send(dispatch, conditions).await;
        let took = self.bench.elapsed_ms().saturating_sub(begun);
        if took > timeout_ms.saturating_add(GRACE_MS) {
            return Err(format!("a call with {timeout_ms} ms took {took} ms"));
        }
        Ok((token, outcome))
    }

    /// Prepares the call, and sends it.
    async fn send(&self, dispatch: Dispatch, mut conditions: Conditions) -> Outcome {
        let approach = PrepareRequest {
            timeout_ms: conditions.timeout_ms,
            credential: conditions.credential.as_ref(),
            owner: SessionOwner::rehearsal(),
        };
        match self.adapter.prepare(approach).await {
            Ok(seat) => conditions.seat = seat,
            Err(error) => return Outcome::NotExecuted(error),
        }
        self.adapter.invoke(dispatch, conditions).await
    }

    /// Calls it and wants it done; otherwise the check called `name` has failed.
    async fn done(&mut self, name: &'static str, key: &str) -> Option<Called> {
        let begun = self.bench.elapsed_ms();
        let why = match self.invoke(key, self.timeout_ms).await {
            Ok((token, Outcome::Done(answer))) => {
                let deadline_ms = begun.saturating_add(self.timeout_ms);
                return Some(Called { token, answer, deadline_ms });
            }
            Ok((_, other)) => not_done(&other),
            Err(why) => why,
        };
        self.note(name, Standing::Failed, why);
        None
    }

    /// A call without time must not have been executed; returns its token.
    async fn without_time(&mut self) -> Option<String> {
        const NAME: &str = "a call that is not sent is told as «nothing happened»";
        match self.invoke("without-time", 0).await {
            Ok((token, outcome)) => {
                let holds = matches!(outcome, Outcome::NotExecuted(_));
                self.judge(NAME, holds, not_done(&outcome)).then_some(token)
            }
            Err(why) => {
                self.note(NAME, Standing::Failed, why);
                None
            }
        }
    }

    /// Every earlier call kept its deadline, else [`Self::invoke`] would have failed; this one has hardly any time. Its key was used.
    async fn in_a_hurry(&mut self, key: &str) {
        const NAME: &str = "a deadline is kept";
        match self.invoke(key, 1).await {
            Ok(_) => self.note(NAME, Standing::Passed, "with 1 ms it was over in time"),
            Err(why) => self.note(NAME, Standing::Failed, why),
        }
    }

    async fn probe(&mut self, token: &str) -> Probe {
        let inquiry = Inquiry {
            capability: self.capability.id.clone(),
            token: token.to_owned(),
            timeout_ms: self.timeout_ms,
        };
        self.adapter.probe(&inquiry).await
    }

    /// The number of effects so far.
    async fn counted(&mut self, observe: &Observation) -> Result<u64, String> {
        let tool = self
            .contract
            .capabilities
            .get(&observe.tool)
            .ok_or_else(|| format!("there is no capability `{}`", observe.tool))?;
        let dispatch = self.bench.dispatch(&tool.id, &observe.args, "observe").await?;
        let conditions = self.bench.conditions(self.timeout_ms)?;
        let outcome = self.send(dispatch, conditions).await;
        let Outcome::Done(answer) = outcome else { return Err(not_done(&outcome)) };
        answer.output.pointer(&observe.count).and_then(Value::as_u64).ok_or_else(|| {
            format!("the answer of `{}` has no number at `{}`", observe.tool, observe.count)
        })
    }

    /// Checks that there are `expected` more effects than `before`.
    async fn counts(&mut self, name: &'static str, before: Option<u64>, expected: u64) {
        let (Some(before), Some(observe)) = (before, &self.conformance.observe) else {
            return self.unseen(name);
        };
        match self.counted(observe).await {
            Err(why) => self.note(name, Standing::Failed, format!("not countable: {why}")),
            Ok(now) => {
                let detail =
                    format!("counted {before} before and {now} after, expected {expected} more");
                self.judge(name, before.checked_add(expected) == Some(now), detail);
            }
        }
    }

    /// The count to compare with; an observation that fails is a finding of its own.
    async fn baseline(&mut self) -> Option<u64> {
        let observe = self.conformance.observe.as_ref()?;
        let count = self.counted(observe).await;
        count.map_err(|why| self.note("effects can be counted", Standing::Failed, why)).ok()
    }

    fn unseen(&mut self, name: &'static str) {
        self.note(name, Standing::NotChecked, "nothing counts effects: `Conformance::observe`");
    }
}

/// Describes an unexpected outcome.
fn not_done(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(_) => "it was done".to_owned(),
        Outcome::Failed(_) => {
            "the target reports that it failed: are the example arguments right?".to_owned()
        }
        Outcome::NotExecuted(error) => format!("nothing happened: {error}"),
        Outcome::Rejected(Rejection { answer, error }) => {
            format!("the target answered with {answer}: {error}")
        }
        Outcome::Unknown(why) => format!("the outcome is unknown: {why}"),
    }
}
