//! The journal: an append-only, checksummed, hash-chained log, the truth and the audit chain at once.
//!
//! Owns: the bytes on disk, the lock, the epoch, the order of writes and syncs. To it, records are only bytes.
//! Not here: the state built from the entries, the records in them, and how many callers share one sync (`writer`).
//! Invariants: an entry that was durable is found again or the journal refuses to open; nothing is ever repaired except an append that a
//! crash cut short; after a failed write or sync nothing more is accepted (a retried `fdatasync` can succeed without the data being on
//! disk).
//!
//! # On disk
//!
//! A folder with `lock`, `high-water` and the segments `000000000001.segment`, `000000000002.segment`, … without gaps.
//! Numbers are little-endian, CRC is CRC-32C, hashes are SHA-256.
//!
//! ```text
//! segment: 64 bytes of header, frames without gaps, zeros up to the allocated size
//!    0  8  "PLSEGMT" 01
//!    8  4  number of the segment, as in its name
//!   12  8  sequence number of its first frame
//!   20  8  allocated size of the file; the file has exactly this size
//!   28 32  hash of the frame before its first (zeros in the first segment)
//!   60  4  CRC of bytes 0..60
//!
//! frame (an entry)
//!    0  4  "PLJF"
//!    4  1  version, 1
//!    5  1  kind of the record
//!    6  2  flags, 0
//!    8  4  n, the length of the payload, at most 1 MiB
//!   12  8  sequence number, from 1, contiguous over all segments
//!   20  8  epoch of the writing process, never decreasing
//!   28  8  time of the append, milliseconds since 1970, signed, never decreasing
//!   36  8  last sequence number known to be on disk when this frame was appended
//!   44 32  hash of the frame before (zeros for the first)
//!   76  4  CRC of bytes 0..76
//!   80  n  payload
//!  80+n 4  CRC of bytes 0..80+n
//!  84+n 1  ED, the end mark
//!
//! base: see `files`
//! high-water: "PLWITN" 00 01, then 8 bytes each of epoch, last durable sequence number and number of segments, then 32 of
//!             the hash of that frame, then the CRC of all before it
//! ```
//!
//! The hash of a frame is SHA-256 over its bytes 0..80+n. To audit: read the segments in order, check each CRC, check that the
//! sequence counts up by one and that bytes 44..76 are the hash of the frame before; the last hash is the head, which is
//! compared with `high-water` (at least as far) and with a copy of an earlier head kept elsewhere.
//!
//! content, before the entry that brought it and outside of the chain, so that its bytes can be erased:
//!    0  4  "PLJC"
//!    4  1  version, 1
//!    5  1  t, the length of the tenant's name
//!    6  2  0
//!    8  4  n, the length of the content, at most 16 MiB
//!   12 32  SHA-256 of the content
//!   44  4  CRC of bytes 0..44 and of the tenant's name
//!   48  t  the tenant's name
//! 48+t  n  the content; zeros once it is erased
//!
//! The field at 36 is why a torn batch and a flipped bit can be told apart: a frame that says "41 was on disk" makes any
//! damage to frames up to 41 an alteration, however it looks (`tail`).

pub(crate) mod content;
mod error;
mod files;
pub(crate) mod frame;
pub(crate) mod lock;
mod marks;
pub mod medium;
mod reader;
mod recovery;
mod scan;
mod segment;
mod tail;
mod window;
pub(crate) mod witness;
pub(crate) mod writer;

#[cfg(test)]
pub(crate) mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::log::LogEntry;

pub use content::{CONTENT_BYTES_MAX, Content, Place, Placed};
pub use error::{Fault, JournalError, VisitError};
pub use frame::{Frame, PAYLOAD_BYTES_MAX};
pub use reader::{FrameIter, JournalReader};
pub use scan::{VerifyReport, verify_each};

pub use files::unmoved_segments;
pub(crate) use files::{Base, SegmentFiles, copy_file};
pub use lock::Lock;
pub(crate) use scan::{Begin, Position};
pub(crate) use segment::path_of as segment_path;
pub(crate) use witness::Witness;

use frame::{encode, frame_bytes};
use medium::{Medium, MediumFile, to_u64, write_all_at};
use reader::{Extent, Shared};
use recovery::{first_segment, recover_segment, remove_temporaries};
use scan::{BROKEN_CHAIN, SegmentIndex, scan};
use segment::{SEGMENT_HEADER_BYTES, SegmentHeader, path_of};

/// How much the buffer may hold before it is written without being asked.
const BUFFER_BYTES_MAX: usize = 4 << 20;

