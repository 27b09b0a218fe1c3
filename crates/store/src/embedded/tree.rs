//! The tree: sled behind guards, with a count and a sum over everything in it.
//!
//! Owns opening sled, batches of whole entries, reading, and copying the tree as of one entry while it goes on changing. Edits are gathered
//! in memory (`fresh`), and written to sled once there are many, or the tree is flushed. Not here: what the keys mean (`keys`, `edits`),
//! whether the tree is trusted (`open`).
//! Invariants: a batch holds whole entries and the number of the last of them; count and sum of the keys are updated with every batch, so
//! that a key that sled has lost is noticed; no answer comes from a value that does not verify; an error or a panic of sled is an error of
//! the store.

mod rebuild;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::num::NonZero;
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use placet_ledger::store::StoreError;
use sled::{Batch, Db, IVec};
use tokio::time::Instant;

pub(super) use rebuild::Rebuilding;

use super::codec::{Meta, Stored, decode_value};
use super::edits::Edits;
use super::fresh::{Fresh, Pair, Pairs, Span};
use super::keys;
use super::sums::{hash_of, sum_of};
use crate::journal::medium::{Disk, Medium as _, is_refusal};

/// How many keys are gathered before they are written to sled in the background.
const FRESH_KEYS: usize = 2_048;
/// The maximum: then the writer of an entry writes them to sled.
const FRESH_KEYS_MAX: usize = 16_384;
/// How many keys are read at a time.
const PAGE_KEYS: usize = 512;
/// The most threads that check the tree.
const CHECKERS_MAX: usize = 8;
/// How long sled may take to flush to the operating system; even the slowest disk needs less.
const FLUSH_WITHIN: Duration = Duration::from_secs(40);

/// Why the tree cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum TreeFault {
    /// sled answered an error.
    #[error("the state failed: {0}")]
    Sled(String),
    /// sled panicked.
    #[error("the state failed: sled panicked")]
    Panicked,
    /// A value does not verify.
    #[error("the state holds a value that does not verify; it is rebuilt at the next start")]
    Altered,
    /// The operating system refused sled something: the tree may be sound.
    #[error("the state failed: {0}")]
    Refused(Arc<io::Error>),
    /// Another handle has it.
    #[error("the state is held by another handle")]
    Busy,
}

impl From<sled::Error> for TreeFault {
    fn from(error: sled::Error) -> Self {
        match error {
            sled::Error::Io(error) => error.into(),
            error @ (sled::Error::CollectionNotFound(_)
            | sled::Error::Unsupported(_)
            | sled::Error::ReportableBug(_)
            | sled::Error::Corruption { .. }) => Self::Sled(error.to_string()),
        }
    }
}

impl From<TreeFault> for StoreError {
    fn from(fault: TreeFault) -> Self {
        Self::Damaged(fault.to_string())
    }
}

impl From<io::Error> for TreeFault {
    fn from(error: io::Error) -> Self {
        if is_refusal(&error) {
            Self::Refused(Arc::new(error))
        } else {
            Self::Sled(error.to_string())
        }
    }
}

/// sled, dropped safely: it syncs on drop, and panics where that fails.
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
            // What was lost is replayed from the journal.
            tracing::warn!(%fault, "the state could not be made durable when it was let go");
        }
    }
}

/// What a copy needs of keys that change before it has reached them.
#[derive(Debug, Default)]
struct Copying {
    /// The last key that was copied.
    cursor: Vec<u8>,
    /// The values of later keys when the copy began.
    before: BTreeMap<Vec<u8>, Option<IVec>>,
}

/// The state of the store, as of its last entry.
#[derive(Debug)]
pub(super) struct Tree {
    db: Held,
    directory: PathBuf,
    meta: Mutex<Meta>,
    /// What sled does not have yet. Read-locked while a list is read: no edits are applied meanwhile.
    fresh: RwLock<Fresh>,
    /// Held while edits are applied, and while a page of a copy is read; locked before `copying` and `fresh`.
    writing: Mutex<()>,
    /// How many batches were applied since it was opened.
    batches: AtomicU64,
    /// How many of them sled has. Held while sled is written to; locked before `writing`.
    given: Mutex<u64>,
    copying: Mutex<Option<Copying>>,
}

