//! Archiving the oldest segments of the journal.
//!
//! Owns which segments may be archived. Not here: the moving (`journal::files`). Invariants: a segment is archived only when a snapshot
//! covers it, and when all its contents are erased; nothing is deleted.

use placet_types::clock::Timestamp;

use super::codec::decode_place;
use super::keeper::{Archived, KeepError, Keeper};
use super::tree::{List, Order};
use super::{keys, merkle};
use crate::journal::Base;

impl Keeper {
    /// Archives the segments of which all entries were made before `before`, as far as that is possible.
    pub(super) fn archive(&mut self, before: Timestamp) -> Result<Archived, KeepError> {
        // Segments left over because the archive was full or away earlier.
        let mut segments = self.move_away()?;
        if let Some(base) = self.next_base(before)? {
            self.journal.files().begin_archiving(&base)?;
            self.base = base;
            segments = segments.saturating_add(self.move_away()?);
        }
        Ok(Archived { segments, first_seq: self.base.first_seq })
    }

    /// Moves the segments before the base. A failure is no fault of the store, which reads them where they are.
    fn move_away(&self) -> Result<u64, KeepError> {
        self.journal.files().finish_archiving(&self.base).map_err(KeepError::Unmoved)
    }

    /// Where the journal may begin, if that is later than it does.
    fn next_base(&mut self, before: Timestamp) -> Result<Option<Base>, KeepError> {
        let oldest_content = self.oldest_content()?;
        let mut found = None;
        for (segment, first_seq) in
            self.journal.segments_before(self.tree.meta().applied_seq, self.base.segment)
        {
            let last = self.journal.read(first_seq.saturating_sub(1))?;
            if last.at_ms >= before.as_ms() || segment > oldest_content {
                break;
            }
            found = Some((segment, last));
        }
        let Some((segment, last)) = found else { return Ok(None) };
        if self.newest_sound()?.is_none_or(|newest| newest < last.seq) {
            self.snapshot()?;
        }
        let size = last.seq;
        let shown = merkle::view(&self.tree, |view| view.frontier(size));
        let frontier = shown.map_err(|error| KeepError::Merkle(error.to_string()))?;
        let first_seq = last.seq.saturating_add(1);
        Ok(Some(Base { segment, first_seq, prev: last.hash, frontier }))
    }

    /// The first segment with a content that is kept or still to be erased.
    fn oldest_content(&self) -> Result<u64, KeepError> {
        let mut oldest = u64::MAX;
        let kept = List { prefix: vec![keys::CONTENT], after: None };
        self.tree.merge(&[kept], Order::Ascending, &mut |_, place| {
            let segment = decode_place(place).map_or(0, |place| place.segment);
            oldest = oldest.min(segment);
            true
        })?;
        let owed = List { prefix: vec![keys::TO_ERASE], after: None };
        self.tree.merge(&[owed], Order::Ascending, &mut |place, _| {
            oldest = oldest.min(decode_place(place).map_or(0, |place| place.segment));
            false
        })?;
        Ok(oldest)
    }
}
