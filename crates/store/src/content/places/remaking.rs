//! The places rebuilt: gathered from what the packs say, and put in the place of what was known.
//!
//! Owns the gathering, within the memory that the places have at any time. Not here: the reading of packs (`mending`).
//! Invariant: no table is made or swept meanwhile, which would bring the old ones back or take the new ones away.

use std::path::PathBuf;
use std::sync::{MutexGuard, PoisonError};

use placet_types::digest::Digest;

use super::{Located, PLACES_MAX, Packs, PlaceIndex, Places, TenantKey, decode, key};
use crate::content::error::ContentError;
use crate::sorted::{Merged, Source, TableSet};

/// Places that are being gathered.
pub(crate) struct Remaking<'a> {
    index: &'a PlaceIndex,
    next_table: MutexGuard<'a, u64>,
    held: Places,
    tables: TableSet,
    /// Tables that were found damaged.
    damaged: Vec<PathBuf>,
}

impl PlaceIndex {
    /// Begins to make the places anew. What is known counts until [`Remaking::done`].
    pub(crate) fn remake(&self) -> Remaking<'_> {
        let next_table = self.next_table.lock().unwrap_or_else(PoisonError::into_inner);
        let (held, tables, damaged) = (Places::new(), TableSet::default(), Vec::new());
        Remaking { index: self, next_table, held, tables, damaged }
    }
}

#[cfg(test)]
impl PlaceIndex {
    /// For tests: how many places are in memory.
    pub(crate) fn held(&self) -> usize {
        self.levels.read().unwrap_or_else(PoisonError::into_inner).held()
    }
}

impl Remaking<'_> {
    /// What was gathered of a piece.
    ///
    /// # Errors
    /// [`ContentError`]: what was put into a table cannot be read back.
    pub(crate) fn get(
        &self,
        tenant: TenantKey,
        digest: Digest,
    ) -> Result<Option<Located>, ContentError> {
        if let Some(located) = self.held.get(&(tenant, digest)) {
            return Ok(Some(*located));
        }
        let found = self.tables.get_filtered(&key(&tenant, &digest));
        Ok(found.map_err(ContentError::places)?.map(|value| decode(&value)))
    }

    /// A piece is there, or gone.
    pub(crate) fn put(&mut self, tenant: TenantKey, digest: Digest, located: Located) {
        self.held.insert((tenant, digest), located);
    }

    /// Makes a table of what is in memory if that is much.
    ///
    /// # Errors
    /// What the medium answers.
    pub(crate) fn tend(&mut self) -> Result<(), ContentError> {
        if self.held.len() < PLACES_MAX {
            return Ok(());
        }
        let tables = std::mem::take(&mut self.tables);
        self.tables = self.index.write_table(&self.held, tables, &mut self.next_table)?;
        self.held.clear();
        Ok(())
    }

    /// What the old tables, as far as they verify, say was deleted is deleted still, where the packs say nothing: a pack that was written
    /// anew holds nothing of it.
    ///
    /// # Errors
    /// What the medium answers.
    pub(crate) fn take_over_deletions(&mut self) -> Result<(), ContentError> {
        let old = self.index.levels.read().unwrap_or_else(PoisonError::into_inner).tables.clone();
        let mut sound: Vec<Source> = Vec::new();
        for (table, cursor) in old.tables().iter().zip(old.cursors(&[])) {
            match table.verify().map_err(ContentError::places) {
                Ok(()) => sound.push(cursor),
                Err(ContentError::Places(_)) => self.damaged.push(table.path().to_owned()),
                // It may be sound, and say of something that it was deleted.
                Err(error) => return Err(error),
            }
        }
        for pair in Merged::new(sound) {
            let (key, value) = pair.map_err(ContentError::places)?;
            let Some((tenant, digest)) = key.split_first_chunk::<32>() else { continue };
            let Some(digest) = digest.first_chunk::<32>() else { continue };
            let digest = Digest::from_bytes(*digest);
            if decode(&value) == Located::Gone && self.get(*tenant, digest)?.is_none() {
                self.put(*tenant, digest, Located::Gone);
                self.tend()?;
            }
        }
        Ok(())
    }

    /// What was gathered takes the place of the tables; what was learnt of late counts all the same. Damaged tables are set aside once a
    /// manifest is in place that does without them.
    pub(crate) fn done(self, infos: Packs, why: Option<&str>) {
        let Self { index, next_table, mut held, tables, damaged } = self;
        {
            let mut levels = index.levels.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(frozen) = levels.frozen.take() {
                held.extend(frozen.iter().map(|(key, located)| (*key, *located)));
            }
            held.extend(std::mem::take(&mut levels.active));
            levels.active = held;
            for (tenant, infos) in infos {
                for (number, info) in infos {
                    let known = levels.packs.get_mut(&tenant).and_then(|of| of.get_mut(&number));
                    if let Some(known) = known.filter(|known| known.length == info.length) {
                        *known = info;
                    }
                }
            }
            levels.tables = tables;
            levels.damaged.extend(damaged);
            levels.is_partial = false;
            levels.mended = levels.mended.saturating_add(1);
            // What only the old tables say durably is to be in the new ones before anybody relies on it.
            levels.has_deletions = true;
        }
        if let Some(why) = why {
            *index.damage.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_owned());
        }
        drop(next_table);
    }
}
