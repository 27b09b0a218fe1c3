//! The keys of one issuer in memory: loaded, kept fresh, and used for a bounded time after they can no longer be loaded.
//!
//! Owns when a key set is fetched again. Invariants: tokens cannot cause more than one fetch per retry interval (`keys_retry_s_min`, or a
//! second for files and the agent), however many unknown keys they name; at most one fetch runs at a time; a set that could not be fetched
//! for `keys_stale_s_max` is no longer used; an unreadable set never replaces a readable one; a file that hangs occupies one thread and
//! delays one token for a moment.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::{Request, StatusCode, header};
use placet_egress::{EgressClient, read_bounded};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, timeout},
};
use url::Url;

use crate::{
    config::{Algorithm, IdentityConfig, IssuerConfig, KeySource},
    error::{IdentityError, KeyError, SetupError, echo},
    key_set::{Found, KEY_SET_BYTES_MAX, KeySet, KeyUse},
    signature::PublicKey,
    workload_api::WorkloadApi,
};

const FETCH_TIMEOUT_MS: u64 = 5_000;
/// A file that takes longer is on a mount that hangs.
const FILE_TIMEOUT_MS: u64 = 1_000;
/// Looking at a file costs next to nothing, so a rotated one is noticed soon.
const FILE_REFRESH_S_MAX: u64 = 10;
const FILE_RETRY_S: u64 = 1;
/// The agent is local, so asking it is cheap.
const AGENT_REFRESH_S: u64 = 1;

/// The keys of one issuer.
#[derive(Debug)]
pub(crate) struct KeyCache {
    issuer: String,
    source: Source,
    wanted: KeyUse,
    /// Whether the last fetch failed: then an unknown key may only be one that was not fetched yet.
    failing: AtomicBool,
    refresh_age: Duration,
    retry_interval: Duration,
    stale_age: Duration,
    current: ArcSwapOption<Loaded>,
    /// When a fetch last began. Anyone who holds the lock does the fetching.
    begun: Arc<Mutex<Option<Instant>>>,
    /// Held while the file is read: one thread, however long the file hangs.
    reads: Arc<Mutex<()>>,
}

#[derive(Debug)]
enum Source {
    File(PathBuf),
    Url(Url, Box<EgressClient>),
    Inline,
    Agent { api: Arc<WorkloadApi>, trust_domain: String },
}

/// A set of keys, and when it was loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    set: KeySet,
    at: Instant,
}

impl KeyCache {
    /// The cache of a trust domain whose bundle comes from the agent. Loads nothing yet.
    pub(crate) fn of_agent(
        issuer: &IssuerConfig,
        api: &Arc<WorkloadApi>,
        trust_domain: &str,
        config: &IdentityConfig,
    ) -> Self {
        let source = Source::Agent { api: Arc::clone(api), trust_domain: trust_domain.to_owned() };
        Self::assemble(issuer, source, None, KeyUse::WorkloadApi, config)
    }

    /// The cache of one issuer. Keys in files and in the configuration are loaded at once; a URL is not fetched.
    pub(crate) fn new(
        issuer: &IssuerConfig,
        wanted: KeyUse,
        config: &IdentityConfig,
        egress: Option<&EgressClient>,
    ) -> Result<Self, SetupError> {
        let keys = |cause: KeyError| issuer.problem(cause.to_string());
        let (source, loaded) = match &issuer.keys {
            KeySource::Inline(value) => {
                (Source::Inline, Some(KeySet::from_value(value.clone(), wanted).map_err(keys)?))
            }
            KeySource::File(path) => {
                let set = read_file(path)
                    .and_then(|bytes| KeySet::parse(&bytes, wanted))
                    .map_err(keys)?;
                (Source::File(path.clone()), Some(set))
            }
            KeySource::Url(url) => {
                let client = egress.ok_or_else(|| {
                    issuer.problem("its key URL cannot be fetched without egress")
                })?;
                (Source::Url(url.clone(), Box::new(client.clone())), None)
            }
            KeySource::WorkloadApi => {
                return Err(issuer.problem("its bundle is the agent's, and there is none"));
            }
        };
        Ok(Self::assemble(issuer, source, loaded, wanted, config))
    }

    fn assemble(
        issuer: &IssuerConfig,
        source: Source,
        loaded: Option<KeySet>,
        wanted: KeyUse,
        config: &IdentityConfig,
    ) -> Self {
        let (refresh_s, retry_s) = match source {
            Source::File(_) => (config.keys_refresh_s.min(FILE_REFRESH_S_MAX), FILE_RETRY_S),
            Source::Agent { .. } => (AGENT_REFRESH_S, AGENT_REFRESH_S),
            Source::Url(..) | Source::Inline => (config.keys_refresh_s, config.keys_retry_s_min),
        };
        Self {
            issuer: issuer.issuer.clone(),
            source,
            wanted,
            failing: AtomicBool::new(false),
            refresh_age: Duration::from_secs(refresh_s),
            retry_interval: Duration::from_secs(retry_s),
            stale_age: Duration::from_secs(config.keys_stale_s_max),
            current: ArcSwapOption::from_pointee(
                loaded.map(|set| Loaded { set, at: Instant::now() }),
            ),
            begun: Arc::new(Mutex::new(None)),
            reads: Arc::default(),
        }
    }

