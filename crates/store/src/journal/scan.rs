//! Reading a whole journal and verifying every byte of it, in order.
//!
//! Owns: the checks of segments, frames and chain, and [`verify_each`]. Not here: repairing (only a torn tail is repaired, by `Journal::open`).
//! Invariant: reads only; the first fault ends the scan with its exact place.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

use super::content::{Placed, content_at, whole_contents};
use super::error::{Fault, JournalError, VisitError};
use super::files::{Base, SegmentFiles};
use super::frame::{Frame, HEADER_BYTES, decode, decode_header, frame_bytes};
use super::marks::Marks;
use super::medium::{Disk, to_u64, to_usize};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, UNSOUND};
use super::tail::{Tail, has_lost_sector, judge};
use super::window::Window;
use super::witness::Witness;
use placet_ledger::log::LogEntry;
use placet_types::digest::Digest;

/// The interval at which entries are marked with their place, so that one is found without reading from the start.
pub(crate) const INDEX_EVERY: u64 = 8;

/// What [`verify_each`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifyReport {
    /// How many entries there are.
    pub frames: u64,
    /// How many segments there are, archived ones included.
    pub segments: u64,
    /// The first entry that was verified: more than 1 where the archive is not there. Only the hash links the chain before it to the rest.
    pub first_seq: u64,
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

/// Verifies a journal without changing anything and without taking the lock. Archived segments are read from the archive folder (without
/// one, that next to the journal) where they are there; otherwise verification begins where the rest continues them. Passes each entry to
/// `visit`, in order, once it is verified.
///
/// # Errors
/// The first thing that is wrong, with its exact place; what the operating system answered; or what `visit` refuses.
pub fn verify_each(
    directory: &Path,
    archive: Option<&Path>,
    visit: &mut dyn FnMut(&Frame) -> Result<(), VisitError>,
) -> Result<VerifyReport, JournalError> {
    let files = SegmentFiles::new(Arc::new(Disk), directory, archive);
    let (witness, scan) = scan(&files, &Begin::Earliest, visit)?;
    Ok(VerifyReport {
        frames: scan.position.seq,
        segments: scan.segments.last().map_or(0, |segment| segment.number),
        first_seq: scan.first_seq,
        torn_bytes: scan.torn_bytes,
        epoch: witness.map_or(0, |witness| witness.epoch),
        last_seq: scan.position.seq,
        head: scan.position.head,
        witness_seq: witness.map_or(0, |witness| witness.seq),
        first_at_ms: scan.first_at_ms,
        last_at_ms: scan.first_at_ms.map(|_| scan.position.at_ms),
    })
}

/// Where a scan begins.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Begin {
    /// At the first entry, which must exist, possibly in the archive.
    First,
    /// At the earliest entry that still exists.
    Earliest,
    /// With the segment that holds this entry, or the earliest that still exists: those before it are covered by the state.
    Segment(u64),
}

pub(crate) const BROKEN_CHAIN: &str =
    "the hash chain is broken: the previous entry's hash is not the one named here";

/// What the next entry has to agree with: the last verified entry.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Position {
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    pub(crate) at_ms: i64,
    pub(crate) head: [u8; 32],
}

impl Position {
    /// Before the first entry.
    pub(crate) const START: Self = Self { seq: 0, epoch: 0, at_ms: i64::MIN, head: [0; 32] };

    /// Advances to an entry if it continues the chain. That its hash is its own is for the caller to see.
    pub(crate) fn advance(&mut self, entry: &LogEntry) -> Result<(), Fault> {
        if self.seq.checked_add(1) != Some(entry.seq) {
            return Err(Fault::new(format!("the sequence is broken: found entry {}", entry.seq)));
        }
        if entry.prev != self.head {
            return Err(Fault::new(BROKEN_CHAIN));
        }
        if entry.epoch < self.epoch {
            return Err(Fault::new(format!("the epoch goes backwards to {}", entry.epoch)));
        }
        if entry.at_ms < self.at_ms {
            return Err(Fault::new(format!("the time goes backwards to {} ms", entry.at_ms)));
        }
        *self = Self { seq: entry.seq, epoch: entry.epoch, at_ms: entry.at_ms, head: entry.hash };
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
    /// Marks the place of a frame if it is due to be marked.
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
    /// Where the frames of the last segment begin that no later frame states to be durable.
    pub(crate) unsynced_offset: u64,
}

/// Reads and verifies everything from `begin` on, passing each frame to `visit` in order.
pub(crate) fn scan(
    files: &SegmentFiles,
    begin: &Begin,
    visit: &mut dyn FnMut(&Frame) -> Result<(), VisitError>,
) -> Result<(Option<Witness>, Scan), JournalError> {
    // The witness is read first: a journal that is being written only grows beyond it.
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
    let base = &scanner.found.base.clone();
    if witness.is_none() && !here.is_empty() {
        return Err(scanner.corrupt(0, 0, Fault::new("the high-water witness is missing")));
    }
    let last = here.last().copied().unwrap_or(0);
    let last = witness.map_or(0, |witness| witness.extent).max(last);
    if let Some(missing) = (base.segment..=last).find(|number| !here.contains(number)) {
        let fault = Fault::new(format!("segment {missing} is missing"));
        return Err(scanner.corrupt(missing, 0, fault));
    }
    let is_here = |number: &u64| here.contains(number) || archived.contains(number);
    let first = match begin {
        Begin::First => 1,
        Begin::Earliest => {
            let missing = (1..base.segment).rev().find(|number| !is_here(number));
            missing.map_or(1, |missing| missing.saturating_add(1))
        }
        Begin::Segment(seq) => scanner.skip_to(*seq, (1..=last).rev().take_while(is_here))?,
    };
    if first > 1 {
        scanner.begin_at(first)?;
    }
    for number in first..=last {
        scanner.segment(number, number == last)?;
    }
    scanner.finish()?;
    Ok((witness, scanner.found))
}

struct Scanner<'a> {
    files: &'a SegmentFiles,
    visit: &'a mut dyn FnMut(&Frame) -> Result<(), VisitError>,
    witness: Option<Witness>,
    /// Frames of the current segment that no later frame states to be durable.
    unsynced: VecDeque<Unsynced>,
    found: Scan,
}

