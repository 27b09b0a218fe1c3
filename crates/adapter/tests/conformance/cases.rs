//! The conformance check against targets that keep their contract's promises, and against each kind that does not.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll, Waker},
};

use parking_lot::Mutex;

use async_trait::async_trait;
use placet_adapter::{
    adapter::{Adapter, Conditions, Dispatch, Inquiry, SessionLease, TestDispatch, TraceHeaders},
    conformance::{self, Bench, Conformance, Observation, Report, Standing},
    outcome::{AdapterError, Answer, Outcome, Probe},
};
use placet_types::{
    clock::Timestamp,
    contract::{Contract, LiveTool, file::ContractFile},
    ids::{CapabilityId, CapabilityName, ToolCallId},
};
use serde_json::{Map, Value, json};

/// How a target behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Honest,
    /// Does it for every call, and answers the same.
    AppliesTwice,
    /// Does it once, and gives another answer to a repeated call.
    AnswersOtherwise,
    /// Treats all tokens as the same.
    OneTokenForAll,
    /// Does not know its own effects.
    SaysNotFound,
    /// Knows its effects only after several probes.
    KnowsLate,
    /// Records every token it is probed for.
    ProbeWrites,
    /// Has an effect when it is probed, and hides it in its answers.
    ProbeActs,
    /// Probes return another result than the call did.
    TellsAnother,
    /// Treats every token as known.
    SaysCommitted,
    /// Gives no usable answer.
    InvalidResponse,
    /// Does it although there is no time.
    Hasty,
    /// Does not end in time.
    Slow,
}

#[derive(Debug)]
struct Target {
    manner: Manner,
    /// Answers by token.
    known: Mutex<BTreeMap<String, u64>>,
    effects: AtomicU64,
    asked: AtomicU64,
    clock: AtomicU64,
}

impl Target {
    fn new(manner: Manner) -> Self {
        let zero = || AtomicU64::new(0);
        let known = Mutex::default();
        Self { manner, known, effects: zero(), asked: zero(), clock: zero() }
    }

    fn act(&self, token: &str) -> u64 {
        let token = if self.manner == Manner::OneTokenForAll { "all" } else { token };
        let mut known = self.known.lock();
        if let Some(number) = known.get(token).copied() {
            if self.manner == Manner::AppliesTwice {
                self.effects.fetch_add(1, Ordering::SeqCst);
            }
            return if self.manner == Manner::AnswersOtherwise {
                number.saturating_add(100)
            } else {
                number
            };
        }
        let number = self.effects.fetch_add(1, Ordering::SeqCst);
        known.insert(token.to_owned(), number);
        number
    }
}

fn answer(number: u64) -> Answer {
    Answer { output: json!({"structured": {"number": number}}), ..Answer::default() }
}

#[async_trait]
impl Adapter for Target {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        Ok(Vec::new())
    }

    fn generation(&self) -> u64 {
        0
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        if conditions.timeout_ms == 0 && self.manner != Manner::Hasty {
            return Outcome::NotExecuted(AdapterError::Unavailable("no time".to_owned()));
        }
        match dispatch.capability().capability().as_str() {
            "count" => {
                let count = self.effects.load(Ordering::SeqCst);
                Outcome::Done(Answer { output: json!({"count": count}), ..Answer::default() })
            }
            "look" => {
                if self.manner == Manner::ProbeActs {
                    self.effects.fetch_add(1, Ordering::SeqCst);
                }
                Outcome::Done(answer(7))
            }
            _ if self.manner == Manner::InvalidResponse => Outcome::Unknown("no json".to_owned()),
            _ => {
                if self.manner == Manner::Slow {
                    self.clock.fetch_add(60_000, Ordering::SeqCst);
                }
                Outcome::Done(answer(self.act(dispatch.token())))
            }
        }
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        let asked = self.asked.fetch_add(1, Ordering::SeqCst);
        let mut known = self.known.lock();
        let found = known.get(&inquiry.token).copied();
        match (self.manner, found) {
            (Manner::SaysNotFound, _) => return Probe::NotFound,
            (Manner::SaysCommitted, _) => return Probe::Committed(answer(0)),
            (Manner::InvalidResponse, _) => return Probe::Unknown,
            (Manner::KnowsLate, Some(_)) if asked < 8 => return Probe::NotFound,
            (Manner::ProbeWrites, None) => {
                known.insert(inquiry.token.clone(), 0);
            }
            (Manner::ProbeActs, None) => {
                self.effects.fetch_add(1, Ordering::SeqCst);
            }
            (Manner::TellsAnother, Some(number)) => {
                return Probe::Committed(answer(number.saturating_add(1)));
            }
            _ => {}
        }
        found.map_or(Probe::NotFound, |number| Probe::Committed(answer(number)))
    }

    fn is_alive(&self) -> bool {
        true
    }

    async fn close(&self) {}
}

