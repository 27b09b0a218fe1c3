//! Where the segments of a journal are: in its folder, or in the archive that the oldest were moved to.
//!
//! Owns finding a segment's file, the file `base` (what was archived, and how the rest of the chain continues it), and the moving. Not
//! here: which segments may be moved (their records must be kept elsewhere first). Invariants: nothing is deleted; a segment is missing
//! from the folder only when `base` says so, durably, before it is moved.
//!
//! ```text
//! base: "PLBASE" 00 02, then 8 bytes each of the number of the first segment that is still here and of its first sequence
//!       number, then 32 of the hash of the entry before it, then the frontier of the tree over the entries before it
//!       (`placet_ledger::proof::Frontier::to_bytes`), then the CRC-32C of all before it
//! ```

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::proof::Frontier;

use super::content::Place;
use super::error::JournalError;
use super::frame::{checked, take};
use super::medium::{
    Disk, Medium, MediumFile, beside, read_full_at, replace_file, to_u64, to_usize, write_all_at,
};
use super::segment::{SEGMENT_HEADER_BYTES, SegmentHeader, UNSOUND, number_of, path_of};

const FILE: &str = "base";
const MAGIC: [u8; 8] = *b"PLBASE\x00\x02";
const BYTES_MAX: usize = 16 << 10;
const COPY_BYTES: usize = 1 << 20;

/// The name of the archive folder next to the journal, unless another one is configured.
const ARCHIVE: &str = "archive";

/// The point at which the rest of the chain continues the archived segments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Base {
    /// The first segment that is still in the journal's folder.
    pub(crate) segment: u64,
    /// Its first entry.
    pub(crate) first_seq: u64,
    /// The hash of the entry before that.
    pub(crate) prev: [u8; 32],
    /// The tree over the entries before that: verification of the rest continues from it when they are elsewhere.
    pub(crate) frontier: Frontier,
}

impl Base {
    /// Nothing was moved away.
    pub(crate) const START: Self =
        Self { segment: 1, first_seq: 1, prev: [0; 32], frontier: Frontier::new() };

