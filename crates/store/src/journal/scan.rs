//! Reading a whole journal and verifying every byte of it, in order.
//!
//! Owns: the checks of segments, frames and chain, and [`verify`]. Not here: repairing (nothing is repaired but a torn tail,
//! by `Journal::open`). Invariant: reads only; the first thing that is wrong ends the scan with its exact place.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::error::{Fault, JournalError, VisitError};
use super::files::{Base, SegmentFiles};
use super::frame::{Frame, HEADER_BYTES, decode, decode_header, frame_bytes};
use super::marks::Marks;
use super::medium::{Disk, to_u64, to_usize};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader};
use super::tail::{Tail, judge};
use super::window::Window;
use super::witness::Witness;

/// Every so many entries one is noted with its place, so that a single entry is found without reading from the start.
pub(crate) const INDEX_EVERY: u64 = 8;

/// What [`verify`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many entries there are.
    pub frames: u64,
    /// How many segments there are, archived ones included.
    pub segments: u64,
    /// The first entry that was verified: more than 1 where the archive is not there. The chain before it is tied to the rest by
    /// its hash alone.
    pub first_seq: u64,
    /// How many of the segments were read from the archive.
    pub archived_segments: u64,
    /// Bytes at the end that an interrupted append left; the next start cuts them off.
    pub torn_bytes: u64,
    /// The epoch of the last process that opened the journal.
    pub epoch: u64,
    /// The last entry; 0 in an empty journal.
    pub last_seq: u64,
    /// The hash of the last entry: compare it with one kept elsewhere.
    pub head: [u8; 32],
    /// The last entry that the witness knows to be durable.
    pub witness_seq: u64,
    /// When the first entry was made, in milliseconds since 1970.
    pub first_at_ms: Option<i64>,
    /// When the last entry was made, in milliseconds since 1970.
    pub last_at_ms: Option<i64>,
}

/// Verifies a journal without changing anything and without taking the lock. Archived segments are read from the folder beside
/// the journal where they are there; else verification begins where the rest is tied to them.
///
/// # Errors
/// The first thing that is wrong, with its exact place; or what the operating system answered.
pub fn verify(directory: &Path) -> Result<VerifyReport, JournalError> {
    verify_each(directory, None, &mut |_| Ok(()))
}

/// The same, and hands each entry to `visit`, in order, once it is verified; with the archive in another folder.
///
/// # Errors
/// As [`verify`]; and what `visit` refuses.
pub fn verify_each(
    directory: &Path,
    archive: Option<&Path>,
    visit: &mut dyn FnMut(&Frame) -> Result<(), VisitError>,
) -> Result<VerifyReport, JournalError> {
    let files = SegmentFiles::new(Arc::new(Disk), directory, archive);
    let (witness, scan) = scan(&files, &Begin::Earliest, visit)?;
    let archived = scan.segments.iter().filter(|segment| segment.number < scan.base.segment);
    Ok(VerifyReport {
        frames: scan.position.seq,
        segments: scan.segments.last().map_or(0, |segment| segment.number),
        first_seq: scan.first_seq,
        archived_segments: to_u64(archived.count()),
        torn_bytes: scan.torn_bytes,
        epoch: witness.map_or(0, |witness| witness.epoch),
        last_seq: scan.position.seq,
        head: scan.position.head,
        witness_seq: witness.map_or(0, |witness| witness.seq),
        first_at_ms: scan.first_at_ms,
        last_at_ms: scan.first_at_ms.map(|_| scan.position.at_ms),
    })
}

/// An entry that is known to be sound, and where it is: verification may go on from there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Start {
    pub(crate) segment: u64,
    /// Where the entry begins in its segment.
    pub(crate) offset: u64,
    pub(crate) seq: u64,
    pub(crate) head: [u8; 32],
    /// Where frames before it are in the same segment.
    pub(crate) marks: Marks,
}

/// Where a scan begins.
#[derive(Debug)]
pub(crate) enum Begin {
    /// At the first entry, which must be there, in the archive perhaps.
    First,
    /// At the earliest entry that is still there.
    Earliest,
    /// After an entry that is known to be sound.
    After(Start),
}

/// The last verified frame, as far as the next one has to agree with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    pub(crate) at_ms: i64,
    pub(crate) head: [u8; 32],
}

impl Position {
    /// Before the first frame.
    pub(crate) const START: Self = Self { seq: 0, epoch: 0, at_ms: i64::MIN, head: [0; 32] };

