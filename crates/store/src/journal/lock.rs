//! The lock: one process owns a folder, such as that of a journal.
//!
//! Owns: the file `lock`, an advisory lock on it, and the holder's process number in it. The kernel releases the lock when
//! the process ends, however it ends; the file stays.
//! Invariant: two locks, and so two open journals, never share a folder (on one machine; network file systems promise nothing here).

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use rustix::fs::FlockOperation;

use super::error::JournalError;

const FILE: &str = "lock";
const HOLDER_BYTES_MAX: u64 = 20;

/// Held while the folder is in use.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock or says who has it.
    ///
    /// # Errors
    /// [`JournalError::Locked`] while another process holds it, or what the operating system answers.
    pub fn take(directory: &Path) -> Result<Self, JournalError> {
        let path = directory.join(FILE);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file =
            options.open(&path).map_err(JournalError::io("open the lock file", &path))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                return Err(JournalError::Locked {
                    directory: directory.to_owned(),
                    holder_pid: holder(&file),
                });
            }
            Err(errno) => return Err(JournalError::io("lock", &path)(errno.into())),
        }
        file.set_len(0).map_err(JournalError::io("write the lock file", &path))?;
        writeln!(file, "{}", std::process::id())
            .map_err(JournalError::io("write the lock file", &path))?;
        Ok(Self { _file: file })
    }
}

fn holder(file: &File) -> Option<u32> {
    let mut text = String::new();
    file.take(HOLDER_BYTES_MAX).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}
