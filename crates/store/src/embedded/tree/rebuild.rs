//! Writing a tree that is rebuilt.
//!
//! Owns writing from several threads, key by key: one batch of sled's keeps everybody else out of it. Not whole entries at a time: a tree
//! that was left in the middle of this does not match its metadata, and is built again at the next start.

use std::num::NonZero;
use std::thread;

use sled::{Db, IVec};

use super::{FRESH_KEYS_MAX, Tree, TreeFault, guarded};
use crate::embedded::codec::Meta;
use crate::embedded::edits::Edits;
use crate::embedded::keys;
use crate::embedded::sums::hash_of;

/// The most threads that write.
const WRITERS_MAX: usize = 8;

/// What writing some keys changed in the count and the sum of all.
#[derive(Debug, Default)]
struct Change {
    keys: u64,
    sum: u64,
}

impl Tree {
    /// Applies edits as [`Tree::apply`] does, without reading what they replace before it is written. Nobody else uses the tree meanwhile.
    pub(in crate::embedded) fn apply_rebuilt(
        &self,
        edits: Edits,
        advance: impl FnOnce(&mut Meta),
    ) -> Result<(), TreeFault> {
        advance(&mut self.meta.lock());
        let many = {
            let mut fresh = self.fresh.write();
            let as_kept = |value: Option<Vec<u8>>| value.map(IVec::from);
            fresh.extend(edits.into_iter().map(|(key, value)| (key, as_kept(value))));
            fresh.len()
        };
        if many >= FRESH_KEYS_MAX { self.write_rebuilt() } else { Ok(()) }
    }

    /// Writes what was gathered, and then the metadata.
    pub(in crate::embedded) fn write_rebuilt(&self) -> Result<(), TreeFault> {
        let pairs: Vec<_> = std::mem::take(&mut *self.fresh.write()).into_iter().collect();
        let writers = thread::available_parallelism().map_or(1, NonZero::get).min(WRITERS_MAX);
        let part = pairs.len().div_ceil(writers).max(1);
        let changes = thread::scope(|scope| {
            let write = |pairs| guarded(|| write_each(self.db.get()?, pairs));
            let started: Vec<_> =
                pairs.chunks(part).map(|pairs| scope.spawn(move || write(pairs))).collect();
            let ended = started.into_iter().map(|writer| writer.join());
            ended.map(|end| end.unwrap_or(Err(TreeFault::Panicked))).collect::<Vec<_>>()
        });
        let mut meta = self.meta.lock();
        for change in changes {
            let Change { keys, sum } = change?;
            meta.keys = meta.keys.wrapping_add(keys);
            meta.sum = meta.sum.wrapping_add(sum);
        }
        guarded(|| self.db.get()?.insert(keys::META, meta.encode(keys::META)))?;
        Ok(())
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
