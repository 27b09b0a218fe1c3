//! One segment: its name, its header, how it is made.
//!
//! Owns: the file `NNNNNNNNNNNN.segment` and its first 64 bytes. Not here: the frames in it.
//! Invariant: a file under a segment's name is complete: allocated, with a durable header that ties it to its place.

use std::path::{Path, PathBuf};

use super::error::JournalError;
use super::frame::{checked, take};
use super::medium::{Medium, MediumFile, beside, write_all_at};

/// Bytes before the first frame of a segment.
pub(crate) const SEGMENT_HEADER_BYTES: u64 = 64;
const MAGIC: [u8; 8] = *b"PLSEGMT\x01";
const EXTENSION: &str = "segment";

/// What is wrong where the header of a segment is not what was written.
pub(crate) const UNSOUND: &str = "the segment header does not verify";

/// Ties a segment to its place in the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentHeader {
    /// Its number, from 1, without gaps; also its file's name.
    pub(crate) number: u64,
    /// The sequence number of its first frame.
    pub(crate) first_seq: u64,
    /// The hash of the frame before its first.
    pub(crate) prev: [u8; 32],
    /// The size of the file, header included.
    pub(crate) allocated_bytes: u64,
}

impl SegmentHeader {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&u32::try_from(self.number).unwrap_or(u32::MAX).to_le_bytes());
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        out.extend_from_slice(&self.allocated_bytes.to_le_bytes());
        out.extend_from_slice(&self.prev);
        let crc = crc32c::crc32c(&out);
        out.extend_from_slice(&crc.to_le_bytes());
        out
    }

    /// Reads a header; `None` where it does not verify.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = checked(bytes, &MAGIC)?;
        Some(Self {
            number: u64::from(u32::from_le_bytes(take(&mut rest)?)),
            first_seq: u64::from_le_bytes(take(&mut rest)?),
            allocated_bytes: u64::from_le_bytes(take(&mut rest)?),
            prev: take(&mut rest)?,
        })
    }
}

/// Makes a segment durably, under its name only once it is complete.
pub(crate) fn create(
    medium: &dyn Medium,
    directory: &Path,
    header: &SegmentHeader,
) -> Result<Box<dyn MediumFile>, JournalError> {
    let path = path_of(directory, header.number);
    let temporary = beside(&path);
    let file =
        medium.create(&temporary).map_err(JournalError::io("create the segment", &temporary))?;
    file.allocate(header.allocated_bytes)
        .map_err(JournalError::io("allocate the segment", &temporary))?;
    write_all_at(&*file, &header.encode(), 0)
        .map_err(JournalError::io("write the segment header", &temporary))?;
    file.sync_data().map_err(JournalError::io("sync the segment", &temporary))?;
    medium
        .rename(&temporary, &path)
        .map_err(JournalError::io("put the segment in place", &path))?;
    medium.sync_dir(directory).map_err(JournalError::io("sync the folder", directory))?;
    Ok(file)
}

/// The file of a segment.
pub(crate) fn path_of(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("{number:012}.{EXTENSION}"))
}

/// The number in a segment's file name; `None` for other files.
pub(crate) fn number_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    digits.parse().ok().filter(|_| digits.len() == 12)
}
