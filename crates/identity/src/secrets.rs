//! Static secrets for outbound calls, by name.
//!
//! Owns reading them at the time of use, so that a rotated file needs no restart (TM-19), and the version before the newest, for the
//! minutes in which the other side may still know only that one. Does not read the environment: the binary does, once, and hands the value
//! in.
//! `soon` is the way for those who may not block. Invariants: a value leaves this module only inside a [`SecretString`], whose `Debug` does not show it; no error holds one; a file that
//! is only half written, or cannot be read for the moment, never replaces a value that was whole, which is used on for a bounded time. A file
//! that is gone is a secret that was taken back.

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
/// How many values are remembered that are live no more: anyone who looks for them in an answer has to know them.
const EARLIER_MAX: usize = 8;
/// How long the version before stays live after a rotation was seen: what was replaced because it leaked must not be sent for ever.
const OVERLAP: Duration = Duration::from_mins(10);
/// How long the value before is used on while its file cannot be used as it stands.
const UNUSABLE_MAX: Duration = Duration::from_mins(15);

/// Where a secret comes from.
#[derive(Debug, Clone)]
pub enum SecretSource {
    /// The value of a variable of the environment, as the binary found it at start.
    Env(SecretString),
    /// A variable of the environment that is not set.
    Unset,
    /// A file, looked at each time the secret is used.
    File(PathBuf),
    /// A JWT-SVID of our own, once a [`crate::SvidKeeper`] has fetched it.
    JwtSvid {
        /// For whom it is.
        audience: String,
    },
}

/// Why a secret cannot be had. No message holds a value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// No secret has the name that is written there. What is written is not in here: it may be a value in the place of a name.
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
        /// Where the file is; not what names it, where that leads to none.
        place: String,
        /// The kind of failure.
        kind: io::ErrorKind,
    },
    /// The file does not answer, as on a mount that hangs, and what was read of it before is too old or not there.
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
    /// The reading of the file that is under way for those who may not block.
    look: Mutex<Option<soon::Look>>,
    svid: Option<Arc<OwnSvid>>,
}

/// What was read of a file so far.
#[derive(Debug, Default)]
struct Live {
    newest: Option<SecretString>,
    previous: Option<Previous>,
    /// What is live no more.
    earlier: VecDeque<SecretString>,
    /// When the newest was last found to be what the file holds.
    seen_at: Option<Instant>,
    /// Whether it was said that the file cannot be used as it is.
    alarmed: bool,
}

#[derive(Debug)]
struct Previous {
    value: SecretString,
    replaced_at: Instant,
}

impl Secrets {
    /// The secrets of these sources, by name.
    #[must_use]
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

    /// What is to be fetched of the agent.
    pub(crate) fn own_svids(&self) -> impl Iterator<Item = (&str, Arc<OwnSvid>)> {
        let svids = self.entries.iter();
        svids.filter_map(|(name, entry)| Some((name.as_str(), Arc::clone(entry.svid.as_ref()?))))
    }

    /// Whether any of them is with the agent of the Workload API.
    #[must_use]
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
    /// [`SecretError::Unknown`], which lists the names that there are.
    pub fn named(&self, name: &str) -> Result<(), SecretError> {
        self.entry(name).map(drop)
    }

    fn entry(&self, name: &str) -> Result<&Arc<Entry>, SecretError> {
        let unknown = || SecretError::Unknown { names: self.names().map(str::to_owned).collect() };
        self.entries.get(name).ok_or_else(unknown)
    }

    /// A mark of a version of a secret, for records: the same version has the same mark as long as this process lives, and no other has it.
    #[must_use]
    pub fn mark(&self, name: &str, version: &SecretString) -> Option<Digest> {
        self.marks.of(name, version)
    }

    /// The secret's value as it is now. Reads the file where there is one: call it where blocking is allowed, or else [`Secrets::live_soon`].
    ///
    /// # Errors
    /// [`SecretError`] when the name is unknown, or the value is missing, empty, too long or not text. A file that held a value before and
    /// is half written now, or cannot be read though it is there, is no error for 15 minutes: the value stays.
    pub fn get(&self, name: &str) -> Result<SecretString, SecretError> {
        self.live(name).map(|live| live.newest.value)
    }

    /// The secret's value as it is now, and the one before it.
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

    /// The values of a secret that are known without asking anybody: live ones, and some that were live before. For those who look for them
    /// in what others say.
    #[must_use]
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

    /// Reads every secret of this machine once, for the start, and warns of files that everybody on the machine can read. Those that others
    /// keep are read when their keepers open.
    ///
    /// # Errors
    /// [`SecretError`] for the first secret that cannot be had.
    pub fn check(&self) -> Result<(), SecretError> {
        for (name, entry) in self.entries.iter() {
            if matches!(entry.source, SecretSource::JwtSvid { .. }) {
                continue;
            }
            drop(self.get(name)?);
            if let SecretSource::File(path) = &entry.source
                && file::is_world_readable(path)
            {
                tracing::warn!(named = %name, path = %path.display(), "everybody on this machine can read the secret");
            }
        }
        Ok(())
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

    /// What is live at this moment of a file that cannot be used as it stands; after a while, what is wrong with it.
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