    /// Goes on to `frame` if it continues the chain.
    pub(crate) fn advance(&mut self, frame: &Frame) -> Result<(), Fault> {
        if self.seq.checked_add(1) != Some(frame.seq) {
            return Err(Fault::Sequence { found: frame.seq });
        }
        if frame.prev != self.head {
            return Err(Fault::Chain);
        }
        if frame.epoch < self.epoch {
            return Err(Fault::EpochBackwards { found: frame.epoch });
        }
        if frame.at_ms < self.at_ms {
            return Err(Fault::TimeBackwards { found_ms: frame.at_ms });
        }
        *self = Self { seq: frame.seq, epoch: frame.epoch, at_ms: frame.at_ms, head: frame.hash };
        Ok(())
    }
}

/// Where the frames of one segment are.
#[derive(Debug, Clone)]
pub(crate) struct SegmentIndex {
    pub(crate) number: u64,
    pub(crate) first_seq: u64,
    /// Some of its frames: sequence number and offset, ascending. Empty: not known here (`marks`).
    pub(crate) marks: Marks,
}

impl SegmentIndex {
    /// Notes the place of a frame if it is one of those that are noted.
    pub(crate) fn note(&mut self, seq: u64, offset: u64) {
        if self.marks.is_empty() || seq.checked_rem(INDEX_EVERY) == Some(0) {
            self.marks.push((seq, offset));
        }
    }
}

/// What a scan found.
#[derive(Debug)]
pub(crate) struct Scan {
    pub(crate) segments: Vec<SegmentIndex>,
    /// What was moved to the archive.
    pub(crate) base: Base,
    /// The first entry that was, or could have been, read.
    pub(crate) first_seq: u64,
    pub(crate) position: Position,
    pub(crate) first_at_ms: Option<i64>,
    /// Where the last segment's sound frames end.
    pub(crate) end_offset: u64,
    /// The size of the last segment's file.
    pub(crate) allocated_bytes: u64,
    pub(crate) torn_bytes: u64,
    /// Where those frames of the last segment begin that no later frame knows to be durable.
    pub(crate) unsynced_offset: u64,
}

/// Reads and verifies everything from `begin` on, handing each frame to `visit` in order.
pub(crate) fn scan(
    files: &SegmentFiles,
    begin: &Begin,
    visit: &mut dyn FnMut(&Frame) -> Result<(), VisitError>,
) -> Result<(Option<Witness>, Scan), JournalError> {
    // The witness is read first: a journal that is being written only grows past it.
    let witness = Witness::read(&*files.medium, &files.directory)?;
    let base = Base::read(&*files.medium, &files.directory)?;
    let (here, archived) = files.numbers()?;
    let found = Scan {
        segments: Vec::new(),
        base,
        first_seq: 1,
        position: Position::START,
        first_at_ms: None,
        end_offset: 0,
        allocated_bytes: 0,
        torn_bytes: 0,
        unsynced_offset: 0,
    };
    let mut scanner = Scanner { files, visit, witness, unsynced: VecDeque::new(), found };
    if witness.is_none() && !here.is_empty() {
        return Err(scanner.corrupt(0, 0, Fault::WitnessMissing));
    }
    let last = here.last().copied().unwrap_or(0);
    let last = witness.map_or(0, |witness| witness.segments).max(last);
    if let Some(missing) = (base.segment..=last).find(|number| !here.contains(number)) {
        return Err(scanner.corrupt(missing, 0, Fault::Hole { missing }));
    }
    let is_here = |number: &u64| here.contains(number) || archived.contains(number);
    let first = match begin {
        Begin::First => 1,
        Begin::Earliest => {
            let missing = (1..base.segment).rev().find(|number| !is_here(number));
            missing.map_or(1, |missing| missing.saturating_add(1))
        }
        Begin::After(start) => {
            let earlier = (1..start.segment).rev().take_while(is_here);
            scanner.skip_to(start, &earlier.collect::<Vec<_>>(), last)?
        }
    };
    if matches!(begin, Begin::First | Begin::Earliest) && first > 1 {
        scanner.begin_at(first)?;
    }
    for number in first..=last {
        scanner.segment(number, SEGMENT_HEADER_BYTES, number == last)?;
    }
    scanner.finish()?;
    Ok((witness, scanner.found))
}

struct Scanner<'a> {
    files: &'a SegmentFiles,
    visit: &'a mut dyn FnMut(&Frame) -> Result<(), VisitError>,
    witness: Option<Witness>,
    /// Frames of the present segment that no later frame knows to be durable: sequence number and offset.
    unsynced: VecDeque<(u64, u64)>,
    found: Scan,
}

