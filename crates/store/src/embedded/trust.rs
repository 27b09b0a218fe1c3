//! Whether the state in sled is trusted at a start.
//!
//! Owns the file `trusted`, which says in which boot of the machine the state was last written and whether it was closed cleanly. Not here:
//! the comparison with the journal (`open`). sled survives the end of its process, however it ends, but promises nothing for a power cut: a
//! state that was open when the machine went down is rebuilt. Invariant: a state is trusted only if at most processes, not the machine,
//! have ended since it was written.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree::{Tree, TreeFault};
use crate::journal::medium::{Disk, replace_file};

const FILE: &str = "trusted";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Mark {
    boot_id: Option<String>,
    closed: bool,
}

/// Why a state is not trusted; `None`: no reason found here.
pub(super) fn doubt(folder: &Path) -> io::Result<Option<&'static str>> {
    let text = match std::fs::read(folder.join(FILE)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(Some("nothing says when it was written"));
        }
        Err(error) => return Err(error),
    };
    Ok(match serde_json::from_slice::<Mark>(&text) {
        Ok(mark) if mark.closed || mark.is_of_this_boot() => None,
        Ok(_) => Some("it was in use when the machine went down"),
        Err(_damaged) => Some("what says when it was written is damaged"),
    })
}

/// Marks the state as in use.
pub(super) fn begin(folder: &Path) -> io::Result<()> {
    write(folder, false)
}

/// Makes the state durable, and records that it was closed cleanly.
pub(super) fn close(tree: &Tree, folder: &Path) -> Result<(), TreeFault> {
    tree.close()?;
    Ok(write(folder, true)?)
}

fn write(folder: &Path, closed: bool) -> io::Result<()> {
    let mark = serde_json::to_vec(&Mark { boot_id: boot_id(), closed })?;
    replace_file(&Disk, &folder.join(FILE), &mark)
}

/// The id of the machine's current boot, where the system has one.
fn boot_id() -> Option<String> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.ok().map(|id| id.trim().to_owned())
}

impl Mark {
    /// Whether the machine has not gone down since; not known without an id.
    fn is_of_this_boot(&self) -> bool {
        self.boot_id.is_some() && self.boot_id == boot_id()
    }
}