/// A part of the tree to list, and where to begin.
#[derive(Debug, Clone)]
pub(super) struct List {
    /// The prefix of all its keys.
    pub(super) prefix: Vec<u8>,
    /// The rest of the key after which to begin, in the direction of the listing; `None`: at the beginning.
    pub(super) after: Option<Vec<u8>>,
}

/// In which order keys are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

impl Tree {
    /// Opens the tree in this folder, or makes it. The caller holds the journal's lock.
    pub(super) fn open(directory: &Path, cache_bytes: u64) -> Result<Self, TreeFault> {
        let db = open_sled(directory, cache_bytes)?;
        let meta = match guarded(|| db.get(keys::META))? {
            Some(bytes) => Meta::decode(keys::META, &bytes).ok_or(TreeFault::Altered)?,
            None => Meta::default(),
        };
        Ok(Self {
            db: Held(Some(db)),
            directory: directory.to_owned(),
            meta: Mutex::new(meta),
            fresh: RwLock::new(Fresh::new()),
            writing: Mutex::new(()),
            batches: AtomicU64::new(0),
            given: Mutex::new(0),
            copying: Mutex::new(None),
        })
    }

    /// How far it goes.
    pub(super) fn meta(&self) -> Meta {
        self.meta.lock().clone()
    }

    /// The value of a key.
    pub(super) fn get(&self, key: &[u8]) -> Result<Option<IVec>, TreeFault> {
        if let Some(value) = self.fresh.read().get(key) {
            return Ok(value.clone());
        }
        guarded(|| self.db.get()?.get(key))
    }

    /// The value of a key that holds a record, once it is verified.
    pub(super) fn record(&self, key: &[u8]) -> Result<Option<Stored>, TreeFault> {
        match self.get(key)? {
            Some(value) => decode_value(key, &value).map(Some).ok_or(TreeFault::Altered),
            None => Ok(None),
        }
    }

    /// Applies edits, all or none; `advance` computes the tree's new metadata.
    pub(super) fn apply(
        &self,
        edits: &Edits,
        advance: impl FnOnce(&mut Meta),
    ) -> Result<(), TreeFault> {
        let writing = self.writing.lock();
        let mut meta = self.meta();
        let mut copying = self.copying.lock();
        let mut fresh = Vec::with_capacity(edits.len());
        for (key, value) in edits {
            let old = self.get(key)?;
            if old.as_deref() == value.as_deref() {
                continue;
            }
            if let Some(old) = &old {
                meta.keys = meta.keys.wrapping_sub(1);
                meta.sum = meta.sum.wrapping_sub(hash_of(key, old));
            }
            if let Some(copying) = &mut *copying
                && *key > copying.cursor
            {
                copying.before.entry(key.clone()).or_insert(old);
            }
            if let Some(value) = value {
                meta.keys = meta.keys.wrapping_add(1);
                meta.sum = meta.sum.wrapping_add(hash_of(key, value));
            }
            fresh.push((key.clone(), value.as_deref().map(IVec::from)));
        }
        advance(&mut meta);
        let many = {
            let mut known = self.fresh.write();
            known.extend(fresh);
            *self.meta.lock() = meta;
            known.len()
        };
        self.batches.fetch_add(1, Ordering::Release);
        drop(copying);
        drop(writing);
        if many >= FRESH_KEYS_MAX { self.give_to_sled() } else { Ok(()) }
    }

    /// Writes the gathered keys to sled if there are many.
    pub(super) fn give_much(&self) -> Result<(), TreeFault> {
        if self.fresh.read().len() >= FRESH_KEYS { self.give_to_sled() } else { Ok(()) }
    }

