//! Where some of a segment's frames are, so that one frame is found without reading from the segment's start.
//!
//! Owns the marks of closed segments, in memory (bounded), and rebuilding them from the segment's headers. Not here: reading frames.
//! Invariant: a mark only shortens the search: the frame found by it is verified like any other.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::JournalError;
use super::files::SegmentFiles;
use super::reader::Stand;
use super::scan::SegmentIndex;

/// How many segments' marks are held: about two bytes for each of their entries.
const SEGMENTS_MAX: usize = 128;

/// Sequence numbers and offsets, ascending.
pub(crate) type Marks = Vec<(u64, u64)>;

/// The marks before and after an entry.
pub(crate) type Around = (Option<(u64, u64)>, Option<(u64, u64)>);

/// The last mark that is not after an entry, and the one that follows it.
pub(crate) fn marks_around(marks: &[(u64, u64)], seq: u64) -> Around {
    let after = marks.partition_point(|(marked, _)| *marked <= seq);
    let before = after.checked_sub(1).and_then(|at| marks.get(at).copied());
    (before, marks.get(after).copied())
}

/// The marks in memory.
#[derive(Debug, Default)]
pub(crate) struct MarksCache {
    held: Mutex<HashMap<u64, Arc<Marks>>>,
}

impl MarksCache {
    /// The marks of a closed segment: from memory, or rebuilt from its headers.
    pub(crate) fn of(
        &self,
        files: &SegmentFiles,
        segment: u64,
        first_seq: u64,
    ) -> Result<Arc<Marks>, JournalError> {
        if let Some(marks) = self.held.lock().get(&segment) {
            return Ok(Arc::clone(marks));
        }
        let marks = survey(files, segment, first_seq)?;
        Ok(self.put(segment, marks))
    }

    /// Keeps the marks of a segment that was closed.
    pub(crate) fn put(&self, segment: u64, mut marks: Marks) -> Arc<Marks> {
        marks.shrink_to_fit();
        let marks = Arc::new(marks);
        let mut held = self.held.lock();
        if held.len() >= SEGMENTS_MAX
            && let Some(any) = held.keys().next().copied()
        {
            held.remove(&any);
        }
        held.insert(segment, Arc::clone(&marks));
        marks
    }
}

/// Walks over the headers of a closed segment.
fn survey(files: &SegmentFiles, segment: u64, first_seq: u64) -> Result<Marks, JournalError> {
    let mut place = Stand::at_start(files, segment, first_seq)?;
    let mut index = SegmentIndex { number: segment, first_seq, marks: Vec::new() };
    loop {
        index.note(place.seq, place.offset);
        match place.walk_to(place.seq.saturating_add(1)) {
            Ok(()) => {}
            // It ends here, or is damaged here, which a reader that continues will report.
            Err(JournalError::Corrupt { .. }) => return Ok(index.marks),
            Err(error) => return Err(error),
        }
    }
}
