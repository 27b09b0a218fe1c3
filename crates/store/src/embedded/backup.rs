//! A copy of everything, made while the store serves.
//!
//! Owns what is copied, and in which order. Not here: the callers (`mod`), opening the copy. Invariants: the copy is a sound store that
//! ends with an entry that was durable when the copying began; all contents that its entries name are in the copy; it cannot be opened
//! until it is complete and durable; the store is not changed except for a snapshot.

use std::io;
use std::path::Path;

use super::identity::UNFINISHED;
use super::keeper::{BackupMade, KeepError, Keeper};
use super::kept::IMPORTED;
use super::open::JOURNAL;
use super::snapshot::SNAPSHOTS;
use crate::journal::medium::replace_file;
use crate::journal::{Witness, copy_file, segment_path};

impl Keeper {
    /// Copies everything into an empty folder.
    pub(super) fn backup(&mut self, to: &Path) -> Result<BackupMade, KeepError> {
        let medium = std::sync::Arc::clone(&self.medium);
        medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        let is_empty = medium.list(to).map(|names| names.is_empty());
        if !is_empty.map_err(KeepError::io("list the folder", to))? {
            let taken = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
            return Err(KeepError::io("make a copy in", to)(taken));
        }
        // A copy without its last part would open, and have forgotten or lost something.
        let unfinished = to.join(UNFINISHED);
        replace_file(&*medium, &unfinished, b"").map_err(KeepError::io("write", &unfinished))?;
        // So that the copy starts quickly. Nothing is archived while this thread copies.
        self.snapshot()?;
        // Contents deleted from here on are still named by entries in the copy.
        self.state.erasing.hold();
        let copied = self.copy_all(to);
        self.state.erasing.release();
        let made = copied?;
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        medium.remove(&unfinished).map_err(KeepError::io("remove", &unfinished))?;
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        Ok(made)
    }

    fn copy_all(&self, to: &Path) -> Result<BackupMade, KeepError> {
        let seq = self.journal.durable_seq();
        let (mut bytes, head) = self.copy_journal(&to.join(JOURNAL), seq)?;
        let newest = self.snapshots.list()?.last().map(|seq| self.snapshots.path(*seq));
        bytes = bytes.saturating_add(self.copy_files(newest, &to.join(SNAPSHOTS))?);
        let imported = self.directory.join(IMPORTED);
        let kept = match self.medium.list(&imported) {
            Ok(names) => names.iter().map(|name| imported.join(name)).collect(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(KeepError::io("list the folder", &imported)(error)),
        };
        bytes = bytes.saturating_add(self.copy_files(kept, &to.join(IMPORTED))?);
        Ok(BackupMade { seq, head, bytes })
    }

    /// Copies files into a folder, created only if there are any; answers how many bytes.
    fn copy_files(
        &self,
        files: impl IntoIterator<Item = std::path::PathBuf>,
        to: &Path,
    ) -> Result<u64, KeepError> {
        let mut bytes: u64 = 0;
        let mut files = files.into_iter().peekable();
        if files.peek().is_none() {
            return Ok(0);
        }
        self.medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        for from in files {
            let Some(name) = from.file_name() else { continue };
            let copied = copy_file(&*self.medium, &from, &to.join(name), u64::MAX);
            bytes = bytes.saturating_add(copied.map_err(KeepError::io("copy", &from))?);
        }
        self.medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        Ok(bytes)
    }

    fn copy_journal(&self, to: &Path, seq: u64) -> Result<(u64, [u8; 32]), KeepError> {
        let files = self.journal.files();
        let medium = &*files.medium;
        medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        let mut bytes: u64 = 0;
        if seq == 0 {
            return Ok((0, [0; 32]));
        }
        let frame = self.journal.read(seq)?;
        let (last, end) = self.journal.end_of(seq)?;
        let (here, _) = files.numbers()?;
        for number in here.into_iter().filter(|number| *number <= last) {
            let (from, copy) = (segment_path(&files.directory, number), segment_path(to, number));
            let failed = || KeepError::io("copy the segment", &from);
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
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        Ok((bytes, frame.hash))
    }
}