/// The journal's folders and limits.
#[derive(Debug, Clone)]
pub struct JournalConfig {
    /// Its folder, created if missing; nothing else is put there.
    pub directory: PathBuf,
    /// The size in which segments are allocated; an entry that needs more gets a segment of its own size.
    pub segment_bytes: u64,
    /// Below this much free space new work is refused, so that work in hand can still be completed.
    pub free_space_watermark_bytes: u64,
    /// Where old segments are moved to on request; without it the folder `archive` beside the journal's.
    pub archive: Option<PathBuf>,
    /// The file operations; real ones except in tests.
    pub medium: Arc<dyn Medium>,
}

/// The entry that an append made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRef {
    /// Its sequence number.
    pub seq: u64,
    /// Its time, not before that of the entry before it.
    pub at_ms: i64,
    /// Its hash.
    pub hash: [u8; 32],
}

/// An opened journal, and the state in which it was found.
#[derive(Debug)]
pub struct Recovered {
    /// The journal, ready for appends in a new epoch.
    pub journal: Journal,
    /// How many bytes of an interrupted append were cut off.
    pub torn_bytes: u64,
    /// What was archived.
    pub(crate) base: Base,
}

/// The only writer of a journal. Dropping it without [`Journal::close`] is like a crash: what was not written is gone.
#[derive(Debug)]
pub struct Journal {
    config: JournalConfig,
    shared: Arc<Shared>,
    _lock: Lock,
    file: Box<dyn MediumFile>,
    segment: SegmentIndex,
    allocated_bytes: u64,
    /// The buffer's offset in the segment.
    offset: u64,
    buffer: Vec<u8>,
    position: Position,
    epoch: u64,
    written: Position,
    durable: Position,
    witness: Witness,
    poisoned: bool,
}

impl Journal {
    /// Takes the lock, verifies everything, cuts off an interrupted append and begins a new epoch, durably.
    ///
    /// # Errors
    /// [`JournalError::Locked`], [`JournalError::Corrupt`], [`JournalError::Forgotten`], or what the operating system answers. Nothing
    /// has been changed in the first three cases.
    pub fn open(config: JournalConfig) -> Result<Recovered, JournalError> {
        let lock = Self::lock(&config)?;
        Self::open_locked(config, lock, Begin::First)
    }

    /// Makes the folder and takes the lock, for checks that have to run under the lock before the journal is opened.
    pub(crate) fn lock(config: &JournalConfig) -> Result<Lock, JournalError> {
        let directory = &config.directory;
        let made = config.medium.create_dir(directory);
        made.map_err(JournalError::io("make the folder", directory))?;
        Lock::take(directory)
    }

    /// Opens under a lock that is held, verifying from `begin` on.
    pub(crate) fn open_locked(
        config: JournalConfig,
        lock: Lock,
        begin: Begin,
    ) -> Result<Recovered, JournalError> {
        let directory = config.directory.clone();
        let medium = Arc::clone(&config.medium);
        let files = SegmentFiles::new(Arc::clone(&medium), &directory, config.archive.as_deref());
        let (witness, found) = scan(&files, &begin, &mut |_| Ok(()))?;
        remove_temporaries(&*medium, &directory)?;
        // A start does not depend on the archive.
        if let Err(error) = files.finish_archiving(&found.base) {
            tracing::warn!(%error, "segments wait to be moved to the archive; it is tried again");
        }
        let witness = Witness {
            epoch: witness.map_or(0, |witness| witness.epoch).saturating_add(1),
            seq: found.position.seq,
            extent: found.segments.last().map_or(0, |segment| segment.number),
            head: found.position.head,
        };
        // What was found is made durable before the witness names it.
        let opened = match found.segments.last() {
            Some(segment) => Some(recover_segment(&config, &found, segment.clone())?),
            None => None,
        };
        witness.write(&*medium, &directory)?;
        let opened = match opened {
            Some(opened) => opened,
            None => first_segment(&config)?,
        };
        let mut segments = found.segments;
        if segments.is_empty() {
            segments.push(opened.segment.clone());
        }
        let extent = Extent { segments, durable_seq: found.position.seq };
        let mut journal = Self {
            shared: Arc::new(Shared::new(files, extent)),
            config,
            _lock: lock,
            file: opened.file,
            segment: opened.segment,
            allocated_bytes: opened.allocated_bytes,
            offset: opened.offset,
            buffer: Vec::new(),
            position: found.position,
            epoch: witness.epoch,
            written: found.position,
            durable: found.position,
            witness,
            poisoned: false,
        };
        journal.record_witness()?;
        Ok(Recovered { journal, torn_bytes: found.torn_bytes, base: found.base })
    }