    /// The key of this name, after one fetch if it is not known and a fetch is due.
    pub(crate) async fn find(
        self: &Arc<Self>,
        kid: &str,
        algorithm: Algorithm,
    ) -> Result<PublicKey, IdentityError> {
        let loaded = self.usable_or_refreshed().await?;
        if let Some(known) = self.look_up(&loaded, kid, algorithm) {
            return known;
        }
        self.refresh_if_due(Some(loaded)).await;
        let unknown = || {
            let issuer = self.issuer.clone();
            // A token with a new key is not wrong while the issuer cannot be reached.
            if self.failing.load(Ordering::Relaxed) {
                return IdentityError::KeysUnavailable(issuer);
            }
            IdentityError::UnknownKey { issuer, kid: echo(kid) }
        };
        self.usable()
            .and_then(|loaded| self.look_up(&loaded, kid, algorithm))
            .unwrap_or_else(|| Err(unknown()))
    }

    /// Reloads the set, whenever it was last loaded.
    pub(crate) async fn refresh(self: &Arc<Self>) -> Result<(), KeyError> {
        if matches!(self.source, Source::Inline) {
            return Ok(());
        }
        let begun = Arc::clone(&self.begun).lock_owned().await;
        self.load_detached(begun).await
    }

    /// Whether tokens of the issuer can be verified at present.
    pub(crate) fn is_usable(&self) -> bool {
        self.usable().is_some()
    }

