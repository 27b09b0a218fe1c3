//! The state of the witness: which tokens were applied, how it is to misbehave, how much it has done.
//!
//! Owns the state and rebuilding it from the log. Invariant: a token is applied twice only if it is sent twice to a tool
//! that does not honour it, or after its window.

use std::{
    collections::{HashMap, HashSet},
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use placet_testkit::moment::Moment;
use tokio::sync::Notify;

use super::{
    control::{Command, Manner},
    log::{self, Arrival, Log, Seen},
};
use crate::history::Class;

/// Everything that its connections share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) log: Log,
    window: Duration,
    effects: AtomicU64,
    exit: Notify,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    tokens: HashMap<String, Arc<Token>>,
    /// Manners by item, each for one call.
    armed: Vec<(String, Manner)>,
    /// Items that it misbehaved for.
    fired: HashSet<String>,
}

#[derive(Debug, Default)]
pub(super) struct Token {
    arrivals: AtomicU64,
    /// Held while it is being applied, so that two arrivals of a keyed token are one effect.
    pub(super) applied: tokio::sync::Mutex<Option<Applied>>,
}

#[derive(Debug, Clone)]
pub(super) struct Applied {
    pub(super) at: Moment,
    pub(super) effect: u64,
    pub(super) arrival: Arrival,
}

impl Shared {
    /// Opens the log and restores the state from it.
    pub(super) fn open(path: &Path, window_ms: u64) -> io::Result<Self> {
        let log = Log::open(path)?;
        let (mut memory, mut last) = (Memory::default(), 0_u64);
        for line in log::read(path)? {
            if let Seen::Effect { arrival, effect, .. } = line.what {
                last = last.max(effect);
                let token = Token {
                    arrivals: AtomicU64::new(arrival.arrival),
                    applied: tokio::sync::Mutex::new(Some(Applied {
                        at: line.at,
                        effect,
                        arrival: arrival.clone(),
                    })),
                };
                memory.tokens.insert(arrival.token, Arc::new(token));
            }
        }
        log.note(Seen::Booted { pid: std::process::id() });
        Ok(Self {
            log,
            window: Duration::from_millis(window_ms),
            effects: AtomicU64::new(last),
            exit: Notify::new(),
            memory: Mutex::new(memory),
        })
    }

    pub(super) fn token(&self, token: &str) -> Arc<Token> {
        Arc::clone(self.memory.lock().tokens.entry(token.to_owned()).or_default())
    }

    /// The token's entry, if it has ever arrived.
    pub(super) fn known(&self, token: &str) -> Option<Arc<Token>> {
        self.memory.lock().tokens.get(token).map(Arc::clone)
    }

    /// Counts an arrival of a token, from 1.
    pub(super) fn arrives(token: &Token) -> u64 {
        token.arrivals.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Lets the effect happen, durably, unless the tool recognises the token.
    pub(super) async fn apply(&self, arrival: &Arrival, started: Moment) -> io::Result<Applied> {
        let token = self.token(&arrival.token);
        let mut applied = token.applied.lock().await;
        if let Some(before) = applied.as_ref().filter(|before| self.honours(arrival, before)) {
            self.log.note(Seen::Repeated(arrival.clone()));
            return Ok(before.clone());
        }
        let effect = self.effects.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        let line = Seen::Effect { arrival: arrival.clone(), started, effect };
        if let Err(error) = self.log.durable(line).await {
            self.exit();
            return Err(error);
        }
        let now = Applied { at: Moment::now(), effect, arrival: arrival.clone() };
        *applied = Some(now.clone());
        Ok(now)
    }

    fn honours(&self, arrival: &Arrival, before: &Applied) -> bool {
        let age = Moment::now().us.saturating_sub(before.at.us);
        arrival.class == Class::Keyed && Duration::from_micros(age) < self.window
    }

    /// How to misbehave for a call, if at all.
    pub(super) fn manner(&self, item: &str) -> Option<Manner> {
        let mut memory = self.memory.lock();
        let at = memory.armed.iter().position(|(armed, _)| armed == item)?;
        let (item, manner) = memory.armed.remove(at);
        memory.fired.insert(item);
        Some(manner)
    }

    /// Carries out a command, and returns the answer to it.
    pub(super) fn obey(&self, command: Command) -> bool {
        let mut memory = self.memory.lock();
        match command {
            Command::Arm { item, manner } => memory.armed.push((item, manner)),
            Command::Disarm => memory.armed.clear(),
            Command::Fired { item } => return memory.fired.contains(&item),
        }
        false
    }

    /// Makes the process exit at once.
    pub(super) fn exit(&self) {
        self.exit.notify_one();
    }

    pub(super) async fn told_to_exit(&self) {
        self.exit.notified().await;
    }
}
