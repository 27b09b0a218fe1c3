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

use super::{Frame, Journal, JournalConfig, JournalError, RecoveryReport};

/// A config with segments small enough to have several, on a medium that does not wait for the disk.
pub(crate) fn small(directory: &Path) -> JournalConfig {
    on(directory, &FaultyDisk::default())
}

pub(crate) fn on(directory: &Path, medium: &FaultyDisk) -> JournalConfig {
    JournalConfig {
        segment_bytes: 2048,
        medium: Arc::new(medium.clone()),
        ..JournalConfig::new(directory)
    }
}

pub(crate) fn open(
    config: JournalConfig,
) -> Result<(Journal, Vec<Frame>, RecoveryReport), JournalError> {
    let mut seen = Vec::new();
    let recovered = Journal::open(config, &mut |frame| {
        seen.push(frame.clone());
        Ok(())
    })?;
    Ok((recovered.journal, seen, recovered.report))
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
