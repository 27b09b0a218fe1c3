//! One generation of the index: sled behind guards, and never believed alone.
//!
//! Owns a tree with what was changed since a checkpoint, and the [`Stamps`] against which everything read from it is checked.
//! Not here: what lies under it (tables of the checkpoint), and above it (a later generation, while the checkpoint is made).
//! Invariants: a batch holds whole entries and the number of the last of them; what the journal knows is never answered as
//! absent or in an older form; an error or a panic of sled is an error of the store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use sled::{Batch, Db};
use tokio::time::Instant;

use super::codec::{Meta, decode_value};
use super::delta::Delta;
use super::index::IndexFault;
use super::keys;
use super::slip::Edit;
use super::stamps::{Stamps, is_current};
use crate::journal::medium::{Disk, Medium as _, is_refusal, to_u64};
use crate::sorted::{Source, TableError};

/// How long sled may take to give its memory to the operating system; on the slowest disk it is less.
const FLUSH_WITHIN: Duration = Duration::from_secs(40);
/// How many edits go into one batch while a generation is filled.
const FILL_EDITS: usize = 4096;

/// What a generation says about a key.
#[derive(Debug)]
pub(super) enum Lookup {
    /// Nothing: older ones have to be asked.
    Untouched,
    /// That it is gone.
    Gone,
    /// That it holds this.
    Found(Vec<u8>),
}

/// A tree that is let go without harm: sled syncs it then, and panics where that fails.
#[derive(Debug)]
struct Held(Option<Db>);

impl Held {
    fn get(&self) -> sled::Result<&Db> {
        self.0.as_ref().ok_or_else(|| sled::Error::Unsupported("it was let go".to_owned()))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let db = self.0.take();
        if let Err(fault) = guarded(|| {
            drop(db);
            Ok(())
        }) {
            // Whatever it did not keep is taken over from the journal again.
            tracing::warn!(%fault, "a generation of the index could not be made durable when it was let go");
        }
    }
}

/// A tree and its stamps.
#[derive(Debug)]
pub(super) struct Generation {
    db: Held,
    directory: PathBuf,
    stamps: Stamps,
}

impl Generation {
    /// Opens the generation in this folder, or makes it.
    pub(super) fn open(directory: &Path, cache_bytes: u64) -> Result<Self, TreeError> {
        let db = open_tree(directory, cache_bytes)?;
        Ok(Self { db: Held(Some(db)), directory: directory.to_owned(), stamps: Stamps::default() })
    }

    /// Says that it begins after an entry.
    pub(super) fn begin(&self, meta: &Meta) -> Result<(), IndexFault> {
        let mut batch = Batch::default();
        batch.insert(keys::BASE, meta.encode(keys::BASE));
        batch.insert(keys::META, meta.encode(keys::META));
        guarded(|| self.db.get()?.apply_batch(batch))
    }

    /// How far it goes.
    pub(super) fn meta(&self) -> Result<Option<Meta>, IndexFault> {
        self.own(keys::META)
    }

    /// After which entry it begins.
    pub(super) fn base(&self) -> Result<Option<Meta>, IndexFault> {
        self.own(keys::BASE)
    }

    fn own(&self, key: &[u8]) -> Result<Option<Meta>, IndexFault> {
        match guarded(|| self.db.get()?.get(key))? {
            Some(bytes) => Meta::decode(key, &bytes).map(Some).ok_or(IndexFault::Altered),
            None => Ok(None),
        }
    }

    /// What it says about a key, checked against the journal's word.
    pub(super) fn look_up(&self, key: &[u8]) -> Result<Lookup, IndexFault> {
        let Some(stamp) = self.stamps.get(key) else { return Ok(Lookup::Untouched) };
        if stamp.gone {
            return Ok(Lookup::Gone);
        }
        let found = guarded(|| self.db.get()?.get(key))?.filter(|value| !value.is_empty());
        let Some(value) = found else { return Err(IndexFault::Forgotten) };
        if keys::is_filtered(key) {
            let stored = decode_value(key, &value).ok_or(IndexFault::Altered)?;
            if !is_current(stored.seq, stamp.seq) {
                return Err(IndexFault::Forgotten);
            }
        }
        Ok(Lookup::Found(value.to_vec()))
    }

    /// Whether there is such a key, by the journal's word; `None`: nothing has touched it here.
    pub(super) fn knows(&self, key: &[u8]) -> Option<bool> {
        self.stamps.get(key).map(|stamp| !stamp.gone)
    }

