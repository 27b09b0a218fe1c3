//! The secrets that each target was given, by place.
//!
//! Owns the values that this process gave to a server or a local program: the static secrets of every contract that leads there, and minted
//! tokens for as long as they may be valid. A server may have been given one of them in another call, by another contract or for another
//! user, and echo it in this one. In memory only: what an earlier process or another node gave out is not known here, nor that two
//! addresses lead to the same server. Invariants: it is bounded, and nothing here can be printed. The values themselves are overwritten
//! when they are dropped; the matcher made from them (`scrub`) is dropped at the same time, and is freed as it is.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt,
    sync::Arc,
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use placet_adapter::scrub::Scrub;
use placet_credentials::origin_of;
use placet_identity::Secrets;
use placet_types::{
    contract::{
        Contract,
        file::{EnvValue, TransportFile},
    },
    digest::Digest,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

/// The least number of static secret values remembered for a place: those of the first reading and the newest ones.
const VALUES_MIN: usize = 64;
/// The same for each secret.
const VALUES_PER_SECRET: usize = 16;
/// How many tokens are remembered for a place; those that expire first are dropped first.
const TOKENS_MAX: usize = 2_048;
/// The least time for which a token is remembered: few say how long they are valid, and none how long they are of use.
const KEPT: Duration = Duration::from_hours(1);
/// How many new tokens are matched separately before the matcher is rebuilt for all of them.
const FRESH_MAX: usize = 64;

/// What every place was given.
#[derive(Debug)]
pub(crate) struct KnownSecrets {
    by_place: Mutex<BTreeMap<String, Arc<Given>>>,
    secrets: Arc<Secrets>,
}

impl KnownSecrets {
    /// The secrets of these contracts.
    pub(crate) fn new(contracts: &[Arc<Contract>], secrets: &Arc<Secrets>) -> Self {
        let handed = Self { by_place: Mutex::default(), secrets: Arc::clone(secrets) };
        handed.include(contracts);
        handed
    }

    /// Adds these contracts. What a place was given under others is still searched for.
    pub(crate) fn include(&self, contracts: &[Arc<Contract>]) {
        let mut by_place = self.by_place.lock();
        for contract in contracts {
            let given = by_place
                .entry(place_of(contract))
                .or_insert_with(|| Arc::new(Given::new(Arc::clone(&self.secrets))));
            given.names.lock().extend(secrets_of(contract));
        }
    }

    /// What the place that a contract leads to was given.
    pub(crate) fn to(&self, contract: &Contract) -> Option<Arc<Given>> {
        self.by_place.lock().get(&place_of(contract)).map(Arc::clone)
    }

    /// Drops tokens that have expired; call it periodically.
    pub(crate) fn sweep(&self) {
        self.by_place.lock().values().for_each(|given| given.sweep());
    }
}

/// Where a contract leads: programs are told apart by their command, whatever their arguments.
fn place_of(contract: &Contract) -> String {
    match &contract.transport {
        TransportFile::Internal { builtin, .. } => format!("builtin {builtin}"),
        TransportFile::McpStdio { command, .. } => format!("command {command}"),
        TransportFile::McpHttp { url, private_network, .. }
        | TransportFile::Rest { url, private_network }
        | TransportFile::A2a { url, private_network }
        | TransportFile::Lm { url, private_network, .. } => origin_of(url, *private_network)
            .unwrap_or_else(|_no_origin| format!("contract {}", contract.adapter)),
    }
}

/// The names of the secrets that a contract's target is given.
fn secrets_of(contract: &Contract) -> impl Iterator<Item = String> {
    let credential = contract.credential.iter().filter_map(|credential| credential.secret.as_ref());
    credential.chain(in_environment(contract)).cloned()
}

/// The names of the secrets in the environment of a contract's child process.
pub(crate) fn in_environment(contract: &Contract) -> Vec<&String> {
    match &contract.transport {
        TransportFile::McpStdio { env, .. } => env
            .values()
            .filter_map(|value| match value {
                EnvValue::Secret { secret } => Some(secret),
                EnvValue::Literal(_) => None,
            })
            .collect(),
        TransportFile::Internal { .. }
        | TransportFile::McpHttp { .. }
        | TransportFile::Rest { .. }
        | TransportFile::A2a { .. }
        | TransportFile::Lm { .. } => Vec::new(),
    }
}

/// What a place was given: a child keeps the values with which it was started, however often they are rotated afterwards.
pub(crate) struct Given {
    names: Mutex<BTreeSet<String>>,
    secrets: Arc<Secrets>,
    known: Mutex<Known>,
}

impl fmt::Debug for Given {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Given").field("names", &*self.names.lock()).finish_non_exhaustive()
    }
}