    /// Whether keys are in use that could not be reloaded.
    pub(crate) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Relaxed) && self.is_usable()
    }

    /// The keys at hand, unless newer ones have to be looked for before they are used.
    pub(crate) fn fresh(&self) -> Option<Arc<Loaded>> {
        let fixed = matches!(self.source, Source::Inline);
        self.current.load_full().filter(|loaded| fixed || loaded.at.elapsed() <= self.refresh_age)
    }

    fn look_up(
        &self,
        loaded: &Loaded,
        kid: &str,
        algorithm: Algorithm,
    ) -> Option<Result<PublicKey, IdentityError>> {
        match loaded.set.find(kid, algorithm) {
            Found::Key(key) => Some(Ok(key.clone())),
            Found::OtherAlgorithm => {
                Some(Err(IdentityError::AlgorithmRefused(self.issuer.clone())))
            }
            Found::Nothing => None,
        }
    }

    fn usable(&self) -> Option<Arc<Loaded>> {
        let fixed = matches!(self.source, Source::Inline);
        self.current.load_full().filter(|loaded| fixed || loaded.at.elapsed() <= self.stale_age)
    }

    /// The keys at hand, looking for newer ones if they are old.
    async fn usable_or_refreshed(self: &Arc<Self>) -> Result<Arc<Loaded>, IdentityError> {
        match (self.usable(), &self.source) {
            (Some(loaded), Source::Inline) => return Ok(loaded),
            (Some(loaded), _) if loaded.at.elapsed() <= self.refresh_age => return Ok(loaded),
            // An issuer that does not answer must not hold up tokens whose keys are known.
            (Some(loaded), Source::Url(..)) => {
                self.refresh_in_background(&loaded);
                return Ok(loaded);
            }
            // A file or the agent says at once what it holds, so it is waited for, but for one moment and by one token: it may hang.
            (Some(loaded), Source::File(_) | Source::Agent { .. }) => {
                if let Ok(begun) = Arc::clone(&self.begun).try_lock_owned()
                    && self.is_due(*begun, Some(&loaded))
                {
                    self.load_and_report(begun).await;
                } else {
                    return Ok(loaded);
                }
            }
            (None, _) => self.refresh_if_due(self.current.load_full()).await,
        }
        self.usable().ok_or_else(|| IdentityError::KeysUnavailable(self.issuer.clone()))
    }

    /// Begins a fetch if one is due and none is running.
    fn refresh_in_background(self: &Arc<Self>, seen: &Arc<Loaded>) {
        let Ok(begun) = Arc::clone(&self.begun).try_lock_owned() else { return };
        if self.is_due(*begun, Some(seen)) {
            let cache = Arc::clone(self);
            drop(tokio::spawn(async move { cache.load_and_report(begun).await }));
        }
    }

    /// Fetches once, unless the set has changed since `seen` or a fetch began too recently.
    async fn refresh_if_due(self: &Arc<Self>, seen: Option<Arc<Loaded>>) {
        let begun = Arc::clone(&self.begun).lock_owned().await;
        if self.is_due(*begun, seen.as_ref()) {
            self.load_and_report(begun).await;
        }
    }

    fn is_due(&self, begun: Option<Instant>, seen: Option<&Arc<Loaded>>) -> bool {
        let newer = match (self.current.load_full(), seen) {
            (Some(current), Some(seen)) => !Arc::ptr_eq(&current, seen),
            (current, None) => current.is_some(),
            (None, Some(_)) => false,
        };
        let fixed = matches!(self.source, Source::Inline);
        !fixed && !newer && begun.is_none_or(|at| at.elapsed() >= self.retry_interval)
    }

    async fn load_and_report(self: &Arc<Self>, begun: OwnedMutexGuard<Option<Instant>>) {
        if let Err(error) = self.load_detached(begun).await {
            tracing::warn!(issuer = %self.issuer, error = %error, "the issuer's keys could not be refreshed");
        }
    }

    /// Loads in a task of its own, so that a caller that goes away does not take the fetch with it.
    async fn load_detached(
        self: &Arc<Self>,
        mut begun: OwnedMutexGuard<Option<Instant>>,
    ) -> Result<(), KeyError> {
        *begun = Some(Instant::now());
        let cache = Arc::clone(self);
        let task = tokio::spawn(async move {
            let loaded = cache.load().await;
            let outcome = cache.take_in(loaded, Instant::now());
            drop(begun);
            outcome
        });
        task.await.unwrap_or_else(|_gone| Err(KeyError::interrupted()))
    }

    /// Stores what a fetch loaded, as valid at `at`.
    fn take_in(&self, loaded: Result<KeySet, KeyError>, at: Instant) -> Result<(), KeyError> {
        self.failing.store(loaded.is_err(), Ordering::Relaxed);
        // Who knows it says that there are no keys any more, which is not an outage; half a document is no set at all.
        if matches!(loaded, Err(KeyError::NotInBundles(_) | KeyError::Empty)) {
            self.current.store(None);
        }
        loaded.map(|set| self.current.store(Some(Arc::new(Loaded { set, at }))))
    }

    async fn load(self: &Arc<Self>) -> Result<KeySet, KeyError> {
        let fetched = match &self.source {
            Source::Inline => return Err(KeyError::Empty),
            Source::Agent { api, trust_domain } => {
                let set = KeySet::from_value(api.bundle(trust_domain).await?, self.wanted);
                if matches!(set, Err(KeyError::Empty)) {
                    // The agent no longer vouches for a domain without authorities.
                    let trust_domain = trust_domain.to_owned();
                    return Err(KeyError::NotInBundles(trust_domain));
                }
                return set;
            }
            Source::File(path) => self.read_soon(path).await?,
            Source::Url(url, client) => {
                let limit = Duration::from_millis(FETCH_TIMEOUT_MS);
                let late = |_elapsed| Err(late(FETCH_TIMEOUT_MS));
                timeout(limit, fetch(url, client)).await.unwrap_or_else(late)?
            }
        };
        KeySet::parse(&fetched, self.wanted)
    }

    /// Reads a file on a blocking thread, at most one at a time. Callers wait only for a moment.
    async fn read_soon(&self, path: &Path) -> Result<Vec<u8>, KeyError> {
        let late = || late(FILE_TIMEOUT_MS);
        let reads = Arc::clone(&self.reads).try_lock_owned().map_err(|_held| late())?;
        let path = path.to_owned();
        let reading = tokio::task::spawn_blocking(move || {
            let _reads = reads;
            read_file(&path)
        });
        match timeout(Duration::from_millis(FILE_TIMEOUT_MS), reading).await {
            Ok(read) => read.unwrap_or_else(|_gone| Err(KeyError::interrupted())),
            Err(_elapsed) => Err(late()),
        }
    }
}

async fn fetch(url: &Url, client: &EgressClient) -> Result<Vec<u8>, KeyError> {
    let failed = |problem: &dyn std::fmt::Display| KeyError::Unavailable(problem.to_string());
    let request =
        Request::get(url.as_str()).header(header::ACCEPT, "application/json").body(Bytes::new());
    let request = request.map_err(|error| failed(&error))?;
    let response = client.send(request).await.map_err(|error| failed(&error))?;
    if response.status() != StatusCode::OK {
        return Err(failed(&format_args!("the status is {}", response.status().as_u16())));
    }
    Ok(response.into_body().to_vec())
}

fn late(timeout_ms: u64) -> KeyError {
    KeyError::Unavailable(format!("it took longer than {timeout_ms} ms"))
}

fn read_file(path: &Path) -> Result<Vec<u8>, KeyError> {
    let read = read_bounded(path, KEY_SET_BYTES_MAX);
    let read = read.map_err(|error| KeyError::unreadable(path, error.kind()))?;
    Ok(read.to_vec())
}

#[cfg(test)]
mod tests;