    /// Takes over the edits of entries, each with its entry's number, all or none.
    pub(super) fn apply(&self, edits: &[(u64, Edit)], meta: &Meta) -> Result<(), IndexFault> {
        let mut batch = Batch::default();
        for (_, (key, value)) in edits {
            batch.insert(key.as_slice(), value.as_slice());
        }
        batch.insert(keys::META, meta.encode(keys::META));
        guarded(|| self.db.get()?.apply_batch(batch))?;
        for (seq, (key, value)) in edits {
            self.stamps.set(key, *seq, value.is_empty());
        }
        Ok(())
    }

    /// Takes over all that the journal says since this generation's base, as far as it has not been taken over; answers how
    /// many entries that were. Refuses where it holds anything else than the journal says: sled forgets without a word.
    pub(super) fn catch_up(&self, delta: &Delta) -> Result<u64, String> {
        let meta = self.meta().map_err(|fault| fault.to_string())?;
        let meta = meta.ok_or("it does not say how far it goes")?;
        delta.check_place(&meta)?;
        self.compare(delta, meta.applied_seq)?;
        self.fill(delta, meta.applied_seq).map_err(|fault| fault.to_string())?;
        Ok(delta.last().applied_seq.saturating_sub(meta.applied_seq))
    }

    /// Reads everything, and compares it with what the journal says up to an entry.
    pub(super) fn compare(&self, delta: &Delta, applied_seq: u64) -> Result<(), String> {
        match self.difference(delta, applied_seq) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(why),
            Err(fault) => Err(fault.to_string()),
        }
    }

    /// The same, for whoever tells what is wrong from what cannot be read: in what it differs, if in anything.
    pub(super) fn difference(
        &self,
        delta: &Delta,
        applied_seq: u64,
    ) -> Result<Option<String>, IndexFault> {
        let mut found: u64 = 0;
        let different = guarded(|| {
            for pair in self.db.get()?.iter() {
                let (key, value) = pair?;
                if matches!(key.as_ref(), keys::META | keys::BASE) {
                    continue;
                }
                match delta.get(&key) {
                    Some((seq, expected)) if seq <= applied_seq => {
                        if expected != value.as_ref() {
                            return Ok(Some("a key does not hold what the journal says"));
                        }
                        found = found.saturating_add(1);
                    }
                    Some(_) => {}
                    None => return Ok(Some("it holds a key of which the journal knows nothing")),
                }
            }
            Ok(None)
        })?;
        if let Some(why) = different {
            return Ok(Some(why.to_owned()));
        }
        let expected = delta.edits().filter(|(_, seq, _)| *seq <= applied_seq).count();
        let is_all = found == to_u64(expected);
        Ok((!is_all).then(|| format!("it has {found} keys where the journal has {expected}")))
    }

    /// Takes over what entries after `applied_seq` changed, and learns what the journal says about all keys.
    pub(super) fn fill(&self, delta: &Delta, applied_seq: u64) -> Result<(), IndexFault> {
        let mut batch = Batch::default();
        let mut waiting: usize = 0;
        for (key, seq, value) in delta.edits() {
            self.stamps.set(key, seq, value.is_empty());
            if seq > applied_seq {
                batch.insert(key, value);
                waiting = waiting.saturating_add(1);
            }
            if waiting >= FILL_EDITS {
                let full = std::mem::take(&mut batch);
                guarded(|| self.db.get()?.apply_batch(full))?;
                waiting = 0;
            }
        }
        batch.insert(keys::META, delta.last().encode(keys::META));
        guarded(|| self.db.get()?.apply_batch(batch))
    }

    /// Its keys and values from a key on, as a source beside the tables.
    pub(super) fn source(&self, from: &[u8]) -> Source {
        let pairs = match self.db.get() {
            Ok(db) => db.range(from.to_vec()..),
            Err(error) => {
                return Box::new(std::iter::once(Err(TableError::Source(error.to_string()))));
            }
        };
        Box::new(pairs.filter_map(|pair| match pair {
            Ok((key, _)) if matches!(key.as_ref(), keys::META | keys::BASE) => None,
            Ok((key, value)) => Some(Ok((key.to_vec(), value.to_vec()))),
            Err(error) => Some(Err(TableError::Source(error.to_string()))),
        }))
    }

    /// Gives what sled holds in memory to the operating system.
    pub(super) fn flush(&self) -> Result<(), IndexFault> {
        // On a thread of its own: after an error sled may wait for ever, for a word that was spoken before it listened.
        let db = self.db.get()?.clone();
        let (done, answer) = mpsc::channel();
        let flushing = std::thread::Builder::new().name("placet-index-flush".to_owned());
        flushing
            .spawn(move || drop(done.send(guarded(|| db.flush()).map(drop))))
            .map_err(|error| IndexFault::Sled(error.to_string()))?;
        let silent = |_| IndexFault::Sled("it does not answer any more".to_owned());
        answer.recv_timeout(FLUSH_WITHIN).map_err(silent)?
    }

    /// Makes all of it durable. sled's `flush` does not sync: that is done on its file.
    pub(super) fn close(&self) -> Result<(), IndexFault> {
        self.flush()?;
        let folders = [Some(self.directory.as_path()), self.directory.parent()];
        File::open(self.directory.join("db"))
            .and_then(|file| file.sync_all())
            .and_then(|()| folders.into_iter().flatten().try_for_each(|at| Disk.sync_dir(at)))
            .map_err(|error| IndexFault::Sled(error.to_string()))
    }

    /// The folder it is in.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// For tests: the tree, to be damaged behind the store's back.
    #[cfg(test)]
    pub(super) fn db(&self) -> &Db {
        self.db.get().unwrap()
    }
}

