//! Where the segments of a journal are: in its folder, or in the archive that the oldest were moved to.
//!
//! Owns finding a segment's file, the file `base` (what was moved away, and how the rest of the chain is tied to it), and the moving.
//! Not here: which segments may be moved (their records must be kept elsewhere first). Invariants: nothing is deleted; a
//! segment is missing from the folder only when `base` says so, durably, before it is moved.
//!
//! ```text
//! base: "PLBASE" 00 01, then 8 bytes each of the number of the first segment that is still here and of its first sequence
//!       number, then 32 of the hash of the entry before it, then the CRC-32C of all before it
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::error::{Fault, JournalError};
use super::frame::take;
use super::medium::{
    Medium, MediumFile, beside, read_full_at, replace_file, to_u64, to_usize, write_all_at,
};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, number_of, path_of};

const FILE: &str = "base";
const MAGIC: [u8; 8] = *b"PLBASE\x00\x01";
const BYTES: usize = 60;
const COPY_BYTES: usize = 1 << 20;

/// The name of the folder beside the journal to which segments are moved, unless another one is configured.
const ARCHIVE: &str = "archive";

/// What the rest of the chain is tied to after the oldest segments were moved away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Base {
    /// The first segment that is still in the journal's folder.
    pub(crate) segment: u64,
    /// Its first entry.
    pub(crate) first_seq: u64,
    /// The hash of the entry before that.
    pub(crate) prev: [u8; 32],
}

impl Base {
    /// Nothing was moved away.
    pub(crate) const START: Self = Self { segment: 1, first_seq: 1, prev: [0; 32] };

    /// Reads what was moved away.
    pub(crate) fn read(medium: &dyn Medium, directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(FILE);
        let file = match medium.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::START),
            Err(error) => return Err(JournalError::io("open the base", &path)(error)),
        };
        let mut bytes = [0; BYTES];
        let count = read_full_at(&*file, &mut bytes, 0)
            .map_err(JournalError::io("read the base", &path))?;
        let decoded = if count == BYTES { Self::decode(&bytes) } else { Err(Fault::Base) };
        decoded.map_err(|fault| JournalError::Corrupt { segment: 0, offset: 0, seq: 0, fault })
    }

    pub(crate) fn write(&self, medium: &dyn Medium, directory: &Path) -> Result<(), JournalError> {
        let path = directory.join(FILE);
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        out.extend_from_slice(&self.prev);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        replace_file(medium, &path, &out).map_err(JournalError::io("write the base", &path))
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let (fields, crc) = bytes.split_last_chunk::<4>().ok_or(Fault::Base)?;
        let mut rest = fields;
        if take::<8>(&mut rest)? != MAGIC || crc32c::crc32c(fields) != u32::from_le_bytes(*crc) {
            return Err(Fault::Base);
        }
        Ok(Self {
            segment: u64::from_le_bytes(take(&mut rest)?),
            first_seq: u64::from_le_bytes(take(&mut rest)?),
            prev: take(&mut rest)?,
        })
    }
}

/// The folders in which segments are.
#[derive(Debug, Clone)]
pub(crate) struct SegmentFiles {
    pub(crate) medium: Arc<dyn Medium>,
    pub(crate) directory: PathBuf,
    pub(crate) archive: PathBuf,
}

impl SegmentFiles {
    /// The segments of a journal; without `archive` the folder beside it.
    pub(crate) fn new(medium: Arc<dyn Medium>, directory: &Path, archive: Option<&Path>) -> Self {
        let archive = archive.map_or_else(|| archive_beside(directory), Path::to_owned);
        Self { medium, directory: directory.to_owned(), archive }
    }

    /// Opens a segment, wherever it is.
    pub(crate) fn open_read(
        &self,
        number: u64,
    ) -> Result<(Box<dyn MediumFile>, PathBuf), JournalError> {
        let mut path = path_of(&self.directory, number);
        let mut opened = self.medium.open_read(&path);
        if is_absent(&opened) {
            path = path_of(&self.archive, number);
            opened = self.medium.open_read(&path);
            if is_absent(&opened) {
                return Err(JournalError::Archived { segment: number });
            }
        }
        Ok((opened.map_err(JournalError::io("open the segment", &path))?, path))
    }

