//! Which ledger this is, and whether it is an old or incomplete copy of itself.
//!
//! Owns the file `store-id`, the comparison with a head known from elsewhere, and the refusal of an incomplete copy and of the empty target
//! of an unfinished import. Not here: the witness and the state, which notice a journal that lost its end; the copying (`backup`), the
//! importing (`transfer`). Invariants: a ledger keeps its identity in every copy; a copy in which everything is equally old can be
//! recognized only by a head that was kept outside of it.

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
/// Exists in a copy until the copy is complete.
pub(super) const UNFINISHED: &str = "unfinished-copy";

/// The head of the log at some time, known from outside of the ledger: from a signed checkpoint, or a backup's report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KnownHead {
    /// The last entry at that time.
    pub seq: u64,
    /// Its hash.
    pub hash: [u8; 32],
}

/// Where an import builds its ledger, next to its target.
pub(super) fn importing(directory: &Path) -> PathBuf {
    let mut name = directory.as_os_str().to_owned();
    name.push(".importing");
    PathBuf::from(name)
}

/// Refuses a copy whose making was cut short, and the target of an unfinished import: an empty ledger there would do everything again.
///
/// # Errors
/// [`OpenError::UnfinishedCopy`], [`OpenError::UnfinishedImport`], or what the operating system answers.
pub fn check_finished(directory: &Path) -> Result<(), OpenError> {
    let is_there = |path: &Path| path.try_exists().map_err(OpenError::io("look for", path));
    if is_there(&directory.join(UNFINISHED))? {
        return Err(OpenError::UnfinishedCopy { directory: directory.to_owned() });
    }
    let beside = importing(directory);
    // Next to a ledger it is left over from an import into the target while that was empty, and means nothing.
    if is_there(&beside)? && !is_there(&directory.join(JOURNAL))? {
        return Err(OpenError::UnfinishedImport { directory: directory.to_owned(), beside });
    }
    Ok(())
}

/// The name of the ledger, from its file or else from the newest snapshot; and whether the file exists.
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

/// A new, unique name.
fn new_id() -> io::Result<String> {
    let mut bytes = [0; 16];
    OsRng.try_fill_bytes(&mut bytes).map_err(io::Error::other)?;
    Ok(format!("ledger_{}", hex::encode(bytes)))
}

/// Refuses a ledger that does not hold the known head.
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
        // That entry was archived, and the archive is elsewhere: the journal goes further, and no more can be said.
        Err(JournalError::Archived { .. } | JournalError::Absent { .. }) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