struct Table<'a> {
    contract: &'a Contract,
    target: &'a Target,
    strange: u32,
}

#[async_trait]
impl Bench for Table<'_> {
    async fn dispatch(
        &mut self,
        capability: &CapabilityId,
        args: &Map<String, Value>,
        key: &str,
    ) -> Result<Dispatch, String> {
        Ok(Dispatch::for_test(TestDispatch {
            call_id: ToolCallId::new("call_1").unwrap(),
            tenant: "acme".parse().unwrap(),
            capability: capability.clone(),
            contract_digest: self.contract.digest,
            args: args.clone(),
            token: format!("plc_{key}"),
            deadline_at: Timestamp::from_ms(4_000_000_000_000),
        }))
    }

    fn conditions(&mut self, timeout_ms: u64) -> Result<Conditions, String> {
        Ok(Conditions {
            timeout_ms,
            listen_ms: 0,
            credential: None,
            seat: SessionLease::default(),
            trace: TraceHeaders::default(),
            examples: Default::default(),
            observer: None,
        })
    }

    fn strange_token(&mut self) -> String {
        self.strange = self.strange.saturating_add(1);
        format!("plc_strange_{}", self.strange)
    }

    async fn pause(&mut self, ms: u64) {
        self.target.clock.fetch_add(ms, Ordering::SeqCst);
    }

    fn elapsed_ms(&self) -> u64 {
        self.target.clock.load(Ordering::SeqCst)
    }
}

fn contract() -> Contract {
    let schema = json!({"type": "object"});
    let write = |dedup: Value| {
        json!({
            "input_schema": schema, "mode": "destructive", "effect": "write",
            "dedup": dedup,
        })
    };
    let file: ContractFile = serde_json::from_value(json!({
        "contract_version": "placet.contract.v1", "adapter": "target", "environment": "test", "tenants": ["acme"],
        "transport": {"type": "internal", "builtin": "target", "root": "."}, "protocol_version": "1",
        "capabilities": {
            "keyed": write(json!({"class": "keyed", "window_ms": 60_000})),
            "queryable": write(json!({"class": "queryable", "settle_delay_ms": 2_000})),
            "patient": write(json!({"class": "queryable", "settle_delay_ms": 600_000})),
            "opaque": write(json!({"class": "opaque"})),
            "look": {"input_schema": schema, "mode": "read_only", "effect": "none"},
            "count": {"input_schema": schema, "mode": "read_only", "effect": "none"},
        },
    }))
    .unwrap();
    Contract::from_file(file).unwrap()
}

/// Checks `tool` of a target with this manner.
fn check(tool: &str, manner: Manner, observed: bool) -> (Report, u64) {
    let (contract, target) = (contract(), Target::new(manner));
    let capability = &contract.capabilities[&tool.parse::<CapabilityName>().unwrap()];
    let observe = observed.then(|| Observation {
        tool: "count".parse().unwrap(),
        args: Map::new(),
        count: "/count".to_owned(),
    });
    let args = Map::from_iter([("amount".to_owned(), json!(1))]);
    let conformance = Conformance { args, observe };
    let mut table = Table { contract: &contract, target: &target, strange: 0 };
    let run = conformance::verify(&target, &contract, capability, &conformance, &mut table, 5_000);
    let mut run = pin!(run);
    // Nothing in it ever waits.
    let Poll::Ready(report) = run.as_mut().poll(&mut Context::from_waker(Waker::noop())) else {
        panic!("it waits");
    };
    (report, target.effects.load(Ordering::SeqCst))
}

