//! Reading entries while the journal is being written.
//!
//! Owns: [`JournalReader`] (any thread) and [`FrameIter`]. Not here: writing, and the proof over the whole (`scan`).
//! Invariant: a reader hands out durable entries only, each verified by its checksum, and by the chain where it reads on.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::error::{Fault, JournalError};
use super::frame::{Frame, HEADER_BYTES, decode_header, frame_bytes};
use super::medium::{Medium, to_u64};
use super::scan::{SegmentIndex, next_frame};
use super::segment::{SEGMENT_HEADER_BYTES, path_of};
use super::window::Window;

/// What the writing journal tells its readers.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) directory: PathBuf,
    extent: RwLock<Extent>,
}

/// How far the journal goes.
#[derive(Debug)]
pub(crate) struct Extent {
    pub(crate) segments: Vec<SegmentIndex>,
    pub(crate) written_seq: u64,
    pub(crate) durable_seq: u64,
}

impl Shared {
    pub(crate) fn new(medium: Arc<dyn Medium>, directory: PathBuf, extent: Extent) -> Self {
        Self { medium, directory, extent: RwLock::new(extent) }
    }

    // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
    pub(crate) fn extent(&self) -> RwLockReadGuard<'_, Extent> {
        self.extent.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn extent_mut(&self) -> RwLockWriteGuard<'_, Extent> {
        self.extent.write().unwrap_or_else(PoisonError::into_inner)
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
        let until = self.durable_seq();
        read_one(&self.shared, seq, until)
    }

    /// Reads on from an entry to the last one that is durable now.
    pub fn read_from(&self, seq: u64) -> FrameIter {
        let until = self.durable_seq();
        FrameIter::new(Arc::clone(&self.shared), seq, until)
    }
}

/// Reads one entry up to a limit.
pub(crate) fn read_one(shared: &Arc<Shared>, seq: u64, until: u64) -> Result<Frame, JournalError> {
    let mut frames = FrameIter::new(Arc::clone(shared), seq, if seq == 0 { 0 } else { until });
    frames.next().unwrap_or(Err(JournalError::Absent { seq }))
}

/// Entries in order; ends after the last one or after the first error.
#[derive(Debug)]
pub struct FrameIter {
    shared: Arc<Shared>,
    next_seq: u64,
    until_seq: u64,
    prev: Option<[u8; 32]>,
    place: Option<Place>,
}

#[derive(Debug)]
struct Place {
    window: Window,
    segment: u64,
    offset: u64,
    seq: u64,
}

impl FrameIter {
    pub(crate) fn new(shared: Arc<Shared>, seq: u64, until_seq: u64) -> Self {
        Self { shared, next_seq: seq.max(1), until_seq, prev: None, place: None }
    }

    fn read_next(&mut self) -> Result<Frame, JournalError> {
        let wanted = self.next_seq;
        let mut place = match self.place.take() {
            Some(place) => place,
            None => self.seek(wanted)?,
        };
        // From the noted place to the wanted one only headers are looked at.
        while place.seq < wanted {
            let header = decode_header(place.window.at(place.offset, HEADER_BYTES)?);
            let (_, payload_bytes) = header.map_err(|fault| place.corrupt(fault))?;
            place.offset = place.offset.saturating_add(to_u64(frame_bytes(payload_bytes)));
            place.seq = place.seq.saturating_add(1);
        }
        let frame =
            next_frame(&mut place.window, place.offset)?.map_err(|fault| place.corrupt(fault))?;
        if frame.seq != wanted {
            return Err(place.corrupt(Fault::Sequence { found: frame.seq }));
        }
        if self.prev.is_some_and(|prev| prev != frame.prev) {
            return Err(place.corrupt(Fault::Chain));
        }
        place.offset = place.offset.saturating_add(to_u64(frame_bytes(frame.payload.len())));
        place.seq = wanted.saturating_add(1);
        self.prev = Some(frame.hash);
        self.next_seq = place.seq;
        let next_is_elsewhere = {
            let extent = self.shared.extent();
            segment_of(&extent.segments, self.next_seq)
                .is_none_or(|segment| segment.number != place.segment)
        };
        self.place = Some(place).filter(|_| !next_is_elsewhere);
        Ok(frame)
    }

    fn seek(&self, seq: u64) -> Result<Place, JournalError> {
        let (segment, mark) = {
            let extent = self.shared.extent();
            let segment = segment_of(&extent.segments, seq).ok_or(JournalError::Absent { seq })?;
            let after = segment.marks.partition_point(|(marked, _)| *marked <= seq);
            let mark = after.checked_sub(1).and_then(|at| segment.marks.get(at).copied());
            (segment.number, mark.unwrap_or((segment.first_seq, SEGMENT_HEADER_BYTES)))
        };
        let path = path_of(&self.shared.directory, segment);
        let file = self
            .shared
            .medium
            .open_read(&path)
            .map_err(JournalError::io("open the segment", &path))?;
        Ok(Place { window: Window::new(file, path), segment, offset: mark.1, seq: mark.0 })
    }
}

impl Place {
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
