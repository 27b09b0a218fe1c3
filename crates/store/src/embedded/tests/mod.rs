//! Tests of the embedded store, and what they are made of.

mod away;
mod carried;
mod checkpoints;
mod conformance;
mod copies;
mod embedded;
mod faults;
mod floor;
mod index;
mod lost;
mod moving;
mod offline;
mod property;
mod refused;
mod scale;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_ledger::record::{Class, EffectRecord, EffectState};
use placet_ledger::store::{Admission, Changes, EffectChange, Store, StoreError};
use placet_testkit::clock::TestClock;
use placet_types::clock::{Clock, Timestamp};
use placet_types::ids::{ApprovalId, IdempotencyKey, ToolCallId};

use super::{EmbeddedConfig, EmbeddedStore, OpenError, RecoveryReport};
use crate::journal::JournalError;
use crate::journal::tests::FaultyDisk;
use crate::testing::*;

/// A store with small segments, on a medium that does not wait for the disk.
pub(super) fn config(directory: &Path) -> EmbeddedConfig {
    on(directory, &FaultyDisk::default())
}

pub(super) fn on(directory: &Path, disk: &FaultyDisk) -> EmbeddedConfig {
    EmbeddedConfig {
        segment_bytes: 64 << 10,
        free_space_watermark_bytes: 1 << 20,
        index_cache_bytes: 8 << 20,
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

/// The first pack of a tenant's content.
pub(super) fn pack_of(folder: &Path, tenant: &str) -> std::path::PathBuf {
    let tenant = placet_types::digest::Digest::of(tenant.as_bytes()).to_string();
    let tenant = tenant.trim_start_matches("sha256:");
    folder.join("content").join(tenant).join("000001.pack")
}

/// Copies a folder with everything in it, beside whoever uses it.
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
