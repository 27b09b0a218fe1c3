//! Moving the oldest segments of the journal away, without losing a record.
//!
//! Owns which segments may go, and the carrying over of records whose last form stands in them. Not here: the moving
//! (`journal::files`). Invariants: a segment goes only when the checkpoint before the last one covers it, so that either of them can
//! be started from; a record can be read before, while and after its entry is archived; nothing is deleted.

use std::collections::BTreeMap;

use placet_ledger::proof::Frontier;
use placet_types::clock::Timestamp;

use super::codec::{EffectEntry, decode_entry, decode_value, encode_value};
use super::floor::Footing;
use super::keeper::{Archived, KeepError, Keeper};
use super::keys;
use crate::journal::{Base, Unmoved};
use crate::sorted::{TableSet, TableWriter};

/// How many bytes of records are gathered before they become a table.
const BYTES_MAX: usize = 64 << 20;

impl Keeper {
    /// Archives the segments of which all entries were made before `before`, as far as two checkpoints cover them.
    pub(super) fn archive(&mut self, before: Timestamp) -> Result<Archived, KeepError> {
        // What the archive had no room for, or was away for, at an earlier time.
        let moved = self.move_away()?;
        // Two, so that the older one covers everything as well.
        for _ in 0..2 {
            if self.covered_before_seq < self.journal.durable_seq() {
                self.checkpoint()?;
            }
        }
        let Some((base, floor)) = self.next_footing(before)? else {
            let first_seq = self.footing.base.first_seq;
            return Ok(Archived { segments: moved, first_seq, ..Archived::default() });
        };
        let (bodies, records) = self.carry_over(&base)?;
        self.bodies.set(bodies);
        let ahead = self.footing.ahead.replace((base, floor.clone()));
        if let Err(error) = self.begin(&base) {
            self.footing.ahead = ahead;
            return Err(error);
        }
        self.footing = Footing { base, floor: Some(floor), ahead: None };
        let segments = self.move_away()?.saturating_add(moved);
        Ok(Archived { segments, first_seq: base.first_seq, records })
    }

    /// Up to where everything goes now, with the tree over that. What a kill cut short, and checkpoints name still, is done in any case:
    /// somebody asked for it.
    fn next_footing(&self, before: Timestamp) -> Result<Option<(Base, Frontier)>, KeepError> {
        let begun = self.footing.ahead.clone();
        let is_further =
            |base: &Base| begun.as_ref().is_none_or(|(begun, _)| begun.first_seq < base.first_seq);
        match self.archivable(before)?.filter(is_further) {
            Some(base) => {
                let floor = self.tree.frontier(base.first_seq.saturating_sub(1))?;
                Ok(Some((base, floor)))
            }
            None => Ok(begun),
        }
    }

    /// Makes it known, durably, that everything before `base` goes. Where that fails, nothing is moved: what is moved is what the file
    /// `base` says.
    fn begin(&mut self, base: &Base) -> Result<(), KeepError> {
        // Both checkpoints that are kept say so, durably, before anything is moved: either may have to be started from.
        self.checkpoint()?;
        self.checkpoint()?;
        Ok(self.journal.files().begin_archiving(base)?)
    }

    /// Moves what the base says is to be moved. An archive that does not take it is no fault of the store.
    fn move_away(&self) -> Result<u64, KeepError> {
        self.journal.files().finish_archiving(&self.footing.base).map_err(|error| match error {
            Unmoved::Journal(error) => KeepError::Journal(error),
            Unmoved::Archive(error) => KeepError::Unmoved(error),
        })
    }

    /// The last segment up to which everything may be archived.
    fn archivable(&self, before: Timestamp) -> Result<Option<Base>, KeepError> {
        let covered = self.covered_seq.min(self.covered_before_seq);
        let candidates =
            self.journal.segments_before(covered.saturating_add(1), self.footing.base.segment)?;
        let mut found = None;
        for base in candidates {
            let last = self.journal.read(base.first_seq.saturating_sub(1))?;
            if last.at_ms >= before.as_ms() {
                break;
            }
            found = Some(base);
        }
        Ok(found)
    }

    /// Puts the records whose last form stands before `base` into tables; answers these, and how many records there were.
    fn carry_over(&mut self, base: &Base) -> Result<(TableSet, u64), KeepError> {
        let mut carried = Carried { tables: self.bodies.get(), ..Carried::default() };
        for frame in self.journal.read_from(self.footing.base.first_seq) {
            let frame = frame?;
            if frame.seq >= base.first_seq {
                break;
            }
            let entry = decode_entry(frame.kind, &frame.payload).map_err(|error| {
                KeepError::Damaged(format!("entry {} cannot be read: {error}", frame.seq))
            })?;
            for effect in entry.effects {
                if let EffectEntry::Put(record) = effect {
                    self.carry(
                        &mut carried,
                        frame.seq,
                        (keys::effect(&record.record_id), &*record),
                    )?;
                }
            }
            for approval in &entry.approvals {
                let key = keys::approval(&approval.approval_id);
                self.carry(&mut carried, frame.seq, (key, approval))?;
            }
        }
        self.put_down(&mut carried)?;
        Ok((carried.tables, carried.records))
    }

    fn carry(
        &mut self,
        carried: &mut Carried,
        seq: u64,
        (key, record): (Vec<u8>, &impl serde::Serialize),
    ) -> Result<(), KeepError> {
        if self.index.read(&key)?.is_none_or(|stored| stored.seq != seq) {
            return Ok(());
        }
        let body = serde_json::to_vec(record)
            .map_err(|error| KeepError::Damaged(format!("a record has no JSON form: {error}")))?;
        let value = encode_value(&key, seq, &body);
        carried.bytes = carried.bytes.saturating_add(key.len()).saturating_add(value.len());
        if carried.pairs.insert(key, value).is_none() {
            carried.records = carried.records.saturating_add(1);
        }
        if carried.bytes >= BYTES_MAX { self.put_down(carried) } else { Ok(()) }
    }

    fn put_down(&mut self, carried: &mut Carried) -> Result<(), KeepError> {
        if carried.pairs.is_empty() {
            return Ok(());
        }
        let mut spill = self.spill();
        let mut writer = spill.writer()?;
        for (key, value) in std::mem::take(&mut carried.pairs) {
            writer.put(&key, &value, true)?;
        }
        carried.bytes = 0;
        carried.tables = carried.tables.with(writer.finish()?);
        if let Some(count) = carried.tables.due_for_merge() {
            let merged = self.merge_bodies(&carried.tables, count, spill.writer()?)?;
            carried.tables = carried.tables.replaced(count, merged);
        }
        self.next_table = spill.next_table;
        Ok(())
    }

    /// Writes tables as one, without the records that have moved on since: those stand in later entries.
    fn merge_bodies(
        &self,
        tables: &TableSet,
        count: usize,
        mut writer: TableWriter,
    ) -> Result<crate::sorted::Table, KeepError> {
        for pair in tables.newest(count) {
            let (key, value) = pair?;
            let seq = decode_value(&key, &value).map(|stored| stored.seq);
            if seq.is_some() && self.index.read(&key)?.map(|stored| stored.seq) == seq {
                writer.put(&key, &value, true)?;
            }
        }
        Ok(writer.finish()?)
    }
}

#[derive(Default)]
struct Carried {
    tables: TableSet,
    pairs: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
    records: u64,
}
