//! Static secrets for outbound calls, by name.
//!
//! Owns reading them at the time of use, so that a rotated file needs no restart (TM-19), and the previous version, for the minutes in
//! which the other side may still know only that one. Does not read the environment: the binary does, once, and passes the value in. `soon`
//! is for callers that may not block. Invariants: a value leaves this module only inside a [`SecretString`], whose `Debug` does not show
//! it; no error contains one; a file that is only half written, or cannot be read for the moment, never replaces a complete value, which
//! stays in use for a bounded time. A file that is gone is a secret that was taken back.

mod file;
mod live;
mod marks;
mod own_svid;
mod soon;

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use placet_types::digest::Digest;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

pub use self::live::{LiveSecret, LiveVersion};
use self::own_svid::OwnSvid;
pub use self::own_svid::SvidKeeper;
use self::{
    file::{blemish, is_cut_off, is_open_pem},
    marks::Marks,
};
use crate::error::of_file;

const SECRET_BYTES_MAX: usize = 64 * 1024;
const TOO_LONG: &str = "it is longer than 65536 bytes";
/// How many earlier values are remembered: anyone who searches responses for secrets has to know them.
const EARLIER_MAX: usize = 8;
/// How long the version before stays live after a rotation was seen: what was replaced because it leaked must not be sent for ever.
const OVERLAP: Duration = Duration::from_mins(10);
/// How long the previous value stays in use while its file is unusable.
const UNUSABLE_MAX: Duration = Duration::from_mins(15);

/// Where a secret comes from.
#[derive(Debug, Clone)]
pub enum SecretSource {
    /// The value of a variable of the environment, as the binary found it at start.
    Env(SecretString),
    /// An environment variable that is not set.
    Unset,
    /// A file, checked each time the secret is used.
    File(PathBuf),
    /// A JWT-SVID of our own, once a [`crate::SvidKeeper`] has fetched it.
    JwtSvid {
        /// Its audience.
        audience: String,
    },
}

/// Why a secret cannot be read. No message contains a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No secret has the given name. The name itself is not included: it may be a value given by mistake.
    #[error("names no secret of the configuration{}", listed(names))]
    Unknown {
        /// The names that there are.
        names: Vec<String>,
    },
    /// The file cannot be read.
    #[error("the secret `{name}` cannot be read from {place}: {}", of_file(*kind))]
    Unreadable {
        /// The secret.
        name: String,
        /// Where the file is; only the folder, if the path leads to no file.
        place: String,
        /// The kind of failure.
        kind: io::ErrorKind,
    },
    /// The file hangs, as on a mount that does, and the value read before is too old or missing.
    #[error("the secret `{name}` cannot be read from `{}` in time", path.display())]
    TooSlow {
        /// The secret.
        name: String,
        /// The file.
        path: PathBuf,
    },
    /// What was read cannot be a secret.
    #[error("the secret `{name}` cannot be used: {problem}")]
    Unusable {
        /// The secret.
        name: String,
        /// What is wrong.
        problem: &'static str,
    },
    /// The agent of the Workload API does not give it to us.
    #[error("the secret `{name}`: the agent of the Workload API gives no SVID of ours: {problem}")]
    Agent {
        /// The secret.
        name: String,
        /// Why.
        problem: &'static str,
    },
    /// The agent has not been asked yet.
    #[error(
        "the secret `{name}` comes from the agent, which is asked later; name a file or a variable here"
    )]
    NotAsked {
        /// The secret.
        name: String,
    },
}

fn listed(names: &[String]) -> String {
    if names.is_empty() {
        return ", which has none (`secrets`)".to_owned();
    }
    format!("; those of `secrets` are `{}`", names.join("`, `"))
}

/// The secrets that contracts may name. Clones share what was read.
#[derive(Debug, Clone, Default)]
pub struct Secrets {
    entries: Arc<BTreeMap<String, Arc<Entry>>>,
    marks: Marks,
}

#[derive(Debug)]
struct Entry {
    source: SecretSource,
    live: Mutex<Live>,
    /// The read in progress for callers that may not block.
    look: Mutex<Option<soon::Look>>,
    svid: Option<Arc<OwnSvid>>,
}

/// What was read of a file so far.
#[derive(Debug, Default)]
struct Live {
    newest: Option<SecretString>,
    previous: Option<Previous>,
    /// Values that are no longer live.
    earlier: VecDeque<SecretString>,
    /// When the file was last found to contain the newest value.
    seen_at: Option<Instant>,
    /// Whether it was logged that the file is unusable.
    alarmed: bool,
}

#[derive(Debug)]
struct Previous {
    value: SecretString,
    replaced_at: Instant,
}

