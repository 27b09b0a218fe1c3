//! Whether a folder is an incomplete copy of a ledger.
//!
//! Owns the refusal of an incomplete copy and of the empty target of an unfinished import. Not here: the witness and the state, which
//! notice a journal that lost its end; the copying (`backup`), the importing (`transfer`). Invariant: what may lack a part of a ledger is
//! never served.

use std::path::{Path, PathBuf};

use super::open::{JOURNAL, OpenError};
use crate::journal::JournalError;

/// Exists in a copy until the copy is complete.
pub(super) const UNFINISHED: &str = "unfinished-copy";

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
    let is_there = |path: &Path| path.try_exists().map_err(JournalError::io("look for", path));
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
