//! Reads the entries that secrets of ours are in, keeps them fresh, and returns what was leased.
//!
//! Owns when an entry is read again and when a lease is renewed: after two thirds of its life, a little before the others. Invariants: a lease
//! that cannot be renewed, or only for less and less, is replaced while the old one still holds; a failure is tried again ever more slowly,
//! and is in the log once, not each time.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use parking_lot::Mutex;

use placet_egress::EgressClient;
use secrecy::SecretString;
use serde_json::Value;
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{Instant, sleep},
};

use super::{
    Reading, VaultConfig, VaultError,
    reading::Term,
    session::{Session, Token},
    wire::{Answer, Ask, Fields, Lease, Wire},
};
use crate::{
    jitter::{backoff, less_a_tenth, two_thirds},
    secrets::{OVERLAP, Secrets, check_value},
};

/// How long giving back may take, at the end.
const CLOSING: Duration = Duration::from_secs(5);

/// Keeps the secrets that are in the vault fresh, until it is dropped.
#[derive(Debug)]
pub struct VaultKeeper {
    inner: Arc<Inner>,
    tasks: Vec<AbortHandle>,
}

#[derive(Debug)]
struct Inner {
    session: Session,
    entries: Vec<Entry>,
    refresh: Duration,
    stale: Duration,
}

#[derive(Debug)]
struct Entry {
    reading: Arc<Reading>,
    held: Mutex<Option<Held>>,
}

/// A lease of ours.
#[derive(Debug, Clone)]
struct Held {
    lease: Lease,
    generation: u64,
}

impl VaultKeeper {
    /// Reads every entry that a secret is in, once, and from then on keeps them fresh. Has to be called in a runtime.
    ///
    /// # Errors
    /// [`VaultError`] for the first entry that cannot be had; nothing goes on in the background then.
    pub async fn open(
        config: &VaultConfig,
        secrets: &Secrets,
        egress: EgressClient,
    ) -> Result<Self, VaultError> {
        let wire = Arc::new(Wire::new(config, egress)?);
        let entries = secrets.readings().map(|reading| Entry { reading, held: Mutex::default() });
        let inner = Arc::new(Inner {
            session: Session::new(wire, config.auth.clone()),
            entries: entries.collect(),
            refresh: Duration::from_millis(config.refresh_ms),
            stale: Duration::from_millis(config.stale_ms_max),
        });
        let mut keeper = Self { inner: Arc::clone(&inner), tasks: Vec::new() };
        let mut waits = Vec::new();
        for entry in &inner.entries {
            match inner.read(entry).await {
                Ok(wait) => waits.push(wait),
                Err(error) => {
                    keeper.close().await;
                    return Err(error);
                }
            }
        }
        keeper.tend(&waits);
        Ok(keeper)
    }

    /// How many entries it keeps fresh.
    #[must_use]
    pub fn entries(&self) -> usize {
        self.inner.entries.len()
    }

    /// Ends, and gives leases and a token that was ours alone back. What cannot be given back ends by itself.
    pub async fn close(self) {
        let inner = Arc::clone(&self.inner);
        drop(self);
        let closing = async {
            // With the token every lease goes that was taken with it.
            if inner.session.close().await {
                return;
            }
            for entry in &inner.entries {
                let Some(held) = entry.held().take() else { continue };
                let revoked = inner.session.ask(&Ask::Revoke { lease: &held.lease.id }).await;
                if let Err(error) = revoked {
                    tracing::debug!(path = entry.reading.path(), %error, "a lease was not given back; it ends by itself");
                }
            }
        };
        if tokio::time::timeout(CLOSING, closing).await.is_err() {
            tracing::debug!("the vault was too slow to take leases back; they end by themselves");
        }
    }

    fn tend(&mut self, waits: &[Duration]) {
        let inner = Arc::clone(&self.inner);
        self.tasks.push(tokio::spawn(async move { inner.session.tend().await }).abort_handle());
        for (at, wait) in waits.iter().enumerate() {
            let (inner, wait) = (Arc::clone(&self.inner), *wait);
            let tokens = inner.session.generations();
            let task = tokio::spawn(async move {
                if let Some(entry) = inner.entries.get(at) {
                    inner.keep(entry, wait, tokens).await;
                }
            });
            self.tasks.push(task.abort_handle());
        }
    }
}

impl Drop for VaultKeeper {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

impl Entry {
    fn held(&self) -> parking_lot::MutexGuard<'_, Option<Held>> {
        self.held.lock()
    }
}