impl Secrets {
    /// The secrets of these sources, by name.
    pub fn new(sources: BTreeMap<String, SecretSource>) -> Self {
        let entry = |source| {
            let svid = match &source {
                SecretSource::JwtSvid { audience } => Some(Arc::new(OwnSvid::new(audience))),
                SecretSource::Env(_) | SecretSource::Unset | SecretSource::File(_) => None,
            };
            Arc::new(Entry { source, live: Mutex::default(), look: Mutex::default(), svid })
        };
        let entries = sources.into_iter().map(|(name, source)| (name, entry(source)));
        Self { entries: Arc::new(entries.collect()), marks: Marks::default() }
    }

    /// The SVIDs to fetch from the agent.
    pub(crate) fn own_svids(&self) -> impl Iterator<Item = (&str, Arc<OwnSvid>)> {
        let svids = self.entries.iter();
        svids.filter_map(|(name, entry)| Some((name.as_str(), Arc::clone(entry.svid.as_ref()?))))
    }

    /// Whether any of them is with the agent of the Workload API.
    pub fn need_agent(&self) -> bool {
        self.own_svids().next().is_some()
    }

    /// The names of all secrets.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// That there is a secret of this name; says nothing about whether it can be read.
    ///
    /// # Errors
    /// [`SecretError::Unknown`], which lists the existing names.
    pub fn named(&self, name: &str) -> Result<(), SecretError> {
        self.entry(name).map(drop)
    }

    fn entry(&self, name: &str) -> Result<&Arc<Entry>, SecretError> {
        let unknown = || SecretError::Unknown { names: self.names().map(str::to_owned).collect() };
        self.entries.get(name).ok_or_else(unknown)
    }

    /// A mark of a version of a secret, for records: the same version has the same mark as long as this process lives, and no other has it.
    pub fn mark(&self, name: &str, version: &SecretString) -> Option<Digest> {
        self.marks.of(name, version)
    }

    /// The current value of a secret. Reads its file, if it has one: call it where blocking is allowed, or else use [`Secrets::live_soon`].
    ///
    /// # Errors
    /// [`SecretError`] when the name is unknown, or the value is missing, empty, too long or not text. If a file held a value before and is
    /// half written now, or exists but cannot be read, that is no error for 15 minutes: the value stays.
    pub fn get(&self, name: &str) -> Result<SecretString, SecretError> {
        self.live(name).map(|live| live.newest.value)
    }

    /// The current value of a secret, and the one before it.
    ///
    /// # Errors
    /// As for [`Secrets::get`].
    pub fn live(&self, name: &str) -> Result<LiveSecret, SecretError> {
        let entry = self.entry(name)?;
        match &entry.source {
            SecretSource::Env(value) => {
                let newest = file::value_of(name, value.expose_secret().as_bytes())?;
                Ok(LiveSecret::endless(newest, None))
            }
            SecretSource::Unset => Err(unusable(name, "its variable is not set")),
            SecretSource::File(path) => {
                // Read without the lock: a file that hangs must not hold up those who only want to know what was read.
                let found = file::read_value(name, path);
                entry.live.lock().take(found, name, path)
            }
            SecretSource::JwtSvid { .. } => match &entry.svid {
                Some(svid) => svid.live(name, Instant::now()),
                None => Err(SecretError::NotAsked { name: name.to_owned() }),
            },
        }
    }

    /// The values of a secret that are known without reading anything: live ones, and some earlier ones. For searching responses for
    /// secrets.
    pub fn known(&self, name: &str) -> Vec<SecretString> {
        let Some(entry) = self.entries.get(name) else { return Vec::new() };
        match &entry.source {
            SecretSource::File(_) => entry.live.lock().known(),
            SecretSource::Env(_) | SecretSource::Unset | SecretSource::JwtSvid { .. } => {
                let live = self.live(name).ok();
                live.map_or_else(Vec::new, |live| {
                    let (newest, previous) = live.into_values();
                    std::iter::once(newest).chain(previous).collect()
                })
            }
        }
    }

    /// Reads every local secret once. SVIDs are read when their [`SvidKeeper`](crate::SvidKeeper) opens.
    ///
    /// # Errors
    /// [`SecretError`] for the first secret that cannot be read.
    pub fn check(&self) -> Result<(), SecretError> {
        for (name, entry) in self.entries.iter() {
            if matches!(entry.source, SecretSource::JwtSvid { .. }) {
                continue;
            }
            drop(self.get(name)?);
        }
        Ok(())
    }

