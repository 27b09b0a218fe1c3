//! Writing a tree that is rebuilt.
//!
//! Owns writing from several threads, key by key: one batch of sled's keeps everybody else out of it. They write while more is gathered.
//! Invariant: the metadata is written last, so that a tree that was left in the middle of this does not match it, and is built again at
//! the next start.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use sled::{Db, IVec};

use super::{Tree, TreeFault, guarded};
use crate::embedded::codec::Meta;
use crate::embedded::edits::Edits;
use crate::embedded::keys;
use crate::embedded::sums::hash_of;

/// How many keys are gathered before they are written; in tests of the store so few that this happens.
const GATHERED_MAX: usize = if cfg!(test) { 64 } else { 16_384 };
/// The most threads that write.
const WRITERS_MAX: usize = 8;

/// Keys with their values; `None`: the key is removed.
type Gathered = Vec<(Vec<u8>, Option<IVec>)>;

/// The keys that are written at the moment. Nobody else uses the tree until [`Self::finish`].
#[derive(Debug, Default)]
pub(in crate::embedded) struct Rebuilding {
    pairs: Arc<Gathered>,
    writers: Vec<JoinHandle<Result<Change, TreeFault>>>,
    /// How many keys were gathered meanwhile.
    gathered: usize,
}

/// What writing some keys changed in the count and the sum of all.
#[derive(Debug, Default)]
struct Change {
    keys: u64,
    sum: u64,
}

impl Rebuilding {
    /// Applies edits as [`Tree::apply`] does, without reading what they replace before it is written.
    pub(in crate::embedded) fn apply(
        &mut self,
        tree: &Tree,
        edits: Edits,
        advance: impl FnOnce(&mut Meta),
    ) -> Result<(), TreeFault> {
        advance(&mut tree.meta.lock());
        self.gathered = self.gathered.saturating_add(edits.len());
        let as_kept = |value: Option<Vec<u8>>| value.map(IVec::from);
        tree.fresh.write().extend(edits.into_iter().map(|(key, value)| (key, as_kept(value))));
        if self.gathered < GATHERED_MAX {
            return Ok(());
        }
        self.wait(tree)?;
        self.begin(tree)
    }

    /// Writes what was gathered, and then the metadata.
    pub(in crate::embedded) fn finish(&mut self, tree: &Tree) -> Result<(), TreeFault> {
        self.wait(tree)?;
        self.begin(tree)?;
        self.wait(tree)?;
        let meta = tree.meta().encode(keys::META);
        guarded(|| tree.db.get()?.insert(keys::META, meta))?;
        Ok(())
    }

    /// Begins to write what was gathered. Until it is written, readers find it where it is.
    fn begin(&mut self, tree: &Tree) -> Result<(), TreeFault> {
        let fresh = tree.fresh.read();
        self.pairs =
            Arc::new(fresh.iter().map(|(key, value)| (key.clone(), value.clone())).collect());
        self.gathered = 0;
        let many = thread::available_parallelism().map_or(1, NonZero::get).min(WRITERS_MAX);
        let part = self.pairs.len().div_ceil(many).max(1);
        for number in 0..self.pairs.len().div_ceil(part) {
            let (db, pairs) = (tree.db.get()?.clone(), Arc::clone(&self.pairs));
            let write = move || {
                guarded(|| write_each(&db, pairs.chunks(part).nth(number).unwrap_or_default()))
            };
            let writer = thread::Builder::new().name("placet-rebuild".to_owned()).spawn(write);
            self.writers.push(writer?);
        }
        Ok(())
    }

    /// Waits until it is written.
    fn wait(&mut self, tree: &Tree) -> Result<(), TreeFault> {
        let ended: Vec<_> = self.writers.drain(..).map(JoinHandle::join).collect();
        for change in ended {
            let Change { keys, sum } = change.unwrap_or(Err(TreeFault::Panicked))?;
            let mut meta = tree.meta.lock();
            meta.keys = meta.keys.wrapping_add(keys);
            meta.sum = meta.sum.wrapping_add(sum);
        }
        let mut fresh = tree.fresh.write();
        for (key, value) in std::mem::take(&mut self.pairs).iter() {
            // It may have changed since.
            if fresh.get(key) == Some(value) {
                fresh.remove(key);
            }
        }
        Ok(())
    }
}

impl Drop for Rebuilding {
    /// After a fault: nobody writes to a tree that is let go.
    fn drop(&mut self) {
        for writer in self.writers.drain(..) {
            drop(writer.join());
        }
    }
}

fn write_each(db: &Db, pairs: &[(Vec<u8>, Option<IVec>)]) -> sled::Result<Change> {
    let mut change = Change::default();
    for (key, value) in pairs {
        let old = match value {
            Some(value) => db.insert(key, value)?,
            None => db.remove(key)?,
        };
        if let Some(value) = value {
            change.keys = change.keys.wrapping_add(1);
            change.sum = change.sum.wrapping_add(hash_of(key, value));
        }
        if let Some(old) = old {
            change.keys = change.keys.wrapping_sub(1);
            change.sum = change.sum.wrapping_sub(hash_of(key, &old));
        }
    }
    Ok(change)
}