#[derive(Default)]
struct Known {
    /// Values of static secrets.
    values: Vec<SecretString>,
    tokens: HashMap<Digest, Token>,
    /// The matcher for all of them but the fresh tokens; `None` after anything else has changed.
    settled: Option<Scrub>,
    fresh: Vec<Digest>,
    /// The matcher for all of them; `None` after one was added.
    scrub: Option<Arc<Scrub>>,
}

struct Token {
    value: SecretString,
    until: Instant,
}

impl Given {
    fn new(secrets: Arc<Secrets>) -> Self {
        Self { names: Mutex::default(), secrets, known: Mutex::default() }
    }

    /// Notes which static secrets may have been given out so far. Reads no secret: what was never read was never given out.
    pub(crate) fn look(&self) {
        drop(self.looked());
    }

    fn looked(&self) -> MutexGuard<'_, Known> {
        let names = self.names.lock().clone();
        let mut known = self.known.lock();
        let values_max = VALUES_MIN.max(names.len().saturating_mul(VALUES_PER_SECRET));
        for value in names.iter().flat_map(|name| self.secrets.known(name)) {
            if known.has_value(&value) {
                continue;
            }
            if known.values.len() >= values_max {
                known.values.remove(names.len().min(values_max.saturating_sub(1)));
            }
            known.values.push(value);
            known.settled = None;
            known.scrub = None;
        }
        known
    }

    /// Notes that a token is given out, and the least time for which it is valid, where that is known.
    pub(crate) fn hand(&self, token: &SecretString, good_for: Option<Duration>) {
        let now = Instant::now();
        let until = now.checked_add(good_for.unwrap_or(KEPT).max(KEPT)).unwrap_or(now + KEPT);
        let mut known = self.looked();
        if !known.has_value(token) {
            known.take(token, now, until);
        }
    }

    /// The matcher for everything that may have been given out so far.
    pub(crate) fn scrub(&self) -> Arc<Scrub> {
        self.looked().ready(Instant::now())
    }

    fn sweep(&self) {
        self.known.lock().drop_expired(Instant::now());
    }
}

impl Known {
    fn has_value(&self, value: &SecretString) -> bool {
        self.values.iter().any(|known| known.expose_secret() == value.expose_secret())
    }

    fn take(&mut self, value: &SecretString, now: Instant, until: Instant) {
        let digest = Digest::of(value.expose_secret().as_bytes());
        if let Some(token) = self.tokens.get_mut(&digest) {
            token.until = token.until.max(until);
            return;
        }
        self.make_room(now);
        self.tokens.insert(digest, Token { value: value.clone(), until });
        self.fresh.push(digest);
        self.scrub = None;
    }

    fn ready(&mut self, now: Instant) -> Arc<Scrub> {
        if let Some(scrub) = &self.scrub {
            return Arc::clone(scrub);
        }
        let fresh_max = FRESH_MAX.max(self.tokens.len().div_ceil(8));
        let settled = match self.settled.take() {
            Some(settled) if self.fresh.len() <= fresh_max => settled,
            Some(_) | None => {
                self.drop_expired(now);
                self.fresh.clear();
                let tokens = self.tokens.values().map(|token| &token.value);
                Scrub::of(&self.values).and_tokens(tokens)
            }
        };
        let fresh = self.fresh.iter().filter_map(|digest| self.tokens.get(digest));
        let scrub = Arc::new(settled.and_tokens(fresh.map(|token| &token.value)));
        self.settled = Some(settled);
        self.scrub = Some(Arc::clone(&scrub));
        scrub
    }

    /// Where it is full, drops what has expired and, if that is not enough, the tenth that expires first.
    fn make_room(&mut self, now: Instant) {
        if self.tokens.len() < TOKENS_MAX {
            return;
        }
        self.drop_expired(now);
        if self.tokens.len() >= TOKENS_MAX {
            let mut ends: Vec<Instant> = self.tokens.values().map(|token| token.until).collect();
            ends.sort_unstable();
            self.drop_until(ends.get(TOKENS_MAX / 10).copied().unwrap_or(now));
        }
    }

    fn drop_expired(&mut self, now: Instant) {
        if self.tokens.values().any(|token| token.until <= now) {
            self.drop_until(now);
        }
    }

    fn drop_until(&mut self, end: Instant) {
        self.tokens.retain(|_, token| token.until > end);
        self.fresh.retain(|digest| self.tokens.contains_key(digest));
        // The matchers hold the values as well.
        self.settled = None;
        self.scrub = None;
    }
}

#[cfg(test)]
mod tests;