    /// The header of a segment.
    pub(crate) fn header(&self, number: u64) -> Result<SegmentHeader, JournalError> {
        let (file, path) = self.open_read(number)?;
        let mut bytes = vec![0; to_usize(SEGMENT_HEADER_BYTES)];
        let count = read_full_at(&*file, &mut bytes, 0)
            .map_err(JournalError::io("read the segment", &path))?;
        let decoded = SegmentHeader::decode(bytes.get(..count).unwrap_or_default());
        decoded.ok().filter(|header| header.number == number).ok_or(JournalError::Corrupt {
            segment: number,
            offset: 0,
            seq: 0,
            fault: Fault::SegmentHeader,
        })
    }

    /// The numbers of the segments in the journal's folder, and of those in the archive, ascending.
    pub(crate) fn numbers(&self) -> Result<(Vec<u64>, Vec<u64>), JournalError> {
        let list = |folder: &Path| match self.medium.list(folder) {
            Ok(names) => Ok(names.iter().filter_map(|name| number_of(name)).collect::<Vec<_>>()),
            Err(error) => Err(error),
        };
        let here =
            list(&self.directory).map_err(JournalError::io("list the folder", &self.directory))?;
        let archived = match list(&self.archive) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed.map_err(JournalError::io("list the folder", &self.archive))?,
        };
        Ok((here, archived))
    }

    /// Moves the segments before `base` to the archive; `base` becomes durable first. Answers how many were moved.
    pub(crate) fn archive_before(&self, base: &Base) -> Result<u64, JournalError> {
        base.write(&*self.medium, &self.directory)?;
        self.finish_archiving(base)
    }

    /// Moves what `base` says was moved: a crash may have come between.
    pub(crate) fn finish_archiving(&self, base: &Base) -> Result<u64, JournalError> {
        let (here, _) = self.numbers()?;
        let due: Vec<u64> = here.into_iter().filter(|number| *number < base.segment).collect();
        if due.is_empty() {
            return Ok(0);
        }
        self.medium
            .create_dir(&self.archive)
            .map_err(JournalError::io("make the folder", &self.archive))?;
        for number in &due {
            let (from, to) = (path_of(&self.directory, *number), path_of(&self.archive, *number));
            self.move_file(&from, &to).map_err(JournalError::io("archive the segment", &from))?;
        }
        for folder in [&self.archive, &self.directory] {
            self.medium.sync_dir(folder).map_err(JournalError::io("sync the folder", folder))?;
        }
        Ok(to_u64(due.len()))
    }

    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.medium.rename(from, to) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {}
            renamed => return renamed,
        }
        let temporary = beside(to);
        copy_file(&*self.medium, from, &temporary, u64::MAX)?;
        self.medium.rename(&temporary, to)?;
        self.medium.sync_dir(&self.archive)?;
        self.medium.remove(from)
    }
}

/// The archive of a journal for which none is configured: the folder of that name beside it.
pub(crate) fn archive_beside(directory: &Path) -> PathBuf {
    directory.parent().unwrap_or(directory).join(ARCHIVE)
}

/// Copies the first bytes of a file into a new one, and makes them durable; answers how many there were.
pub(crate) fn copy_file(
    medium: &dyn Medium,
    from: &Path,
    to: &Path,
    length_max: u64,
) -> io::Result<u64> {
    let source = medium.open_read(from)?;
    let target = medium.create(to)?;
    let mut buffer = vec![0; COPY_BYTES];
    let mut at: u64 = 0;
    while at < length_max {
        let want = to_usize(length_max.saturating_sub(at)).min(COPY_BYTES);
        let count = read_full_at(&*source, buffer.get_mut(..want).unwrap_or_default(), at)?;
        if count == 0 {
            break;
        }
        write_all_at(&*target, buffer.get(..count).unwrap_or_default(), at)?;
        at = at.saturating_add(to_u64(count));
    }
    target.sync_data()?;
    Ok(at)
}

fn is_absent<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
