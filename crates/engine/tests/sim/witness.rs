//! The target of all calls, outside the process under test: it keeps a log of every effect, and misbehaves as the schedule says.
//!
//! Owns the effects. At the moment of each effect it looks at the disk: an effect without a durable intent is a violation (I2).

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use async_trait::async_trait;
use rand::{Rng as _, SeedableRng as _, rngs::StdRng};
use serde_json::{Value, json};

use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Inquiry, PrepareRequest, SessionLease},
    outcome::{AdapterError, Answer as AdapterAnswer, Outcome, Probe},
};
use placet_ledger::{dispatch::Dispatch, record::EffectState};
use placet_types::contract::{Contract, LiveTool};

use crate::{
    disk::{self, Disk},
    time::SimTime,
};

/// The tools, with the class of each.
pub(crate) const TOOLS: [(&str, &str); 5] = [
    ("look", "read_only"),
    ("note", "opaque"),
    ("send", "keyed"),
    ("book", "queryable"),
    ("erase", "opaque"),
];

/// After an attempt's deadline, how long an effect may still appear, in milliseconds.
pub(crate) const SETTLE_MS: u64 = 5_000;

/// One effect that happened.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) tool: String,
    pub(crate) token: String,
    pub(crate) what: String,
}

/// What the target knows, and how it behaves now.
#[derive(Debug)]
pub(crate) struct Witness {
    disk: Arc<Disk>,
    time: Arc<SimTime>,
    effects: Mutex<Vec<Effect>>,
    /// Effects on their way on the other side, with when they come: neither the caller's patience nor its death stops them.
    later: Mutex<Vec<(i64, Effect)>>,
    pub(crate) violations: Mutex<Vec<String>>,
    dice: Mutex<StdRng>,
    /// Out of 100 calls, so many go wrong in some way.
    trouble: Mutex<u32>,
}

/// What goes wrong with one call.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    None,
    NotExecuted,
    LostAnswer,
    EffectAfterDeadline,
    Hangs,
    Panics,
    PanicsAfterEffect,
}

impl Witness {
    pub(crate) fn new(disk: Arc<Disk>, time: Arc<SimTime>, seed: u64) -> Self {
        Self {
            disk,
            time,
            effects: Mutex::default(),
            later: Mutex::default(),
            violations: Mutex::default(),
            dice: Mutex::new(StdRng::seed_from_u64(seed)),
            trouble: Mutex::new(0),
        }
    }

    pub(crate) fn trouble(&self, percent: u32) {
        *self.trouble.lock() = percent;
    }

    /// Everything that has happened by now.
    pub(crate) fn effects(&self) -> Vec<Effect> {
        self.let_late_effects_happen();
        self.effects.lock().clone()
    }

    fn let_late_effects_happen(&self) {
        let now = self.time.now_ms();
        let mut later = self.later.lock();
        let due: Vec<Effect> =
            later.iter().filter(|(at, _)| *at <= now).map(|(_, effect)| effect.clone()).collect();
        later.retain(|(at, _)| *at > now);
        drop(later);
        for effect in due {
            self.apply(effect);
        }
    }

    /// A keyed tool applies a token once.
    fn apply(&self, effect: Effect) {
        let mut effects = self.effects.lock();
        if effect.tool != "send" || effects.iter().all(|known| known.token != effect.token) {
            effects.push(effect);
        }
    }

    fn roll(&self, below: u64) -> u64 {
        self.dice.lock().random_range(0..below)
    }

    fn next_trouble(&self) -> Trouble {
        if self.roll(100) >= u64::from(*self.trouble.lock()) {
            return Trouble::None;
        }
        match self.roll(6) {
            0 => Trouble::NotExecuted,
            1 => Trouble::LostAnswer,
            2 => Trouble::EffectAfterDeadline,
            3 => Trouble::Hangs,
            4 => Trouble::Panics,
            _ => Trouble::PanicsAfterEffect,
        }
    }

    /// The effect.
    fn act(&self, tool: &str, token: &str, what: &str) {
        if tool == "look" {
            return;
        }
        let durable = disk::records(&self.disk).into_iter().any(|record| {
            matches!(&record.state, EffectState::Dispatched(attempt) if attempt.token == token)
        });
        if !durable {
            let said = format!("I2: effect of {tool} under {token} without a durable intent");
            self.violations.lock().push(said);
        }
        self.let_late_effects_happen();
        self.apply(Effect {
            tool: tool.to_owned(),
            token: token.to_owned(),
            what: what.to_owned(),
        });
    }