impl Inner {
    async fn keep(&self, entry: &Entry, first: Duration, mut tokens: watch::Receiver<u64>) {
        let mut wait = first;
        let mut failures = 0_u32;
        tokens.mark_unchanged();
        loop {
            let leased = entry.held().is_some();
            tokio::select! {
                () = sleep(wait) => {}
                // A lease ends with the token that it was taken with.
                changed = tokens.changed(), if leased => {
                    if changed.is_err() {
                        return;
                    }
                }
            }
            match self.turn(entry).await {
                Ok(next) => {
                    if failures > 0 {
                        tracing::info!(
                            path = entry.reading.path(),
                            "a secret can be read from the vault again"
                        );
                    }
                    (wait, failures) = (next, 0);
                }
                Err(error) => {
                    if failures == 0 {
                        tracing::error!(path = entry.reading.path(), %error, "a secret cannot be read from the vault");
                    }
                    failures = failures.saturating_add(1);
                    if error.takes_back() {
                        entry.held().take();
                    }
                    entry.reading.fail(error);
                    wait = backoff(failures);
                }
            }
        }
    }

    /// Renews what is leased, or reads the entry again; says when to do so next.
    async fn turn(&self, entry: &Entry) -> Result<Duration, VaultError> {
        let generation = *self.session.generations().borrow();
        let held = entry.held().clone();
        let renewable = held.filter(|held| held.lease.renewable && held.generation == generation);
        if let Some(held) = renewable {
            match self.renew(entry, &held).await {
                Ok(Some(wait)) => return Ok(wait),
                Ok(None) => {}
                Err(error) if error.is_transient() => return Err(error),
                Err(error) => {
                    tracing::info!(path = entry.reading.path(), %error, "a lease is not renewed; another is taken");
                }
            }
        }
        self.read(entry).await
    }

    /// Renews a lease. Nothing: for too short a time to go on with it.
    async fn renew(&self, entry: &Entry, held: &Held) -> Result<Option<Duration>, VaultError> {
        let asked_at = Instant::now();
        let full = held.lease.life;
        let (answer, token) =
            self.session.ask(&Ask::Renew { lease: &held.lease.id, increment: full }).await?;
        let Some(lease) = answer.lease else {
            return Err(VaultError::Malformed { problem: "a renewed lease is none" });
        };
        let life = lasting(lease.life, &token, asked_at);
        entry.reading.extend(asked_at.checked_add(life).unwrap_or(asked_at));
        // Near the end of its longest life it is renewed for less and less.
        Ok((lease.life.saturating_mul(2) >= full).then(|| two_thirds(life)))
    }

    async fn read(&self, entry: &Entry) -> Result<Duration, VaultError> {
        let asked_at = Instant::now();
        let (answer, token) = self.session.ask(&Ask::Read { path: entry.reading.path() }).await?;
        let Answer { lease, fields, .. } = answer;
        let taken = match picked(&entry.reading, &fields, lease.as_ref()) {
            Ok(taken) => taken,
            Err(error) => {
                // What is of no use is not kept leased, or every try would add one.
                if let Some(lease) = &lease {
                    drop(self.session.ask(&Ask::Revoke { lease: &lease.id }).await);
                }
                return Err(error);
            }
        };
        let life = lease.as_ref().map_or(self.stale, |one| lasting(one.life, &token, asked_at));
        let until = asked_at.checked_add(life).unwrap_or(asked_at);
        let term = Term { until, is_lease: lease.is_some() };
        let wait = if lease.is_some() { two_thirds(life) } else { less_a_tenth(self.refresh) };
        entry.reading.take(taken, term, (asked_at, OVERLAP));
        *entry.held() = lease.map(|lease| Held { lease, generation: token.generation });
        // An answer that was long on its way is old already: it is asked for again so much sooner.
        Ok(wait.saturating_sub(asked_at.elapsed()))
    }
}

/// The fields that secrets of ours are.
fn picked(
    reading: &Reading,
    fields: &Fields,
    lease: Option<&Lease>,
) -> Result<BTreeMap<String, SecretString>, VaultError> {
    let path = reading.path();
    if lease.is_some_and(|lease| lease.life.is_zero()) {
        let problem = "its lease has no duration".to_owned();
        return Err(VaultError::Unusable { path: path.to_owned(), problem });
    }
    let value = |field: &str| Ok((field.to_owned(), value_of(path, field, fields.0.get(field))?));
    reading.wanted().map(value).collect()
}

/// How long a lease lasts: no longer than the token that it was taken with, as far as we know that.
fn lasting(life: Duration, token: &Token, now: Instant) -> Duration {
    token.ends.map_or(life, |ends| life.min(ends.saturating_duration_since(now)))
}

/// A field's value. Numbers and truth values are not read as text: two readers could write them differently.
fn value_of(path: &str, field: &str, value: Option<&Value>) -> Result<SecretString, VaultError> {
    let unusable = |problem: String| VaultError::Unusable { path: path.to_owned(), problem };
    match value {
        None | Some(Value::Null) => Err(unusable(format!("it has no field `{field}`"))),
        Some(Value::String(text)) => check_value(text.as_bytes())
            .map_err(|problem| unusable(format!("the field `{field}`: {problem}"))),
        Some(Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Err(unusable(format!("the field `{field}` is not text")))
        }
    }
}
