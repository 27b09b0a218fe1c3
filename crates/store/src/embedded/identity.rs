//! Which ledger this is, and whether it is an old copy of itself, or a part of one.
//!
//! Owns the file `store-id`, the comparison with a head that is known from elsewhere, and the refusal of a copy that is not whole, and of
//! the empty place of an import that did not come to its end. Not here: the witness and the state, which notice a journal that lost its
//! end; the copying (`backup`), the importing (`transfer`). Invariants: a ledger keeps its identity in every copy; a copy in which
//! everything is equally old can only be told by a head that was kept outside of it.

use std::io;
use std::path::{Path, PathBuf};

use rand::TryRngCore as _;
use rand::rngs::OsRng;

use super::EmbeddedConfig;
use super::open::{JOURNAL, OpenError, of_snapshot};
use super::snapshot::Snapshots;
use crate::journal::medium::replace_file;
use crate::journal::{Journal, JournalError};

const FILE: &str = "store-id";
/// Stands in a copy until all of it is there.
pub(super) const UNFINISHED: &str = "unfinished-copy";

/// The head of the log as it was at some time, from outside of the ledger: a signed checkpoint, a backup's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHead {
    /// The last entry at that time.
    pub seq: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

/// Where an import makes its ledger, beside the place where it is to be.
pub(super) fn importing(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".importing");
    PathBuf::from(name)
}

/// Refuses a copy whose making was cut short, and a place into which something was being imported: an empty ledger there would do
/// everything once more.
///
/// # Errors
/// [`OpenError::UnfinishedCopy`], [`OpenError::UnfinishedImport`], or what the operating system answers.
pub fn check_finished(directory: &Path) -> Result<(), OpenError> {
    let is_there = |path: &Path| path.try_exists().map_err(OpenError::io("look for", path));
    if is_there(&directory.join(UNFINISHED))? {
        return Err(OpenError::UnfinishedCopy { directory: directory.to_owned() });
    }
    let beside = importing(directory);
    // Beside a ledger it is what is left of an import into the place that was empty then, and stands for nothing.
    if is_there(&beside)? && !is_there(&directory.join(JOURNAL))? {
        return Err(OpenError::UnfinishedImport { directory: directory.to_owned(), beside });
    }
    Ok(())
}

/// The name of the ledger, as its file, or else the newest snapshot, has it; and whether the file is there.
pub(super) fn known_id(
    directory: &Path,
    snapshots: &Snapshots,
) -> Result<(Option<String>, bool), OpenError> {
    let path = directory.join(FILE);
    let found = match std::fs::read_to_string(&path) {
        Ok(text) => Some(text.trim().to_owned()).filter(|text| !text.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(OpenError::io("read", &path)(error)),
    };
    match found {
        Some(id) => Ok((Some(id), true)),
        None => Ok((snapshots.store_id().map_err(of_snapshot)?, false)),
    }
}

/// The name of the ledger: made at its first start, and the same in all its copies.
pub(super) fn store_id(
    config: &EmbeddedConfig,
    snapshots: &Snapshots,
) -> Result<String, OpenError> {
    match known_id(&config.directory, snapshots)? {
        (Some(id), true) => Ok(id),
        (known, _) => {
            let path = config.directory.join(FILE);
            let id = known.map_or_else(new_id, Ok);
            let id = id.map_err(OpenError::io("make a name for", &path))?;
            replace_file(&*config.medium, &path, format!("{id}\n").as_bytes())
                .map_err(OpenError::io("write", &path))?;
            Ok(id)
        }
    }
}

/// A name that no other ledger has.
fn new_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    OsRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("ledger_{}", hex::encode(bytes)))
}

/// Refuses a ledger that does not hold what is known of it.
pub(super) fn check_known_head(
    config: &EmbeddedConfig,
    journal: &Journal,
) -> Result<(), OpenError> {
    let Some(known) = config.known_head.filter(|known| known.seq > 0) else { return Ok(()) };
    let old = OpenError::OldCopy { known_seq: known.seq };
    if journal.head().0 < known.seq {
        return Err(old);
    }
    match journal.reader().read(known.seq) {
        Ok(frame) if frame.hash == known.hash => Ok(()),
        Ok(_) => Err(old),
        // It was archived, and the archive is elsewhere: the journal goes further, and that is all that can be told.
        Err(JournalError::Archived { .. } | JournalError::Absent { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
