//! The store on disk: opening it for the engine, and the offline commands on it.
//!
//! Owns where things lie in the data folder. Invariant: an offline command takes the lock on the store, or names who holds it.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use placet_ledger::store::Store;
use placet_types::clock::Clock;
use rustix::fs::FlockOperation;

use crate::{
    config::load::Config,
    failure::{Exit, Failure, Outcome},
    output,
};

/// The store's folder.
pub(crate) fn store_folder(data: &Path) -> PathBuf {
    data.join("ledger")
}

/// The journal's folder: the truth and the audit chain.
pub(crate) fn journal_folder(data: &Path) -> PathBuf {
    store_folder(data).join("journal")
}

/// The folder of parked calls, evidence and results.
pub(crate) fn content_folder(data: &Path) -> PathBuf {
    store_folder(data).join("content")
}

/// An opened store.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// What opening found, in words.
    pub(crate) report: String,
}

/// Opens the store: takes the lock, verifies the journal, brings the index up to it.
///
/// # Errors
/// [`Failure`] when somebody else holds it, or it is damaged.
pub(crate) async fn open(_data: &Path, _clock: Arc<dyn Clock>) -> Result<Opened, Failure> {
    Err(Failure::new("no store yet"))
}

/// Verifies journal, index and content of a stopped Placet.
pub(crate) async fn verify(config: &Config, _json: bool) -> Outcome {
    let _ = config;
    Ok(Exit::Ok)
}

/// Rebuilds the index of a stopped Placet.
pub(crate) async fn rebuild(config: &Config, _json: bool) -> Outcome {
    output::line(config.data.display().to_string());
    Ok(Exit::Ok)
}

/// Who holds the lock on the store, if anybody does: the process number where the lock file says so.
pub(crate) fn lock_holder(data: &Path) -> Option<String> {
    let file = File::open(journal_folder(data).join("lock")).ok()?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => None,
        Err(_taken) => {
            let mut text = String::new();
            // Without a number it is still held.
            file.take(20).read_to_string(&mut text).unwrap_or_default();
            Some(text.trim().to_owned()).map(|pid| if pid.is_empty() { "another process".to_owned() } else { format!("process {pid}") })
        }
    }
}