/// A frame that may be of the last batch. It is passed on once it is known to count: a frame that is cut off is no entry.
struct Unsynced {
    frame: Frame,
    /// Where it begins, its contents included.
    offset: u64,
    /// The position before it.
    before: Position,
}

impl Scanner<'_> {
    /// Nothing before this segment is read: its header is trusted, since the chain ties it to all that follows.
    fn begin_at(&mut self, number: u64) -> Result<(), JournalError> {
        let header = self.files.header(number)?;
        let seq = header.first_seq.saturating_sub(1);
        if self.found.segments.is_empty() {
            self.found.first_seq = header.first_seq;
        }
        self.found.position = Position { seq, head: header.prev, ..Position::START };
        Ok(())
    }

    /// Adds the segments before the one that holds entry `seq` to the index, read backwards from the last; answers that one's number.
    fn skip_to(
        &mut self,
        seq: u64,
        backwards: impl Iterator<Item = u64>,
    ) -> Result<u64, JournalError> {
        let mut holds_it = 1;
        let mut is_found = false;
        // The archive may be away.
        let mut earliest = 1;
        for number in backwards {
            let header = match self.files.header(number) {
                Err(error) if is_found && number < self.found.base.segment => {
                    tracing::warn!(%error, "archived segments from this one back cannot be read");
                    break;
                }
                header => header?,
            };
            let first_seq = header.first_seq;
            earliest = number;
            if is_found {
                let marks = Vec::new();
                self.found.segments.push(SegmentIndex { number, first_seq, marks });
                self.found.first_seq = first_seq;
            } else if first_seq <= seq || number == 1 {
                (holds_it, is_found) = (number, true);
                self.found.first_seq = first_seq;
            }
        }
        self.found.segments.reverse();
        Ok(if is_found { holds_it } else { earliest })
    }

    fn segment(&mut self, number: u64, is_last: bool) -> Result<(), JournalError> {
        let mut window = self.open_segment(number)?;
        let mut offset = SEGMENT_HEADER_BYTES;
        loop {
            let fault = self.frames(&mut window, number, &mut offset)?;
            let Some(end) = window.end_of_data(offset)? else { break };
            if !is_last {
                return Err(self.corrupt(number, offset, fault));
            }
            window.refresh();
            let torn_bytes = end.saturating_sub(offset);
            let tail = window.at(offset, to_usize(torn_bytes))?;
            let entry = tail.get(whole_contents(tail)..).unwrap_or_default();
            if decode(entry).is_ok() {
                // Another process is writing during this scan, and the frame was incomplete before.
                continue;
            }
            match judge(tail, offset, self.found.position.seq) {
                Tail::Torn => self.found.torn_bytes = torn_bytes,
                Tail::Damaged => return Err(self.corrupt(number, offset, fault)),
            }
            break;
        }
        self.found.end_offset = offset;
        if is_last {
            self.cut_torn_contents(&mut window)?;
        }
        let unsynced = self.unsynced.front().map(|unsynced| unsynced.offset);
        self.found.unsynced_offset = unsynced.unwrap_or(self.found.end_offset);
        // Rolling over syncs the segment before, so what is unsynced lies in the last one.
        self.hand_on(u64::MAX)
    }

    /// Passes on the frames up to this one: they are entries.
    fn hand_on(&mut self, durable_seq: u64) -> Result<(), JournalError> {
        while let Some(Unsynced { frame, .. }) =
            self.unsynced.pop_front_if(|unsynced| unsynced.frame.seq <= durable_seq)
        {
            self.found.first_at_ms = self.found.first_at_ms.or(Some(frame.at_ms));
            (self.visit)(&frame).map_err(|error| JournalError::Visit {
                seq: frame.seq,
                reason: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// An entry of the last batch with a content that did not fully reach the disk never became durable, nor did those after it.
    fn cut_torn_contents(&mut self, window: &mut Window) -> Result<(), JournalError> {
        let durable_seq = self.witness.map_or(0, |witness| witness.seq);
        let mut torn = None;
        for (at, unsynced) in self.unsynced.iter().enumerate() {
            let frame = &unsynced.frame;
            if frame.seq > durable_seq && has_torn_content(window, &frame.contents)? {
                torn = Some(at);
                break;
            }
        }
        let Some(at) = torn else { return Ok(()) };
        let cut = self.unsynced.split_off(at);
        if let Some(Unsynced { offset, before, .. }) = cut.front() {
            let end = self.found.end_offset.saturating_add(self.found.torn_bytes);
            (self.found.end_offset, self.found.torn_bytes) = (*offset, end.saturating_sub(*offset));
            self.found.position = *before;
            if let Some(segment) = self.found.segments.last_mut() {
                segment.marks.retain(|(seq, _)| *seq <= before.seq);
            }
        }
        Ok(())
    }

    /// Reads the frames from `offset` on; answers why there is no further one.
    fn frames(
        &mut self,
        window: &mut Window,
        number: u64,
        offset: &mut u64,
    ) -> Result<Fault, JournalError> {
        loop {
            match next_frame(window, number, *offset)? {
                Ok((frame, end)) => {
                    self.accept(frame, number, *offset)?;
                    *offset = end;
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
        let header = SegmentHeader::decode(bytes)
            .ok_or_else(|| self.corrupt(number, 0, Fault::new(UNSOUND)))?;
        let position = self.found.position;
        let in_place = header.number == number
            && position.seq.checked_add(1) == Some(header.first_seq)
            && header.prev == position.head;
        let base = &self.found.base;
        if number == base.segment && (header.first_seq, header.prev) != (base.first_seq, base.prev)
        {
            let fault = Fault::new("the segment is not the one that follows the archived ones");
            return Err(self.corrupt(number, 0, fault));
        }
        if !in_place {
            let fault = Fault::new("the segment belongs elsewhere in the chain");
            return Err(self.corrupt(number, 0, fault));
        }
        let expected_bytes = header.allocated_bytes;
        if expected_bytes != found_bytes {
            let fault =
                format!("the file has {found_bytes} bytes where {expected_bytes} were allocated");
            return Err(self.corrupt(number, 0, Fault::new(fault)));
        }
        self.found.segments.push(SegmentIndex {
            number,
            first_seq: header.first_seq,
            marks: Vec::new(),
        });
        self.found.allocated_bytes = expected_bytes;
        Ok(window)
    }

    fn accept(&mut self, frame: Frame, number: u64, offset: u64) -> Result<(), JournalError> {
        let seq = self.found.position.seq.saturating_add(1);
        let corrupt = |fault| JournalError::Corrupt { segment: number, offset, seq, fault };
        let before = self.found.position;
        self.found.position.advance(&frame).map_err(corrupt)?;
        if let Some(witness) = self.witness {
            if frame.seq == witness.seq && frame.hash != witness.head {
                let fault = "the entry is not the one that the high-water witness saw";
                return Err(corrupt(Fault::new(fault)));
            }
            if frame.epoch > witness.epoch {
                let epoch = frame.epoch;
                let fault =
                    format!("the entry's epoch {epoch} is later than the high-water witness");
                return Err(corrupt(Fault::new(fault)));
            }
        }
        self.hand_on(frame.durable_seq)?;
        if let Some(segment) = self.found.segments.last_mut() {
            segment.note(frame.seq, offset);
        }
        self.unsynced.push_back(Unsynced { frame, offset, before });
        Ok(())
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

    fn corrupt(&self, segment: u64, offset: u64, fault: Fault) -> JournalError {
        JournalError::Corrupt {
            segment,
            offset,
            seq: self.found.position.seq.saturating_add(1),
            fault,
        }
    }
}

/// Reads the frame at `offset` with the contents that precede it; answers where it ends, too. The inner error says why there is none.
pub(crate) fn next_frame(
    window: &mut Window,
    segment: u64,
    mut offset: u64,
) -> Result<Result<(Frame, u64), Fault>, JournalError> {
    let mut contents = Vec::new();
    while let Some(placed) = content_at(window, segment, offset)? {
        offset = placed.place.end();
        contents.push(placed);
    }
    let payload_bytes = match decode_header(window.at(offset, HEADER_BYTES)?) {
        Ok((_, payload_bytes)) => payload_bytes,
        Err(fault) => return Ok(Err(fault)),
    };
    let bytes = frame_bytes(payload_bytes);
    let end = offset.saturating_add(to_u64(bytes));
    Ok(decode(window.at(offset, bytes)?).map(|entry| (Frame { entry, contents }, end)))
}

/// Whether a content is not what its digest says, and a crash can be the reason.
fn has_torn_content(window: &mut Window, contents: &[Placed]) -> Result<bool, JournalError> {
    for Placed { digest, place, .. } in contents {
        let body = window.at(place.offset, to_usize(u64::from(place.bytes)))?;
        if Digest::of(body) != *digest && has_lost_sector(body, place.offset) {
            return Ok(true);
        }
    }
    Ok(false)
}