fn standing(report: &Report, name: &str) -> Vec<Standing> {
    let found: Vec<_> =
        report.checks.iter().filter(|c| c.name == name).map(|c| c.standing).collect();
    assert!(!found.is_empty(), "no check `{name}` in {report:#?}");
    found
}

fn is_caught(tool: &str, manner: Manner, observed: bool, name: &str) {
    let (report, _) = check(tool, manner, observed);
    assert!(!report.conforms(), "{manner:?} was not caught: {report:#?}");
    assert!(standing(&report, name).contains(&Standing::Failed), "{manner:?}: {report:#?}");
}

#[test]
fn an_honest_target_of_each_class_passes_every_check() {
    for (tool, effects) in [("keyed", 2), ("queryable", 1), ("look", 0)] {
        let (report, applied) = check(tool, Manner::Honest, true);
        assert!(report.checks.len() >= 4, "{report:#?}");
        assert!(report.checks.iter().all(|c| c.standing == Standing::Passed), "{report:#?}");
        assert_eq!(
            (applied, report.class),
            (effects, if tool == "look" { "read_only" } else { tool })
        );
    }
}

#[test]
fn an_opaque_tool_is_not_called_and_the_report_says_so() {
    let (report, applied) = check("opaque", Manner::Honest, true);
    assert_eq!((report.calls, applied, report.checks.len()), (0, 0, 1));
    assert_eq!(report.checks[0].standing, Standing::NotChecked);
    assert!(report.conforms());
}

#[test]
fn what_cannot_be_seen_is_never_passed() {
    let (report, _) = check("keyed", Manner::AppliesTwice, false);
    // Without a count this lie cannot be seen, and the report does not claim otherwise.
    assert_eq!(standing(&report, "the same token twice has one effect"), [Standing::NotChecked]);
    let (report, _) = check("keyed", Manner::Honest, false);
    assert_eq!(standing(&report, "another token has another effect"), [Standing::Passed]);
}

#[test]
fn a_keyed_target_that_lies_is_caught() {
    for (manner, observed, name) in [
        (Manner::AppliesTwice, true, "the same token twice has one effect"),
        (Manner::AnswersOtherwise, false, "the same token is answered the same"),
        (Manner::OneTokenForAll, true, "another token has another effect"),
        (Manner::InvalidResponse, false, "it can be called"),
        (Manner::Hasty, false, "a call that is not sent is told as «nothing happened»"),
        (Manner::Slow, false, "it can be called"),
    ] {
        is_caught("keyed", manner, observed, name);
    }
}

#[test]
fn a_queryable_target_that_lies_is_caught() {
    for (manner, observed, name) in [
        (Manner::SaysNotFound, false, "the token of a finished call is committed"),
        (Manner::ProbeWrites, false, "a token that was never sent is not found"),
        (Manner::SaysCommitted, false, "a token that was never sent is not found"),
        (Manner::ProbeActs, true, "asking has no effect"),
        (Manner::TellsAnother, false, "the probe tells the result that the call was answered with"),
        (Manner::InvalidResponse, false, "a token that was never sent is not found"),
        (Manner::Slow, false, "it can be called"),
    ] {
        is_caught("queryable", manner, observed, name);
    }
}

#[test]
fn a_read_only_tool_with_an_effect_is_caught() {
    is_caught("look", Manner::ProbeActs, true, "calling it has no effect");
}

#[test]
fn a_target_that_knows_its_effect_within_the_settle_delay_is_no_liar() {
    let (report, _) = check("queryable", Manner::KnowsLate, true);
    assert!(report.conforms(), "{report:#?}");
    assert_eq!(standing(&report, "the token of a finished call is committed"), [Standing::Passed]);
}

#[test]
fn a_settle_delay_that_is_too_long_to_wait_for_is_not_held_against_the_target() {
    let (report, _) = check("patient", Manner::SaysNotFound, true);
    assert!(report.conforms(), "{report:#?}");
    assert_eq!(
        standing(&report, "the token of a finished call is committed"),
        [Standing::NotChecked]
    );
}