impl Scanner<'_> {
    /// What lies before this segment is not there: its header is believed, since the chain ties it to all that follows.
    fn begin_at(&mut self, number: u64) -> Result<(), JournalError> {
        let header = self.files.header(number)?;
        let seq = header.first_seq.saturating_sub(1);
        self.found.first_seq = header.first_seq;
        self.found.position = Position { seq, head: header.prev, ..Position::START };
        Ok(())
    }

    /// Notes the segments before the one that `start` is in, handed over from the last one back, checks the entry it names, and reads the rest of that segment.
    /// Answers the segment after it.
    fn skip_to(&mut self, start: &Start, earlier: &[u64], last: u64) -> Result<u64, JournalError> {
        for number in earlier {
            let header = match self.files.header(*number) {
                Err(error) if *number < self.found.base.segment => {
                    tracing::warn!(%error, "archived segments from this one back cannot be read");
                    break;
                }
                header => header?,
            };
            self.found.segments.push(SegmentIndex {
                number: *number,
                first_seq: header.first_seq,
                marks: Vec::new(),
            });
        }
        self.found.segments.reverse();
        self.found.first_seq =
            self.found.segments.first().map_or(start.seq, |segment| segment.first_seq);
        if start.segment > last {
            let (witness_seq, found_seq) = (start.seq, 0);
            return Err(JournalError::Forgotten { witness_seq, found_seq });
        }
        let header = self.files.header(start.segment)?;
        let (file, path) = self.files.open_read(start.segment)?;
        let mut window = Window::new(file, path);
        let frame = match next_frame(&mut window, start.offset)? {
            Ok(frame) => frame,
            // Nothing but the zeros of the allocation: the journal is older than the checkpoint.
            Err(Fault::Magic) if window.end_of_data(start.offset)?.is_none() => {
                let found_seq = start.seq.saturating_sub(1);
                return Err(JournalError::Forgotten { witness_seq: start.seq, found_seq });
            }
            Err(fault) => return Err(self.corrupt_at(start, fault)),
        };
        if frame.seq != start.seq || frame.hash != start.head {
            return Err(self.corrupt_at(start, Fault::CheckpointHead));
        }
        self.found.position = Position {
            seq: header.first_seq.saturating_sub(1),
            head: header.prev,
            ..Position::START
        };
        let (seq, epoch, at_ms, head) = (frame.seq, frame.epoch, frame.at_ms, frame.hash);
        let after = Position { seq, epoch, at_ms, head };
        let offset = start.offset.saturating_add(to_u64(frame_bytes(frame.payload.len())));
        self.segment_after(start, (after, offset), start.segment == last)?;
        Ok(start.segment.saturating_add(1))
    }

    fn segment_after(
        &mut self,
        start: &Start,
        (after, offset): (Position, u64),
        is_last: bool,
    ) -> Result<(), JournalError> {
        let window = self.open_segment(start.segment)?;
        self.found.position = after;
        if let Some(segment) = self.found.segments.last_mut() {
            segment.marks.clone_from(&start.marks);
        }
        self.rest_of_segment(window, (start.segment, offset), is_last)
    }

    fn segment(&mut self, number: u64, offset: u64, is_last: bool) -> Result<(), JournalError> {
        let window = self.open_segment(number)?;
        self.rest_of_segment(window, (number, offset), is_last)
    }

    fn rest_of_segment(
        &mut self,
        mut window: Window,
        (number, mut offset): (u64, u64),
        is_last: bool,
    ) -> Result<(), JournalError> {
        loop {
            let fault = self.frames(&mut window, number, &mut offset)?;
            let Some(end) = window.end_of_data(offset)? else { break };
            if !is_last {
                return Err(self.corrupt(number, offset, fault));
            }
            window.refresh();
            let torn_bytes = end.saturating_sub(offset);
            let tail = window.at(offset, to_usize(torn_bytes))?;
            if decode(tail).is_ok() {
                // Somebody is writing while this is read, and the frame was not whole before.
                continue;
            }
            match judge(tail, offset, self.found.position.seq) {
                Tail::Torn => self.found.torn_bytes = torn_bytes,
                Tail::Damaged => return Err(self.corrupt(number, offset, fault)),
            }
            break;
        }
        self.found.end_offset = offset;
        self.found.unsynced_offset = self.unsynced.front().map_or(offset, |(_, at)| *at);
        Ok(())
    }

    /// Takes over the frames from `offset` on; answers why there is none after the last.
    fn frames(
        &mut self,
        window: &mut Window,
        number: u64,
        offset: &mut u64,
    ) -> Result<Fault, JournalError> {
        loop {
            match next_frame(window, *offset)? {
                Ok(frame) => {
                    self.accept(&frame, number, *offset)?;
                    *offset = offset.saturating_add(to_u64(frame_bytes(frame.payload.len())));
                }
                Err(fault) => return Ok(fault),
            }
        }
    }

    fn open_segment(&mut self, number: u64) -> Result<Window, JournalError> {
        let (file, path) = self.files.open_read(number)?;
        let mut window = Window::new(file, path);
        let found_bytes = window.length()?;
        let bytes = window.at(0, to_usize(SEGMENT_HEADER_BYTES))?;
        let header =
            SegmentHeader::decode(bytes).map_err(|fault| self.corrupt(number, 0, fault))?;
        let position = self.found.position;
        let in_place = header.number == number
            && position.seq.checked_add(1) == Some(header.first_seq)
            && header.prev == position.head;
        let base = self.found.base;
        if number == base.segment && (header.first_seq, header.prev) != (base.first_seq, base.prev)
        {
            return Err(self.corrupt(number, 0, Fault::BaseHead));
        }
        if !in_place {
            return Err(self.corrupt(number, 0, Fault::SegmentMisplaced));
        }
        let expected_bytes = header.allocated_bytes;
        if expected_bytes != found_bytes {
            return Err(self.corrupt(
                number,
                0,
                Fault::SegmentLength { expected_bytes, found_bytes },
            ));
        }
        self.found.segments.push(SegmentIndex {
            number,
            first_seq: header.first_seq,
            marks: Vec::new(),
        });
        self.found.allocated_bytes = expected_bytes;
        // Rolling over syncs the segment before, so what is unsynced lies in the present one.
        self.unsynced.clear();
        Ok(window)
    }

    fn accept(&mut self, frame: &Frame, number: u64, offset: u64) -> Result<(), JournalError> {
        let seq = self.found.position.seq.saturating_add(1);
        let corrupt = |fault| JournalError::Corrupt { segment: number, offset, seq, fault };
        self.found.position.advance(frame).map_err(corrupt)?;
        if let Some(witness) = self.witness {
            if frame.seq == witness.seq && frame.hash != witness.head {
                return Err(corrupt(Fault::WitnessHead));
            }
            if frame.epoch > witness.epoch {
                return Err(corrupt(Fault::WitnessEpoch { found: frame.epoch }));
            }
        }
        while self.unsynced.front().is_some_and(|(seq, _)| *seq <= frame.durable_seq) {
            self.unsynced.pop_front();
        }
        self.unsynced.push_back((frame.seq, offset));
        if let Some(segment) = self.found.segments.last_mut() {
            segment.note(frame.seq, offset);
        }
        self.found.first_at_ms = self.found.first_at_ms.or(Some(frame.at_ms));
        (self.visit)(frame).map_err(|error| JournalError::Visit { seq, reason: error.to_string() })
    }

    fn finish(&self) -> Result<(), JournalError> {
        let found_seq = self.found.position.seq;
        match self.witness {
            Some(witness) if witness.seq > found_seq => {
                Err(JournalError::Forgotten { witness_seq: witness.seq, found_seq })
            }
            _ => Ok(()),
        }
    }

    fn corrupt_at(&self, start: &Start, fault: Fault) -> JournalError {
        let (segment, offset, seq) = (start.segment, start.offset, start.seq);
        JournalError::Corrupt { segment, offset, seq, fault }
    }

    fn corrupt(&self, segment: u64, offset: u64, fault: Fault) -> JournalError {
        JournalError::Corrupt {
            segment,
            offset,
            seq: self.found.position.seq.saturating_add(1),
            fault,
        }
    }
}

/// Reads the frame at `offset`; the inner error says why there is none.
pub(crate) fn next_frame(
    window: &mut Window,
    offset: u64,
) -> Result<Result<Frame, Fault>, JournalError> {
    let payload_bytes = match decode_header(window.at(offset, HEADER_BYTES)?) {
        Ok((_, payload_bytes)) => payload_bytes,
        Err(fault) => return Ok(Err(fault)),
    };
    Ok(decode(window.at(offset, frame_bytes(payload_bytes))?))
}