    /// Adds an entry with its contents to the buffer in memory; answers where these are. Nothing is promised before [`Journal::write`] and
    /// [`Journal::sync`].
    ///
    /// # Errors
    /// [`JournalError::TooLarge`], which leaves the journal usable; otherwise a failed write or sync (at a full segment or
    /// buffer), or [`JournalError::Poisoned`].
    pub fn append_with(
        &mut self,
        kind: u8,
        at_ms: i64,
        payload: Vec<u8>,
        contents: &[Content],
    ) -> Result<(FrameRef, Vec<Placed>), JournalError> {
        let entry = LogEntry {
            seq: self.position.seq.saturating_add(1),
            epoch: self.epoch,
            at_ms: at_ms.max(self.position.at_ms),
            kind,
            durable_seq: self.durable.seq,
            prev: self.position.head,
            hash: [0; 32],
            payload,
        };
        self.append_frame(&entry, contents)
    }

    /// Adds an entry of another journal unchanged: copies a whole journal, from its first entry on.
    pub(crate) fn append_as(
        &mut self,
        entry: &LogEntry,
        contents: &[Content],
    ) -> Result<FrameRef, JournalError> {
        self.epoch = self.epoch.max(entry.epoch);
        let (seq, prev) = (self.position.seq.saturating_add(1), self.position.head);
        let (placed, _) = self.append_frame(entry, contents)?;
        if (entry.seq, entry.prev, entry.hash) == (seq, prev, placed.hash) {
            return Ok(placed);
        }
        self.poisoned = true;
        let (segment, offset) = (self.segment.number, self.offset);
        Err(JournalError::Corrupt { segment, offset, seq, fault: Fault::new(BROKEN_CHAIN) })
    }

    fn append_frame(
        &mut self,
        entry: &LogEntry,
        contents: &[Content],
    ) -> Result<(FrameRef, Vec<Placed>), JournalError> {
        self.check_alive()?;
        check_size(entry.payload.len(), PAYLOAD_BYTES_MAX)?;
        let mut bytes = frame_bytes(entry.payload.len());
        for content in contents {
            check_size(content.bytes.len(), CONTENT_BYTES_MAX)?;
            bytes = bytes.saturating_add(content.stored_bytes());
        }
        if self.buffer.len() >= BUFFER_BYTES_MAX {
            self.write()?;
        }
        let end = self.buffer_end().saturating_add(to_u64(bytes));
        if end > self.allocated_bytes {
            self.roll_over(to_u64(bytes))?;
        }
        let offset = self.buffer_end();
        let mut placed = Vec::with_capacity(contents.len());
        for content in contents {
            let begins = self.buffer_end();
            let body = content.encode(&mut self.buffer);
            let place = Place {
                segment: self.segment.number,
                offset: begins.saturating_add(to_u64(body)),
                bytes: u32::try_from(content.bytes.len()).unwrap_or(u32::MAX),
            };
            placed.push(Placed { tenant: content.tenant.clone(), digest: content.digest, place });
        }
        let head = encode(entry, &mut self.buffer);
        self.segment.note(entry.seq, offset);
        let LogEntry { seq, epoch, at_ms, .. } = *entry;
        self.position = Position { seq, epoch, at_ms, head };
        Ok((FrameRef { seq, at_ms, hash: head }, placed))
    }

    /// Erases contents that a durable entry says are deleted. The witness is updated first to know that entry: otherwise the contents
    /// would, at the next opening, look as if a crash had cut them off.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`JournalError::Poisoned`].
    pub(crate) fn erase(&mut self, places: &[Place]) -> Result<(), JournalError> {
        self.record_witness()?;
        let erased = erase(&*self.config.medium, &self.config.directory, places);
        self.guard(erased)
    }

    /// Writes what was appended to the operating system: from here on it survives the end of this process.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`JournalError::Poisoned`].
    pub fn write(&mut self) -> Result<(), JournalError> {
        self.check_alive()?;
        if self.buffer.is_empty() {
            return Ok(());
        }
        let path = path_of(&self.config.directory, self.segment.number);
        let written = write_all_at(&*self.file, &self.buffer, self.offset);
        self.guard(written.map_err(JournalError::io("write to the segment", &path)))?;
        self.offset = self.buffer_end();
        self.buffer.clear();
        self.written = self.position;
        let mut extent = self.shared.extent_mut();
        if let Some(segment) = extent.segments.last_mut() {
            let known = segment.marks.len();
            segment.marks.extend_from_slice(self.segment.marks.get(known..).unwrap_or_default());
        }
        Ok(())
    }

    /// Writes, and makes everything durable with one `fdatasync`. Costs nothing where all is durable already.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`JournalError::Poisoned`]. It is never tried again: the process has to
    /// end and recover.
    pub fn sync(&mut self) -> Result<(), JournalError> {
        self.write()?;
        if self.durable.seq == self.written.seq {
            return Ok(());
        }
        let path = path_of(&self.config.directory, self.segment.number);
        let synced = self.file.sync_data();
        self.guard(synced.map_err(JournalError::io("sync the segment", &path)))?;
        self.durable = self.written;
        self.shared.extent_mut().durable_seq = self.durable.seq;
        Ok(())
    }

