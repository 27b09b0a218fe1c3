//! Tests of the journal, and the medium that fails on demand (used by the tests of the embedded store, too).

mod basics;
mod faults;
#[expect(clippy::arithmetic_side_effects, reason = "small numbers in tests")]
mod medium;
#[expect(clippy::arithmetic_side_effects, reason = "small numbers in tests")]
mod property;
mod tampering;

use std::path::Path;
use std::sync::Arc;

pub(crate) use medium::{Failure, FaultyDisk, Op, Target};

use super::{Frame, FrameRef, Journal, JournalConfig, JournalError, VerifyReport, verify_each};

/// A config with segments small enough to have several, on a medium that does not wait for the disk.
pub(crate) fn small(directory: &Path) -> JournalConfig {
    on(directory, &FaultyDisk::default())
}

pub(crate) fn on(directory: &Path, medium: &FaultyDisk) -> JournalConfig {
    JournalConfig {
        directory: directory.to_owned(),
        segment_bytes: 2048,
        free_space_watermark_bytes: 256 << 20,
        archive: None,
        medium: Arc::new(medium.clone()),
    }
}

/// Opens; answers the entries, and how many bytes were cut off.
pub(crate) fn open(config: JournalConfig) -> Result<(Journal, Vec<Frame>, u64), JournalError> {
    let recovered = Journal::open(config)?;
    let seen = recovered.journal.reader().read_from(1).collect::<Result<_, _>>()?;
    Ok((recovered.journal, seen, recovered.torn_bytes))
}

pub(crate) fn verify(directory: &Path) -> Result<VerifyReport, JournalError> {
    verify_each(directory, None, &mut |_| Ok(()))
}

impl Journal {
    /// An entry without contents.
    pub(crate) fn append(
        &mut self,
        kind: u8,
        at_ms: i64,
        payload: &[u8],
    ) -> Result<FrameRef, JournalError> {
        self.append_with(kind, at_ms, payload.to_vec(), &[]).map(|(placed, _)| placed)
    }
}

pub(crate) fn payloads(frames: &[Frame]) -> Vec<Vec<u8>> {
    frames.iter().map(|frame| frame.payload.clone()).collect()
}

/// Appends `count` entries with one sync each, in a journal that then ends as if killed.
pub(crate) fn fill(directory: &Path, count: u8) -> Vec<Vec<u8>> {
    let (mut journal, seen, _) = open(small(directory)).unwrap();
    let mut all = payloads(&seen);
    for number in 0..count {
        let payload = vec![number | 1; 100];
        journal.append(number, i64::from(number), &payload).unwrap();
        journal.sync().unwrap();
        all.push(payload);
    }
    all
}