    /// Reads what was moved away.
    pub(crate) fn read(medium: &dyn Medium, directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(FILE);
        let file = match medium.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::START),
            Err(error) => return Err(JournalError::io("open the base", &path)(error)),
        };
        let mut bytes = vec![0; BYTES_MAX];
        let count = read_full_at(&*file, &mut bytes, 0)
            .map_err(JournalError::io("read the base", &path))?;
        let decoded = Self::decode(bytes.get(..count).unwrap_or_default());
        decoded.ok_or_else(|| JournalError::unsound(0, "the base of the journal does not verify"))
    }

    pub(crate) fn write(&self, medium: &dyn Medium, directory: &Path) -> Result<(), JournalError> {
        let path = directory.join(FILE);
        let mut out = MAGIC.to_vec();
        out.extend_from_slice(&self.segment.to_le_bytes());
        out.extend_from_slice(&self.first_seq.to_le_bytes());
        out.extend_from_slice(&self.prev);
        out.extend_from_slice(&self.frontier.to_bytes());
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        replace_file(medium, &path, &out).map_err(JournalError::io("write the base", &path))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = checked(bytes, &MAGIC)?;
        let segment = u64::from_le_bytes(take(&mut rest)?);
        let first_seq = u64::from_le_bytes(take(&mut rest)?);
        let prev = take(&mut rest)?;
        Some(Self { segment, first_seq, prev, frontier: Frontier::from_bytes(rest)? })
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

    /// The bytes of a content; the caller compares them with its digest.
    pub(crate) fn content(&self, place: &Place) -> Result<Vec<u8>, JournalError> {
        let (file, path) = self.open_read(place.segment)?;
        let mut bytes = vec![0; to_usize(u64::from(place.bytes))];
        let count = read_full_at(&*file, &mut bytes, place.offset);
        bytes.truncate(count.map_err(JournalError::io("read the segment", &path))?);
        Ok(bytes)
    }

    /// The header of a segment.
    pub(crate) fn header(&self, number: u64) -> Result<SegmentHeader, JournalError> {
        let (file, path) = self.open_read(number)?;
        let mut bytes = vec![0; to_usize(SEGMENT_HEADER_BYTES)];
        let count = read_full_at(&*file, &mut bytes, 0)
            .map_err(JournalError::io("read the segment", &path))?;
        let decoded = SegmentHeader::decode(bytes.get(..count).unwrap_or_default());
        let placed = decoded.filter(|header| header.number == number);
        placed.ok_or_else(|| JournalError::unsound(number, UNSOUND))
    }

    /// The numbers of the segments in the journal's folder, and of those in the archive, ascending. An unreadable archive counts as absent.
    pub(crate) fn numbers(&self) -> Result<(Vec<u64>, Vec<u64>), JournalError> {
        let archived = self.list(&self.archive).unwrap_or_else(|error| {
            if error.kind() != io::ErrorKind::NotFound {
                let folder = self.archive.display();
                tracing::warn!(%error, %folder, "the archive of the journal cannot be looked into");
            }
            Vec::new()
        });
        Ok((self.here()?, archived))
    }

    /// The numbers of the segments in the journal's folder.
    fn here(&self) -> Result<Vec<u64>, JournalError> {
        self.list(&self.directory).map_err(JournalError::io("list the folder", &self.directory))
    }

    fn list(&self, folder: &Path) -> io::Result<Vec<u64>> {
        let names = self.medium.list(folder)?;
        Ok(names.iter().filter_map(|name| number_of(name)).collect())
    }

    /// Records, durably, that the segments before `base` are in the archive or being moved there.
    pub(crate) fn begin_archiving(&self, base: &Base) -> Result<(), JournalError> {
        base.write(&*self.medium, &self.directory)
    }

    /// Moves the segments before `base` that are still here: a crash may have interrupted the move, or the archive may have been full or
    /// away. Answers how many were moved. An error is no fault of the journal, which can still read them: the move is retried.
    pub(crate) fn finish_archiving(&self, base: &Base) -> Result<u64, JournalError> {
        let due: Vec<u64> = self.here()?.into_iter().filter(|n| *n < base.segment).collect();
        if due.is_empty() {
            return Ok(0);
        }
        let made = self.medium.create_dir(&self.archive);
        made.map_err(JournalError::io("make the folder", &self.archive))?;
        for number in &due {
            let (from, to) = (path_of(&self.directory, *number), path_of(&self.archive, *number));
            let moved = self.move_file(&from, &to);
            moved.map_err(JournalError::io("archive the segment", &from))?;
        }
        for folder in [&self.archive, &self.directory] {
            let synced = self.medium.sync_dir(folder);
            synced.map_err(JournalError::io("sync the folder", folder))?;
        }
        Ok(to_u64(due.len()))
    }

    /// A segment that is in the archive already is replaced only by itself, after a crash: otherwise it is that of another journal.
    fn move_file(&self, from: &Path, to: &Path) -> io::Result<()> {
        match self.medium.open_read(to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            // Replacing it, instead of removing the one here, loses nothing where the archive is this same folder under another name.
            Ok(there) if is_same(&*self.medium.open_read(from)?, &*there)? => {}
            Ok(_) => {
                let why =
                    format!("`{}` is there and differs: an archive is of one ledger", to.display());
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
            }
        }
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

/// How many segments that should be in the archive are still in the journal's folder. Changes nothing.
///
/// # Errors
/// What the operating system answers.
pub fn unmoved_segments(directory: &Path) -> Result<u64, JournalError> {
    let base = Base::read(&Disk, directory)?;
    let here = SegmentFiles::new(Arc::new(Disk), directory, None).here()?;
    Ok(to_u64(here.iter().filter(|number| **number < base.segment).count()))
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

fn is_same(one: &dyn MediumFile, other: &dyn MediumFile) -> io::Result<bool> {
    let (mut left, mut right) = (vec![0; COPY_BYTES], vec![0; COPY_BYTES]);
    let mut at: u64 = 0;
    loop {
        let (read, there) =
            (read_full_at(one, &mut left, at)?, read_full_at(other, &mut right, at)?);
        if left.get(..read) != right.get(..there) {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        at = at.saturating_add(to_u64(read));
    }
}

fn is_absent<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}
