//! Tests of the embedded store, and what they are made of.

mod away;
mod conformance;
mod embedded;
mod faults;
mod lost;
mod moving;
mod offline;
mod property;
mod recovery;
mod scale;
mod snapshots;
mod state;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::store::{Admission, Changes, EffectChange, Store, StoreError};
use placet_testkit::clock::TestClock;
use placet_types::clock::{Clock, Timestamp};
use placet_types::contract::Dedup;
use placet_types::ids::{ApprovalId, IdempotencyKey, ToolCallId};

use super::{EmbeddedConfig, EmbeddedStore, Entry, OpenError, RecoveryReport, decode_entry, keys};
use crate::journal::tests::FaultyDisk;
use crate::journal::{Frame, JournalError, VerifyReport, verify_each};
use crate::testing::*;

/// A store with small segments, on a medium that does not wait for the disk.
pub(super) fn config(directory: &Path) -> EmbeddedConfig {
    on(directory, &FaultyDisk::default())
}

pub(super) fn on(directory: &Path, disk: &FaultyDisk) -> EmbeddedConfig {
    EmbeddedConfig {
        segment_bytes: 64 << 10,
        free_space_watermark_bytes: 1 << 20,
        state_cache_bytes: 8 << 20,
        medium: Arc::new(disk.clone()),
        ..EmbeddedConfig::new(directory)
    }
}

/// Opens; where an earlier store was dropped without being closed, its writer may still be at its end.
pub(super) fn try_open(
    config: &EmbeddedConfig,
) -> Result<(Arc<EmbeddedStore>, RecoveryReport), OpenError> {
    for _ in 0..500 {
        match EmbeddedStore::open(config.clone(), TestClock::at(NOW_MS)) {
            Err(OpenError::Journal(JournalError::Locked { .. })) => {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            opened => return opened,
        }
    }
    EmbeddedStore::open(config.clone(), TestClock::at(NOW_MS))
}

pub(super) fn open(config: &EmbeddedConfig) -> (Arc<EmbeddedStore>, RecoveryReport) {
    try_open(config).unwrap()
}

/// Hands each entry of the chain to `visit`, beside a process that writes it too.
/// How many records, approvals and runs the state of a store holds.
pub(super) fn counted(store: &EmbeddedStore) -> [u64; 3] {
    let tree = store.state.tree().unwrap();
    [keys::EFFECT, keys::APPROVAL, keys::RUN].map(|kind| tree.count(&[kind]).unwrap())
}

pub(super) fn read_audit(directory: &Path, visit: &mut dyn FnMut(&Frame, Entry)) -> VerifyReport {
    let read = verify_each(&directory.join("journal"), None, &mut |frame| {
        visit(frame, decode_entry(frame.kind, &frame.payload)?);
        Ok(())
    });
    read.unwrap()
}

/// Copies a folder with everything in it, beside the process that uses it.
fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let into = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_folder(&entry.path(), &into);
        } else {
            std::fs::copy(entry.path(), into).unwrap();
        }
    }
}