    /// Writes the gathered keys to sled in one batch, with the tree's metadata. Edits go on meanwhile, and readers see the same before,
    /// meanwhile and after: a key stays here until sled has it, and longer if it has changed since.
    fn give_to_sled(&self) -> Result<(), TreeFault> {
        let mut given = self.given.lock();
        let (fresh, meta, batches) = {
            let _writing = self.writing.lock();
            let batches = self.batches.load(Ordering::Acquire);
            if *given == batches {
                return Ok(());
            }
            (self.fresh.read().clone(), self.meta(), batches)
        };
        let mut batch = Batch::default();
        for (key, value) in &fresh {
            match value {
                Some(value) => batch.insert(key.as_slice(), value),
                None => batch.remove(key.as_slice()),
            }
        }
        batch.insert(keys::META, meta.encode(keys::META));
        guarded(|| self.db.get()?.apply_batch(batch))?;
        self.fresh.write().retain(|key, value| fresh.get(key) != Some(value));
        *given = batches;
        Ok(())
    }

    /// Fills an empty tree with the keys of a snapshot; [`Self::begin_with`] sets its metadata.
    pub(super) fn fill(
        &self,
        pairs: &mut dyn Iterator<Item = (Vec<u8>, Vec<u8>)>,
    ) -> Result<(), TreeFault> {
        let mut batch = Batch::default();
        for (key, value) in pairs {
            batch.insert(key, value);
        }
        guarded(|| self.db.get()?.apply_batch(batch))
    }

    /// Sets the metadata of a filled tree.
    pub(super) fn begin_with(&self, meta: Meta) -> Result<(), TreeFault> {
        guarded(|| self.db.get()?.insert(keys::META, meta.encode(keys::META)))?;
        *self.meta.lock() = meta;
        Ok(())
    }

    /// Reads everything once: count and sum of the keys have to match the metadata, and every value has to verify. Answers what is wrong,
    /// if anything. It is read in parts, by several threads: a start waits for it.
    pub(super) fn check(&self) -> Result<Option<String>, TreeFault> {
        let meta = self.meta();
        let fresh = self.fresh.read();
        let fresh = &*fresh;
        let (parts, next) = (Span::parts(), AtomicUsize::new(0));
        let taken = || parts.get(next.fetch_add(1, Ordering::Relaxed)).cloned();
        let work = || guarded(|| sum_of(self.db.get()?, fresh, std::iter::from_fn(taken)));
        let workers = thread::available_parallelism().map_or(1, NonZero::get).min(CHECKERS_MAX);
        let (mut count, mut sum, mut altered) = (0_u64, 0_u64, false);
        for found in thread::scope(|scope| {
            let started: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let ended = started.into_iter().map(|worker| worker.join());
            ended.map(|end| end.unwrap_or(Err(TreeFault::Panicked))).collect::<Vec<_>>()
        }) {
            match found? {
                Some(found) => {
                    count = count.wrapping_add(found.count);
                    sum = sum.wrapping_add(found.sum);
                }
                None => altered = true,
            }
        }
        let expected = meta.keys;
        Ok(match (altered, count == expected, sum == meta.sum) {
            (true, _, _) => Some("it holds a value that does not verify".to_owned()),
            (false, false, _) => {
                Some(format!("it has {count} keys where it should have {expected}"))
            }
            (false, true, false) => Some("a key does not hold what was written".to_owned()),
            (false, true, true) => None,
        })
    }

    /// Keys and values of several lists at once, merged by the part of the key after each list's own prefix; `visit` says whether to
    /// go on. No batch is applied meanwhile.
    pub(super) fn merge(
        &self,
        lists: &[List],
        order: Order,
        visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
    ) -> Result<(), TreeFault> {
        let fresh = self.fresh.read();
        guarded(|| {
            let db = self.db.get()?;
            let cursor = |list| cursor(db, &fresh, list, order);
            let mut cursors: Vec<_> = lists.iter().map(cursor).collect();
            let mut heads: BTreeMap<(Vec<u8>, usize), IVec> = BTreeMap::new();
            for (at, cursor) in cursors.iter_mut().enumerate() {
                heads.extend(cursor.next().transpose()?.map(|(rest, value)| ((rest, at), value)));
            }
            let next = |heads: &mut BTreeMap<_, _>| match order {
                Order::Ascending => heads.pop_first(),
                Order::Descending => heads.pop_last(),
            };
            while let Some(((rest, at), value)) = next(&mut heads) {
                if !visit(&rest, &value) {
                    break;
                }
                let head = cursors.get_mut(at).and_then(Iterator::next).transpose()?;
                heads.extend(head.map(|(rest, value)| ((rest, at), value)));
            }
            Ok(())
        })
    }

