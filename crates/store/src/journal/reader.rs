//! Reading entries while the journal is being written.
//!
//! Owns: [`JournalReader`] (any thread) and [`FrameIter`]. Not here: writing, and the proof over the whole (`scan`).
//! Invariant: a reader hands out durable entries only, each verified by its checksum, and by the chain where it reads on.

use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::content::{Place, content_at};
use super::error::{Fault, JournalError};
use super::files::{Base, SegmentFiles};
use super::frame::{Frame, HEADER_BYTES, decode_header, frame_bytes};
use super::marks::{MarksCache, marks_around};
use super::medium::to_u64;
use super::scan::{Position, SegmentIndex, next_frame};
use super::segment::SEGMENT_HEADER_BYTES;
use super::window::Window;

/// What the writing journal shares with its readers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) files: SegmentFiles,
    marks: MarksCache,
    extent: RwLock<Extent>,
}

/// How far the journal goes.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) segments: Vec<SegmentIndex>,
    pub(crate) durable_seq: u64,
}

impl Shared {
    pub(crate) fn new(files: SegmentFiles, extent: Extent) -> Self {
        Self { files, marks: MarksCache::default(), extent: RwLock::new(extent) }
    }

    /// Adds a new segment. The marks of the one before move to bounded memory.
    pub(crate) fn close_segment(&self, closed: SegmentIndex, next: SegmentIndex) {
        self.marks.put(closed.number, closed.marks);
        let mut extent = self.extent_mut();
        if let Some(segment) = extent.segments.last_mut() {
            segment.marks = Vec::new();
        }
        extent.segments.push(next);
    }

    pub(crate) fn extent(&self) -> RwLockReadGuard<'_, Extent> {
        self.extent.read()
    }

    pub(crate) fn extent_mut(&self) -> RwLockWriteGuard<'_, Extent> {
        self.extent.write()
    }
}

/// Reads durable entries; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct JournalReader {
    shared: Arc<Shared>,
}

impl JournalReader {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// The last durable entry; 0 in an empty journal.
    pub fn durable_seq(&self) -> u64 {
        self.shared.extent().durable_seq
    }

    /// Reads one durable entry.
    ///
    /// # Errors
    /// [`JournalError::Absent`] where there is none, [`JournalError::Corrupt`] where its bytes have changed since.
    pub fn read(&self, seq: u64) -> Result<Frame, JournalError> {
        let mut frames = self.read_from(seq);
        frames.is_glance = true;
        let found = frames.next().filter(|_| seq > 0);
        found.unwrap_or(Err(JournalError::Absent { seq }))
    }

    /// Reads the bytes of a content; the caller compares them with its digest.
    pub(crate) fn content(&self, place: &Place) -> Result<Vec<u8>, JournalError> {
        self.shared.files.content(place)
    }

    /// The segments after number `after` that begin up to entry `seq`, with their first entries. No others are read: archived ones may be
    /// off the machine by now.
    pub(crate) fn segments_before(&self, seq: u64, after: u64) -> Vec<(u64, u64)> {
        let extent = self.shared.extent();
        let later = extent.segments.iter().skip(1);
        let later = later.filter(|segment| segment.number > after && segment.first_seq <= seq);
        later.map(|segment| (segment.number, segment.first_seq)).collect()
    }

    /// The segment that an entry is in, and where the entry ends in it.
    pub(crate) fn end_of(&self, seq: u64) -> Result<(u64, u64), JournalError> {
        let mut frames = self.read_from(seq);
        let mut place = frames.seek(seq)?;
        place.walk_to(seq.saturating_add(1))?;
        frames.until_seq = 0;
        Ok((place.segment, place.offset))
    }

    /// The files of the segments.
    pub(crate) fn files(&self) -> &SegmentFiles {
        &self.shared.files
    }

    /// The first entry that was not archived.
    ///
    /// # Errors
    /// It cannot be found out.
    pub(crate) fn first_kept(&self) -> Result<u64, JournalError> {
        let files = self.files();
        Ok(Base::read(&*files.medium, &files.directory)?.first_seq)
    }

    /// Reads on from an entry to the last one that is durable now.
    pub fn read_from(&self, seq: u64) -> FrameIter {
        let until = self.durable_seq();
        FrameIter::new(Arc::clone(&self.shared), seq, until)
    }
}

