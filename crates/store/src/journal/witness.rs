//! The high-water witness: a second, small file that remembers how far the journal was durable.
//!
//! Owns: the file `high-water`. Not here: when it is written (`Journal`), what a disagreement means (`scan`, `Journal::open`).
//! Invariant: it never names an entry that was not durable before, so a journal that ends earlier has lost something.

use std::io;
use std::path::Path;

use super::error::JournalError;
use super::frame::{checked, take};
use super::medium::{Medium, read_full_at, replace_file};

const FILE: &str = "high-water";
const MAGIC: [u8; 8] = *b"PLWITN\x00\x01";
const BYTES: usize = 68;

/// What was known to be durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Witness {
    /// The epoch of the process that wrote it; no earlier process may write any more.
    pub(crate) epoch: u64,
    /// The last durable entry; 0 before the first.
    pub(crate) seq: u64,
    /// How many segments there were, or for a node of a database how many entries of all nodes; 0 before the first.
    pub(crate) extent: u64,
    /// The hash of that entry; zeros before the first.
    pub(crate) head: [u8; 32],
}

impl Witness {
    /// Reads the witness; `None` where there is none.
    pub(crate) fn read(
        medium: &dyn Medium,
        directory: &Path,
    ) -> Result<Option<Self>, JournalError> {
        let path = directory.join(FILE);
        let file = match medium.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(JournalError::io("open the witness", &path)(error)),
        };
        let mut bytes = [0; BYTES];
        let count = read_full_at(&*file, &mut bytes, 0)
            .map_err(JournalError::io("read the witness", &path))?;
        let decoded = Self::decode(&bytes).filter(|_| count == BYTES);
        let unsound = || JournalError::unsound(0, "the high-water witness does not verify");
        decoded.map(Some).ok_or_else(unsound)
    }

    /// Puts the witness in place durably.
    pub(crate) fn write(&self, medium: &dyn Medium, directory: &Path) -> Result<(), JournalError> {
        let path = directory.join(FILE);
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&self.epoch.to_le_bytes());
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.extent.to_le_bytes());
        out.extend_from_slice(&self.head);
        out.extend_from_slice(&crc32c::crc32c(&out).to_le_bytes());
        replace_file(medium, &path, &out).map_err(JournalError::io("write the witness", &path))
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let mut rest = checked(bytes, &MAGIC)?;
        Some(Self {
            epoch: u64::from_le_bytes(take(&mut rest)?),
            seq: u64::from_le_bytes(take(&mut rest)?),
            extent: u64::from_le_bytes(take(&mut rest)?),
            head: take(&mut rest)?,
        })
    }
}