    /// Warns of files that everybody on the machine can read.
    pub fn warn_of_open_files(&self) {
        for (name, entry) in self.entries.iter() {
            if let SecretSource::File(path) = &entry.source
                && file::is_world_readable(path)
            {
                tracing::warn!(named = %name, path = %path.display(), "everybody on this machine can read the secret");
            }
        }
    }
}

impl Live {
    /// Takes what a look found, if it is a whole value, and gives what is live then.
    fn take(
        &mut self,
        found: Result<SecretString, SecretError>,
        name: &str,
        path: &Path,
    ) -> Result<LiveSecret, SecretError> {
        let now = Instant::now();
        match (found, &self.newest) {
            (Ok(value), None) => {
                self.newest = Some(value);
                self.seen_at = Some(now);
            }
            (Ok(value), Some(newest)) => {
                if let Some(problem) = is_cut_off(newest.expose_secret(), value.expose_secret()) {
                    self.alarm(name, path, problem);
                    return self.live_still(name, now, unusable(name, problem));
                }
                self.alarmed = false;
                self.seen_at = Some(now);
                if value.expose_secret() != newest.expose_secret() {
                    tracing::info!(named = %name, "a secret was rotated");
                    self.rotate(value, now);
                }
            }
            (Err(error), newest) => {
                let was_whole = newest.is_some();
                if let Some(problem) = blemish(&error).filter(|_| was_whole) {
                    self.alarm(name, path, &problem);
                    return self.live_still(name, now, error);
                }
                self.take_back();
                return Err(error);
            }
        }
        self.live(name, now)
    }

    /// What is live at this moment of an unusable file; after a while, the problem.
    fn live_still(
        &mut self,
        name: &str,
        now: Instant,
        problem: SecretError,
    ) -> Result<LiveSecret, SecretError> {
        let is_young = self.seen_at.is_some_and(|seen| now.duration_since(seen) < UNUSABLE_MAX);
        if is_young { self.live(name, now) } else { Err(problem) }
    }

    /// What is live at this moment.
    fn live(&mut self, name: &str, now: Instant) -> Result<LiveSecret, SecretError> {
        let is_over = |previous: &mut Previous| now.duration_since(previous.replaced_at) >= OVERLAP;
        if let Some(previous) = self.previous.take_if(is_over) {
            self.remember(previous.value);
        }
        let Some(newest) = self.newest.clone() else {
            return Err(unusable(name, "it was never read"));
        };
        let previous = self.previous.as_ref().map(|previous| previous.value.clone());
        Ok(LiveSecret::endless(newest, previous))
    }

    fn rotate(&mut self, value: SecretString, now: Instant) {
        let before = self.newest.replace(value);
        let previous = before.map(|value| Previous { value, replaced_at: now });
        let older = std::mem::replace(&mut self.previous, previous);
        if let Some(older) = older {
            self.remember(older.value);
        }
    }

    /// The file is gone: nothing is live any more.
    fn take_back(&mut self) {
        let previous = self.previous.take().map(|previous| previous.value);
        for value in previous.into_iter().chain(self.newest.take()) {
            self.remember(value);
        }
        self.seen_at = None;
        self.alarmed = false;
    }

    fn remember(&mut self, value: SecretString) {
        while self.earlier.len() >= EARLIER_MAX {
            drop(self.earlier.pop_front());
        }
        self.earlier.push_back(value);
    }

    fn known(&self) -> Vec<SecretString> {
        let previous = self.previous.iter().map(|previous| &previous.value);
        self.newest.iter().chain(previous).chain(&self.earlier).cloned().collect()
    }

    fn alarm(&mut self, name: &str, path: &Path, problem: &str) {
        if !self.alarmed {
            self.alarmed = true;
            tracing::error!(named = %name, path = %path.display(), problem, "a secret cannot be used as it stands in its file; the one before stays in use for 15 minutes");
        }
    }
}

/// A value in the form in which it is used, or what is wrong with it.
pub(crate) fn check_value(bytes: &[u8]) -> Result<SecretString, &'static str> {
    if bytes.len() > SECRET_BYTES_MAX {
        return Err(TOO_LONG);
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        return Err("it is not text");
    };
    let value =
        text.strip_suffix('\n').map_or(text, |line| line.strip_suffix('\r').unwrap_or(line));
    if value.is_empty() {
        return Err("it is empty");
    }
    if value.contains('\0') {
        return Err("it holds a NUL character");
    }
    if is_open_pem(value) {
        return Err("it is the beginning of a key in PEM form");
    }
    Ok(SecretString::from(value))
}

fn unusable(name: &str, problem: &'static str) -> SecretError {
    SecretError::Unusable { name: name.to_owned(), problem }
}
