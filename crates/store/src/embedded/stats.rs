//! How much is in a data folder that no process serves.
//!
//! Owns the counting. Invariant: nothing is changed but what sled does when it is opened.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use placet_ledger::approval::ApprovalState;

use super::EmbeddedConfig;
use super::identity::check_finished;
use super::keys;
use super::open::{JOURNAL, OpenError, STATE};
use super::snapshot::SNAPSHOTS;
use super::tree::{Tree, TreeFault};
use crate::journal::JournalError;
use crate::journal::lock::Lock;
use crate::journal::witness::Witness;
use crate::stats::StoreStats;

/// Counts what the state holds, as of its last entry.
///
/// # Errors
/// [`OpenError`]: the folder is in use, or has no state that can be read.
pub fn stats(config: &EmbeddedConfig) -> Result<StoreStats, OpenError> {
    let directory = &config.directory;
    check_finished(directory)?;
    let _lock = Lock::take(&directory.join(JOURNAL))?;
    let folder = directory.join(STATE);
    std::fs::metadata(&folder).map_err(JournalError::io("find the state", &folder))?;
    let mut bytes = BTreeMap::new();
    for part in [JOURNAL, STATE, SNAPSHOTS] {
        let path = directory.join(part);
        bytes
            .insert(part.to_owned(), size(&path).map_err(JournalError::io("look through", &path))?);
    }
    let tree = Tree::open(&folder, config.state_cache_bytes)?;
    let written = Witness::read(&*config.medium, &directory.join(JOURNAL))?;
    if let (0, Some(entry @ 1..)) = (tree.meta().applied_seq, written.map(|known| known.seq)) {
        let why = format!("it is empty, and the journal goes to entry {entry}");
        return Err(OpenError::State(why));
    }
    Ok(count(&tree, bytes)?)
}

fn count(tree: &Tree, bytes: BTreeMap<String, u64>) -> Result<StoreStats, TreeFault> {
    let by_state = |states: &[&str], list: &dyn Fn(&str) -> Vec<u8>| {
        let mut found = BTreeMap::new();
        for name in states {
            let many = tree.count(&list(name))?;
            if many > 0 {
                found.insert((*name).to_owned(), many);
            }
        }
        Ok::<_, TreeFault>(found)
    };
    Ok(StoreStats {
        entries: tree.meta().applied_seq,
        records: by_state(&keys::effect_states(), &keys::effect_list)?,
        approvals: by_state(&ApprovalState::NAMES, &|state| keys::approval_list(None, state, &[]))?,
        directives: tree.count(&[keys::DIRECTIVE])?,
        runs: tree.count(&[keys::RUN])?,
        contents: tree.count(&[keys::CONTENT])?,
        messages: tree.count(&keys::message(None))?,
        bytes,
    })
}

/// What the files of a folder take on the disk, with what the journal has allocated ahead. `None`: there is no such folder.
fn size(folder: &Path) -> io::Result<u64> {
    use std::os::unix::fs::MetadataExt as _;
    let mut sum = 0_u64;
    let entries = match std::fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let found = entry.metadata()?;
        let size = match found.is_dir() {
            true => size(&entry.path())?,
            false => found.blocks().saturating_mul(512),
        };
        sum = sum.saturating_add(size);
    }
    Ok(sum)
}
