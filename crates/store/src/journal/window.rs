//! A window over a segment file, so that a segment is read in order with a bounded amount of memory.
//!
//! Not here: what the bytes mean. Invariant: it returns what the medium read, and no more than was asked for.

use std::io;
use std::path::PathBuf;

use super::error::JournalError;
use super::medium::{MediumFile, read_full_at, to_u64, to_usize};

const WINDOW_BYTES: usize = 64 * 1024;
/// As much as a disk reads in about the time of one byte.
const GLANCE_BYTES: usize = 16 * 1024;
const ZEROS: [u8; 4096] = [0; 4096];

/// One open file and the part of it that is in memory.
#[derive(Debug)]
pub(crate) struct Window {
    file: Box<dyn MediumFile>,
    path: PathBuf,
    start: u64,
    bytes: Vec<u8>,
    /// The minimum to read at a time.
    least: usize,
}

impl Window {
    pub(crate) fn new(file: Box<dyn MediumFile>, path: PathBuf) -> Self {
        Self { file, path, start: 0, bytes: Vec::new(), least: WINDOW_BYTES }
    }

    /// A window for reading a single place, with one read where the result ends within `bytes`.
    pub(crate) fn glance(self, bytes: Option<u64>) -> Self {
        let least = bytes.map_or(GLANCE_BYTES, |bytes| to_usize(bytes).min(GLANCE_BYTES));
        Self { least, ..self }
    }

    /// The length of the file.
    pub(crate) fn length(&self) -> Result<u64, JournalError> {
        self.file.length().map_err(self.failed())
    }

    /// Up to `want` bytes from `offset`: less only at the end of the file.
    pub(crate) fn at(&mut self, offset: u64, want: usize) -> Result<&[u8], JournalError> {
        let end = offset.saturating_add(to_u64(want));
        let held_end = self.start.saturating_add(to_u64(self.bytes.len()));
        if offset < self.start || end > held_end {
            self.fill(offset, want.max(self.least)).map_err(self.failed())?;
        }
        let held =
            self.bytes.get(to_usize(offset.saturating_sub(self.start))..).unwrap_or_default();
        Ok(held.get(..want).unwrap_or(held))
    }

    /// Drops what is in memory, so that it is read again.
    pub(crate) fn refresh(&mut self) {
        self.bytes.clear();
    }

    /// The byte after the last one that is not zero, from `offset` on; `None` where all are zeros.
    pub(crate) fn end_of_data(&mut self, offset: u64) -> Result<Option<u64>, JournalError> {
        let mut end = None;
        let mut at = offset;
        loop {
            let bytes = self.at(at, ZEROS.len())?;
            if bytes.is_empty() {
                return Ok(end);
            }
            if ZEROS.get(..bytes.len()) != Some(bytes) {
                let last = bytes.iter().rposition(|byte| *byte != 0).unwrap_or_default();
                end = Some(at.saturating_add(to_u64(last)).saturating_add(1));
            }
            at = at.saturating_add(to_u64(bytes.len()));
        }
    }

    fn fill(&mut self, offset: u64, want: usize) -> io::Result<()> {
        self.bytes.resize(want, 0);
        self.start = offset;
        let count = read_full_at(&*self.file, &mut self.bytes, offset);
        self.bytes.truncate(*count.as_ref().unwrap_or(&0));
        count.map(|_| ())
    }

    fn failed(&self) -> impl FnOnce(io::Error) -> JournalError {
        JournalError::io("read the segment", &self.path)
    }
}