    fn knows(&self, token: &str) -> Option<Effect> {
        self.effects().into_iter().find(|effect| effect.token == token)
    }
}

pub(crate) fn live_tools() -> Vec<LiveTool> {
    TOOLS
        .into_iter()
        .map(|(name, _)| LiveTool {
            name: name.to_owned(),
            title: None,
            description: format!("to {name}"),
            input_schema: schema(),
            output_schema: None,
            annotations: None,
            task_only: false,
        })
        .collect()
}

pub(crate) fn schema() -> Value {
    json!({
        "type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"],
        "additionalProperties": false
    })
}

/// What a tool answers when its effect happened.
pub(crate) fn output(tool: &str, token: &str, what: &str) -> Value {
    json!({"did": tool, "under": token, "what": what})
}

fn answer(tool: &str, token: &str, what: &str) -> AdapterAnswer {
    AdapterAnswer {
        output: output(tool, token, what),
        citations: Vec::new(),
        ..AdapterAnswer::default()
    }
}

#[derive(Debug)]
pub(crate) struct Target(pub(crate) Arc<Witness>);

#[async_trait]
impl Connector for Target {
    async fn connect(&self, _contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        Ok(Box::new(Connection(Arc::clone(&self.0))))
    }
}

#[derive(Debug)]
struct Connection(Arc<Witness>);

#[async_trait]
impl Adapter for Connection {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        tokio::time::sleep(Duration::from_millis(self.0.roll(3))).await;
        Ok(live_tools())
    }

    fn generation(&self) -> u64 {
        0
    }

    async fn prepare(&self, _approach: PrepareRequest<'_>) -> Result<SessionLease, AdapterError> {
        tokio::time::sleep(Duration::from_millis(self.0.roll(3))).await;
        Ok(SessionLease::default())
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        let witness = &self.0;
        let tool = dispatch.capability().capability().to_string();
        let token = dispatch.token().to_owned();
        let what = dispatch.args()["what"].as_str().unwrap_or_default().to_owned();
        let trouble = witness.next_trouble();
        tokio::time::sleep(Duration::from_millis(witness.roll(10))).await;
        match trouble {
            Trouble::NotExecuted => {
                let refused = AdapterError::Unavailable("connection refused".to_owned());
                return Outcome::NotExecuted(refused);
            }
            Trouble::Panics => panic!("the adapter broke before it sent anything"),
            Trouble::EffectAfterDeadline => {
                let late_ms = conditions.timeout_ms.saturating_add(witness.roll(SETTLE_MS / 2));
                let at = witness.time.now_ms().saturating_add(i64::try_from(late_ms).unwrap());
                if tool != "look" {
                    witness.later.lock().push((at, Effect { tool, token, what }));
                }
                return Outcome::Unknown("connection reset".to_owned());
            }
            Trouble::None | Trouble::LostAnswer | Trouble::Hangs | Trouble::PanicsAfterEffect => {}
        }
        witness.act(&tool, &token, &what);
        tokio::time::sleep(Duration::from_millis(witness.roll(10))).await;
        match trouble {
            Trouble::LostAnswer => Outcome::Unknown("connection reset".to_owned()),
            Trouble::Hangs => {
                let wait = conditions.timeout_ms.saturating_add(witness.roll(10_000));
                tokio::time::sleep(Duration::from_millis(wait)).await;
                Outcome::Done(answer(&tool, &token, &what))
            }
            Trouble::PanicsAfterEffect => panic!("the adapter broke after the effect"),
            Trouble::None
            | Trouble::NotExecuted
            | Trouble::EffectAfterDeadline
            | Trouble::Panics => Outcome::Done(answer(&tool, &token, &what)),
        }
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        tokio::time::sleep(Duration::from_millis(self.0.roll(20))).await;
        match self.0.knows(&inquiry.token) {
            Some(effect) => Probe::Committed(answer(&effect.tool, &effect.token, &effect.what)),
            None => Probe::NotFound,
        }
    }

    fn is_alive(&self) -> bool {
        true
    }

    async fn close(&self) {}
}

/// How often each outcome of the log's tools is there, by token.
pub(crate) fn by_token(effects: &[Effect]) -> BTreeMap<&str, Vec<&Effect>> {
    let mut map: BTreeMap<&str, Vec<&Effect>> = BTreeMap::new();
    for effect in effects {
        map.entry(&effect.token).or_default().push(effect);
    }
    map
}