/// The generations in the folder of the index, by number.
pub(super) fn find(index: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let names = match Disk.list(index) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    let numbered = names.iter().filter_map(|name| Some((number_of(name)?, index.join(name))));
    Ok(numbered.collect())
}

/// The folder of a generation.
pub(super) fn folder(index: &Path, number: u64) -> PathBuf {
    index.join(format!("{number:08}"))
}

fn number_of(name: &str) -> Option<u64> {
    name.parse().ok().filter(|_| name.len() == 8)
}

/// Runs something of sled, which panics on damaged pages instead of answering an error.
pub(super) fn guarded<T>(work: impl FnOnce() -> sled::Result<T>) -> Result<T, IndexFault> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => Ok(answer?),
        Err(_panic) => Err(IndexFault::Panicked),
    }
}

/// Why sled did not open.
#[derive(Debug, thiserror::Error)]
pub(super) enum TreeError {
    #[error("it is still held by another handle")]
    Busy,
    #[error("opening it panicked")]
    Panicked,
    #[error("it cannot be opened: {0}")]
    Failed(String),
    /// The operating system refused something: it may be sound.
    #[error("it cannot be opened for the moment: {0}")]
    Refused(io::Error),
}

impl From<io::Error> for TreeError {
    fn from(error: io::Error) -> Self {
        if is_refusal(&error) { Self::Refused(error) } else { Self::Failed(error.to_string()) }
    }
}

/// How long an earlier handle in this process may take to let go.
const BUSY_FOR: Duration = Duration::from_secs(10);
const BUSY_RETRY: Duration = Duration::from_millis(20);

/// Opens sled, guarded. The caller holds the journal's lock.
pub(super) fn open_tree(path: &Path, cache_bytes: u64) -> Result<Db, TreeError> {
    let began = Instant::now();
    loop {
        match open_tree_once(path, cache_bytes) {
            Err(TreeError::Busy) if began.elapsed() < BUSY_FOR => {
                std::thread::park_timeout(BUSY_RETRY);
            }
            opened => return opened,
        }
    }
}

fn open_tree_once(path: &Path, cache_bytes: u64) -> Result<Db, TreeError> {
    remove_unfinished_snapshots(path)?;
    let config = sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None);
    // On a thread of its own: sled panics on damaged pages, and may leave anything behind on the stack that it panicked on.
    let opening = std::thread::Builder::new()
        .name("placet-index-open".to_owned())
        .spawn(move || config.open())?;
    match opening.join() {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(error)) if error.to_string().contains("could not acquire lock") => {
            Err(TreeError::Busy)
        }
        Ok(Err(sled::Error::Io(error))) => Err(error.into()),
        Ok(Err(error)) => Err(TreeError::Failed(error.to_string())),
        Err(_panic) => Err(TreeError::Panicked),
    }
}

/// A kill during sled's recovery leaves a file behind that makes every later opening fail.
fn remove_unfinished_snapshots(path: &Path) -> io::Result<()> {
    Disk.create_dir(path)?;
    for name in Disk.list(path)? {
        if name.starts_with("snap.") && name.ends_with(".generating") {
            Disk.remove(&path.join(name))?;
        }
    }
    Ok(())
}