    /// Updates the witness to name the last durable entry; costs nothing where it already does.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`JournalError::Poisoned`].
    pub fn record_witness(&mut self) -> Result<(), JournalError> {
        self.check_alive()?;
        let witness = Witness {
            epoch: self.epoch,
            seq: self.durable.seq,
            extent: self.segment.number,
            head: self.durable.head,
        };
        if witness == self.witness {
            return Ok(());
        }
        let recorded = witness.write(&*self.config.medium, &self.config.directory);
        self.guard(recorded)?;
        self.witness = witness;
        Ok(())
    }

    /// Makes everything durable, records it in the witness and releases the lock.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn close(mut self) -> Result<(), JournalError> {
        self.sync()?;
        self.record_witness()
    }

    /// The last appended entry and its hash; 0 and zeros in an empty journal.
    pub fn head(&self) -> (u64, [u8; 32]) {
        (self.position.seq, self.position.head)
    }

    /// The time of the last appended entry; no later one is earlier.
    pub fn last_at_ms(&self) -> Option<i64> {
        (self.position.seq > 0).then_some(self.position.at_ms)
    }

    /// The epoch of this opening; higher than all before it.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether free space has fallen below the watermark.
    ///
    /// # Errors
    /// What the operating system answers.
    pub fn space_is_low(&self) -> Result<bool, JournalError> {
        let directory = &self.config.directory;
        let free_bytes = self.config.medium.free_bytes(directory);
        let free_bytes =
            free_bytes.map_err(JournalError::io("ask for the free space of", directory))?;
        Ok(free_bytes < self.config.free_space_watermark_bytes)
    }

    /// A reader for other threads, which sees durable entries only.
    pub fn reader(&self) -> JournalReader {
        JournalReader::new(Arc::clone(&self.shared))
    }

    /// Begins the next segment, with room for at least one frame of `bytes`.
    fn roll_over(&mut self, bytes: u64) -> Result<(), JournalError> {
        // What a segment holds is durable before the next one exists: only the last segment can be torn.
        self.sync()?;
        let header = SegmentHeader {
            number: self.segment.number.saturating_add(1),
            first_seq: self.position.seq.saturating_add(1),
            prev: self.position.head,
            allocated_bytes: self
                .config
                .segment_bytes
                .max(SEGMENT_HEADER_BYTES.saturating_add(bytes)),
        };
        let created = segment::create(&*self.config.medium, &self.config.directory, &header);
        self.file = self.guard(created)?;
        let next =
            SegmentIndex { number: header.number, first_seq: header.first_seq, marks: Vec::new() };
        let closed = std::mem::replace(&mut self.segment, next);
        self.shared.close_segment(closed, self.segment.clone());
        self.allocated_bytes = header.allocated_bytes;
        self.offset = SEGMENT_HEADER_BYTES;
        self.record_witness()
    }

    /// How much room the segment has left.
    pub(crate) fn room_bytes(&self) -> u64 {
        self.allocated_bytes.saturating_sub(self.buffer_end())
    }

    fn buffer_end(&self) -> u64 {
        self.offset.saturating_add(to_u64(self.buffer.len()))
    }

    fn check_alive(&self) -> Result<(), JournalError> {
        if self.poisoned { Err(JournalError::Poisoned) } else { Ok(()) }
    }

    fn guard<T>(&mut self, result: Result<T, JournalError>) -> Result<T, JournalError> {
        self.poisoned = self.poisoned || result.is_err();
        result
    }
}

/// Erases contents in the segments of a folder, and makes that durable.
fn erase(medium: &dyn Medium, directory: &Path, places: &[Place]) -> Result<(), JournalError> {
    let mut places = places.to_vec();
    places.sort_unstable();
    for of_segment in places.chunk_by(|one, next| one.segment == next.segment) {
        let Some(first) = of_segment.first() else { continue };
        let path = path_of(directory, first.segment);
        let failed = || JournalError::io("erase content in the segment", &path);
        let file = medium.open(&path).map_err(failed())?;
        for place in of_segment {
            file.erase(place.offset, u64::from(place.bytes)).map_err(failed())?;
        }
        file.sync_data().map_err(failed())?;
    }
    Ok(())
}

fn check_size(bytes: usize, limit: usize) -> Result<(), JournalError> {
    if bytes > limit {
        return Err(JournalError::TooLarge { bytes: to_u64(bytes), limit_bytes: to_u64(limit) });
    }
    Ok(())
}