/// Entries in order; ends after the last one or after the first error.
#[derive(Debug)]
pub struct FrameIter {
    shared: Arc<Shared>,
    next_seq: u64,
    until_seq: u64,
    /// The last entry; none before the first.
    position: Option<Position>,
    place: Option<Stand>,
    /// Only one entry is wanted.
    is_glance: bool,
}

/// The reading position in a segment.
#[derive(Debug)]
pub(super) struct Stand {
    window: Window,
    segment: u64,
    pub(super) offset: u64,
    pub(super) seq: u64,
}

impl FrameIter {
    pub(crate) fn new(shared: Arc<Shared>, seq: u64, until_seq: u64) -> Self {
        Self {
            shared,
            next_seq: seq.max(1),
            until_seq,
            position: None,
            place: None,
            is_glance: false,
        }
    }

    fn read_next(&mut self) -> Result<Frame, JournalError> {
        let wanted = self.next_seq;
        let mut place = match self.place.take() {
            Some(place) => place,
            None => self.seek(wanted)?,
        };
        place.walk_to(wanted)?;
        let (frame, end) = next_frame(&mut place.window, place.segment, place.offset)?
            .map_err(|fault| place.corrupt(fault))?;
        // The first one is tied to nothing before it.
        let before =
            Position { seq: wanted.saturating_sub(1), head: frame.prev, ..Position::START };
        let position = self.position.get_or_insert(before);
        position.advance(&frame).map_err(|fault| place.corrupt(fault))?;
        place.offset = end;
        place.seq = wanted.saturating_add(1);
        self.next_seq = place.seq;
        let next_is_elsewhere = {
            let extent = self.shared.extent();
            segment_of(&extent.segments, self.next_seq)
                .is_none_or(|segment| segment.number != place.segment)
        };
        self.place = Some(place).filter(|_| !next_is_elsewhere);
        Ok(frame)
    }

    fn seek(&self, seq: u64) -> Result<Stand, JournalError> {
        let (number, first_seq, around) = {
            let extent = self.shared.extent();
            let segment = segment_of(&extent.segments, seq).ok_or(JournalError::Absent { seq })?;
            let around = (!segment.marks.is_empty()).then(|| marks_around(&segment.marks, seq));
            (segment.number, segment.first_seq, around)
        };
        let (before, after) = match around {
            Some(around) => around,
            None => {
                let marks = self.shared.marks.of(&self.shared.files, number, first_seq)?;
                marks_around(&marks, seq)
            }
        };
        let mut place = Stand::at_start(&self.shared.files, number, first_seq)?;
        (place.seq, place.offset) = before.unwrap_or((place.seq, place.offset));
        if self.is_glance {
            let span = after.and_then(|(_, end)| end.checked_sub(place.offset));
            place.window = place.window.glance(span);
        }
        Ok(place)
    }
}

impl Stand {
    /// Before the first entry of a segment.
    pub(super) fn at_start(
        files: &SegmentFiles,
        segment: u64,
        first_seq: u64,
    ) -> Result<Self, JournalError> {
        let (file, path) = files.open_read(segment)?;
        let window = Window::new(file, path);
        Ok(Self { window, segment, offset: SEGMENT_HEADER_BYTES, seq: first_seq })
    }

    /// From the mark to the wanted entry only headers are read.
    pub(super) fn walk_to(&mut self, wanted: u64) -> Result<(), JournalError> {
        while self.seq < wanted {
            while let Some(content) = content_at(&mut self.window, self.segment, self.offset)? {
                self.offset = content.place.end();
            }
            let header = decode_header(self.window.at(self.offset, HEADER_BYTES)?);
            let (_, payload_bytes) = header.map_err(|fault| self.corrupt(fault))?;
            self.offset = self.offset.saturating_add(to_u64(frame_bytes(payload_bytes)));
            self.seq = self.seq.saturating_add(1);
        }
        Ok(())
    }

    fn corrupt(&self, fault: Fault) -> JournalError {
        JournalError::Corrupt { segment: self.segment, offset: self.offset, seq: self.seq, fault }
    }
}

impl Iterator for FrameIter {
    type Item = Result<Frame, JournalError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next_seq > self.until_seq {
            return None;
        }
        let frame = self.read_next();
        if frame.is_err() {
            self.until_seq = 0;
        }
        Some(frame)
    }
}

fn segment_of(segments: &[SegmentIndex], seq: u64) -> Option<&SegmentIndex> {
    let after = segments.partition_point(|segment| segment.first_seq <= seq);
    after.checked_sub(1).and_then(|at| segments.get(at))
}