    /// How many keys have this prefix.
    pub(super) fn count(&self, prefix: &[u8]) -> Result<u64, TreeFault> {
        let fresh = self.fresh.read();
        guarded(|| {
            let mut pairs = Pairs::new(self.db.get()?, &fresh, Span::of(prefix), Order::Ascending);
            pairs.try_fold(0_u64, |many, pair| pair.map(|_| many.saturating_add(1)))
        })
    }

    /// Up to `limit` keys after `after`, with their values, in order; the metadata is left out.
    fn page(&self, after: &[u8], limit: usize) -> Result<Vec<(IVec, IVec)>, TreeFault> {
        let fresh = self.fresh.read();
        guarded(|| {
            let pairs = Pairs::new(self.db.get()?, &fresh, Span::behind(after), Order::Ascending);
            let is_own = |pair: &Pair| !matches!(pair, Ok((key, _)) if key.as_ref() == keys::META);
            pairs.filter(is_own).take(limit).collect()
        })
    }

    /// All keys behind one of them, with their values, in order. They are read in pages: what is taken in meanwhile may be among them.
    pub(super) fn walk(
        &self,
        after: &[u8],
    ) -> impl Iterator<Item = Result<(IVec, IVec), TreeFault>> + use<'_> {
        let mut last = after.to_vec();
        let mut page = Vec::new().into_iter();
        let mut is_over = false;
        std::iter::from_fn(move || {
            if page.len() == 0 && !is_over {
                let found = self.page(&last, PAGE_KEYS);
                is_over = found.as_ref().map_or(true, |found| found.len() < PAGE_KEYS);
                let found = match found {
                    Ok(found) => found,
                    Err(fault) => return Some(Err(fault)),
                };
                if let Some((key, _)) = found.last() {
                    last = key.to_vec();
                }
                page = found.into_iter();
            }
            page.next().map(Ok)
        })
    }

    /// Begins a copy of the tree as it is now, and answers its metadata. Only one at a time.
    pub(super) fn begin_copy(&self) -> Meta {
        let _writing = self.writing.lock();
        *self.copying.lock() = Some(Copying::default());
        self.meta()
    }

    /// The next keys of the copy, up to about `limit`, as they were when it began; empty: it is complete.
    pub(super) fn copy_on(&self, limit: usize) -> Result<Vec<(IVec, IVec)>, TreeFault> {
        let _writing = self.writing.lock();
        let mut copying = self.copying.lock();
        let Some(copy) = &mut *copying else { return Ok(Vec::new()) };
        let page = self.page(&copy.cursor, limit)?;
        let last = page.last().map(|(key, _)| key.to_vec()).filter(|_| page.len() >= limit);
        let mut pairs: BTreeMap<IVec, IVec> = page.into_iter().collect();
        let later = match &last {
            Some(last) => {
                let mut later = copy.before.split_off(last);
                let at_last = later.remove(last);
                copy.before.extend(at_last.map(|value| (last.clone(), value)));
                later
            }
            None => BTreeMap::new(),
        };
        for (key, value) in std::mem::replace(&mut copy.before, later) {
            match value {
                Some(value) => drop(pairs.insert(key.into(), value)),
                None => drop(pairs.remove(key.as_slice())),
            }
        }
        match last {
            Some(last) => copy.cursor = last,
            None => *copying = None,
        }
        Ok(pairs.into_iter().collect())
    }

    /// Whether a copy is under way.
    pub(super) fn is_copying(&self) -> bool {
        self.copying.lock().is_some()
    }

    /// Ends a copy that is no longer wanted.
    pub(super) fn end_copy(&self) {
        *self.copying.lock() = None;
    }

    /// Flushes to the operating system.
    pub(super) fn flush(&self) -> Result<(), TreeFault> {
        self.give_to_sled()?;
        // On a thread of its own: after an error sled may wait for ever, for a word that was spoken before it listened.
        let db = self.db.get()?.clone();
        let (done, answer) = mpsc::channel();
        thread::Builder::new()
            .name("placet-state-flush".to_owned())
            .spawn(move || drop(done.send(guarded(|| db.flush()).map(drop))))?;
        let silent = |_| TreeFault::Sled("it does not answer any more".to_owned());
        answer.recv_timeout(FLUSH_WITHIN).map_err(silent)?
    }

    /// Makes everything durable. sled's `flush` does not sync, and its blobs are never synced: the files are synced here.
    pub(super) fn close(&self) -> Result<(), TreeFault> {
        self.flush()?;
        sync_all(&self.directory)?;
        let parent = self.directory.parent().filter(|parent| !parent.as_os_str().is_empty());
        parent.map_or(Ok(()), |parent| Ok(Disk.sync_dir(parent)?))
    }

    /// For tests: sled with everything in it, to be damaged behind the store's back.
    #[cfg(test)]
    pub(super) fn sled(&self) -> &Db {
        self.give_to_sled().unwrap();
        self.db.get().unwrap()
    }
}

