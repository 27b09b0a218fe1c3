//! A copy of everything, made while the store serves.
//!
//! Owns what is copied, and in which order. Not here: the callers (`mod`), opening the copy. Invariants: the copy is a sound store that
//! ends with an entry that was durable when the copying began; all contents that its entries name are in the copy; it cannot be opened
//! until it is complete and durable; the store is not changed except for a snapshot.

use std::io;
use std::path::Path;

use super::identity::UNFINISHED;
use super::keeper::{BackupMade, KeepError, Keeper};
use super::open::JOURNAL;
use super::snapshot::SNAPSHOTS;
use crate::journal::medium::replace_file;
use crate::journal::{JournalError, Witness, copy_file, segment_path};

impl Keeper {
    /// Copies everything into an empty folder.
    pub(super) fn backup(&mut self, to: &Path) -> Result<BackupMade, KeepError> {
        let medium = std::sync::Arc::clone(&self.medium);
        medium.create_dir(to).map_err(JournalError::io("make the folder", to))?;
        let is_empty = medium.list(to).map(|names| names.is_empty());
        if !is_empty.map_err(JournalError::io("list the folder", to))? {
            let taken = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
            return Err(JournalError::io("make a copy in", to)(taken).into());
        }
        // A copy without its last part would open, and have forgotten or lost something.
        let unfinished = to.join(UNFINISHED);
        replace_file(&*medium, &unfinished, b"").map_err(JournalError::io("write", &unfinished))?;
        // So that the copy starts quickly. Nothing is archived while this thread copies.
        self.snapshot()?;
        // Contents deleted from here on are still named by entries in the copy.
        self.state.erasing.hold();
        let copied = self.copy_all(to);
        self.state.erasing.release();
        let made = copied?;
        medium.sync_dir(to).map_err(JournalError::io("sync the folder", to))?;
        medium.remove(&unfinished).map_err(JournalError::io("remove", &unfinished))?;
        medium.sync_dir(to).map_err(JournalError::io("sync the folder", to))?;
        Ok(made)
    }

    fn copy_all(&self, to: &Path) -> Result<BackupMade, KeepError> {
        let seq = self.journal.durable_seq();
        let (mut bytes, head) = self.copy_journal(&to.join(JOURNAL), seq)?;
        if let Some(newest) = self.snapshots.list()?.last() {
            bytes = bytes.saturating_add(self.copy_snapshot(*newest, &to.join(SNAPSHOTS))?);
        }
        Ok(BackupMade { seq, head, bytes })
    }

    fn copy_snapshot(&self, seq: u64, to: &Path) -> Result<u64, KeepError> {
        let from = self.snapshots.path(seq);
        let Some(name) = from.file_name() else { return Ok(0) };
        self.medium.create_dir(to).map_err(JournalError::io("make the folder", to))?;
        let copied = copy_file(&*self.medium, &from, &to.join(name), u64::MAX);
        let bytes = copied.map_err(JournalError::io("copy", &from))?;
        self.medium.sync_dir(to).map_err(JournalError::io("sync the folder", to))?;
        Ok(bytes)
    }

    fn copy_journal(&self, to: &Path, seq: u64) -> Result<(u64, [u8; 32]), KeepError> {
        let files = self.journal.files();
        let medium = &*files.medium;
        medium.create_dir(to).map_err(JournalError::io("make the folder", to))?;
        let mut bytes: u64 = 0;
        if seq == 0 {
            return Ok((0, [0; 32]));
        }
        let frame = self.journal.read(seq)?;
        let (last, end) = self.journal.end_of(seq)?;
        let (here, _) = files.numbers()?;
        for number in here.into_iter().filter(|number| *number <= last) {
            let (from, copy) = (segment_path(&files.directory, number), segment_path(to, number));
            let failed = || JournalError::io("copy the segment", &from);
            let length = if number == last { end } else { u64::MAX };
            let copied = copy_file(medium, &from, &copy, length).map_err(failed())?;
            bytes = bytes.saturating_add(copied);
            if number == last {
                // The rest of the segment are the zeros of its allocation.
                let allocated = medium.open_read(&from).and_then(|file| file.length());
                let allocated = allocated.map_err(failed())?;
                let file = medium.open(&copy).map_err(failed())?;
                file.allocate(allocated).and_then(|()| file.sync_data()).map_err(failed())?;
            }
        }
        if self.base.segment > 1 {
            self.base.write(medium, to)?;
        }
        Witness { epoch: frame.epoch, seq, extent: last, head: frame.hash }.write(medium, to)?;
        medium.sync_dir(to).map_err(JournalError::io("sync the folder", to))?;
        Ok((bytes, frame.hash))
    }
}
