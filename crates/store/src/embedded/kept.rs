//! The logs of earlier stores that held this ledger, kept next to its own.
//!
//! Owns where they are, and reading them. Not here: how they arrive, and how they get into exports (`transfer`) and backups (`backup`).
//! Invariant: what is passed on verifies.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};

use placet_ledger::log::LogEntry;
use placet_ledger::proof::note::NoteName;

use super::log::LOG;
use super::transfer::refused;
use crate::seal::verify_whole;
use crate::transfer::{ExportedLog, TransferError};

/// Where the logs of another store are kept: one file each, as [`verify_whole`] reads them.
pub(super) const IMPORTED: &str = "imported";

/// A log of a store that held the ledger earlier.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) file: PathBuf,
    pub(super) origin: NoteName,
    pub(super) log: ExportedLog,
}

/// The logs kept next to the ledger's own, verified; under their own names, except for one that has the same name as the ledger's own log.
pub(super) fn kept_logs(directory: &Path) -> Result<Vec<Kept>, TransferError> {
    let mut found = Vec::new();
    for file in imported_logs(directory)? {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let name = if stem == LOG { format!("{LOG}-imported") } else { stem };
        let whole = verify_whole(&mut BufReader::new(File::open(&file)?), &BTreeSet::new());
        let whole = whole.map_err(|error| refused(format!("`{}`: {error}", file.display())))?;
        let log = ExportedLog { log: name, size: whole.entries, head: hex::encode(whole.head) };
        let origin = whole.origin;
        found.push(Kept { file, origin, log });
    }
    Ok(found)
}

/// The files of logs that came from another store, in order.
///
/// # Errors
/// The folder cannot be read.
pub fn imported_logs(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    match std::fs::read_dir(directory.join(IMPORTED)) {
        Ok(entries) => {
            for entry in entries {
                files.push(entry?.path());
            }
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    files.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    files.sort();
    Ok(files)
}

/// Passes the entries of a kept, verified log to `visit`.
pub(super) fn each_kept(
    file: &Path,
    visit: &mut dyn FnMut(LogEntry) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    // The first line says how it was signed.
    for line in BufReader::new(File::open(file)?).lines().skip(1) {
        visit(serde_json::from_str(&line?).map_err(refused)?)?;
    }
    Ok(())
}