/// Syncs the files of a folder and its subfolders, and their names.
fn sync_all(folder: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            sync_all(&path)?;
        } else {
            File::open(&path)?.sync_all()?;
        }
    }
    Disk.sync_dir(folder)
}

type Head = sled::Result<(Vec<u8>, IVec)>;

/// The keys of a list from its place on, without their prefix.
fn cursor<'a>(
    db: &Db,
    fresh: &'a Fresh,
    list: &'a List,
    order: Order,
) -> impl Iterator<Item = Head> + use<'a> {
    let mut span = Span::of(&list.prefix);
    if let Some(after) = &list.after {
        let at = Bound::Excluded([list.prefix.as_slice(), after].concat());
        match order {
            Order::Ascending => span.from = at,
            Order::Descending => span.to = at,
        }
    }
    Pairs::new(db, fresh, span, order).filter_map(|pair| match pair {
        Ok((key, value)) => {
            key.strip_prefix(list.prefix.as_slice()).map(|rest| Ok((rest.to_vec(), value)))
        }
        Err(error) => Some(Err(error)),
    })
}

/// Runs an operation of sled, which panics on damaged pages instead of returning an error.
fn guarded<T>(work: impl FnOnce() -> sled::Result<T>) -> Result<T, TreeFault> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(answer) => Ok(answer?),
        Err(_panic) => Err(TreeFault::Panicked),
    }
}

/// How long an earlier handle in this process may take to be dropped.
const BUSY_FOR: Duration = Duration::from_secs(10);
const BUSY_RETRY: Duration = Duration::from_millis(20);

fn open_sled(path: &Path, cache_bytes: u64) -> Result<Db, TreeFault> {
    let began = Instant::now();
    loop {
        match open_sled_once(path, cache_bytes) {
            Err(TreeFault::Busy) if began.elapsed() < BUSY_FOR => {
                thread::park_timeout(BUSY_RETRY);
            }
            opened => return opened,
        }
    }
}

fn open_sled_once(path: &Path, cache_bytes: u64) -> Result<Db, TreeFault> {
    remove_unfinished_snapshots(path)?;
    // Its own flusher is not used: it ignores errors.
    let config = sled::Config::new().path(path).cache_capacity(cache_bytes).flush_every_ms(None);
    // On a thread of its own: sled panics on damaged pages, and may leave anything behind on the stack that it panicked on.
    let opening =
        thread::Builder::new().name("placet-state-open".to_owned()).spawn(move || config.open())?;
    match opening.join() {
        Ok(Ok(db)) => Ok(db),
        Ok(Err(error)) if error.to_string().contains("could not acquire lock") => {
            Err(TreeFault::Busy)
        }
        Ok(Err(error)) => Err(error.into()),
        Err(_panic) => Err(TreeFault::Panicked),
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
