//! A copy of everything, made while the store serves.
//!
//! Owns what is copied, and in which order. Not here: who asks (`mod`), opening the copy. Invariants: the copy is a sound store that
//! ends with an entry that was durable when the copying began; whatever that entry and those before it name is in the copy; until all of
//! it is there, durably, nothing opens it; the store is not changed but for a checkpoint.

use std::io;
use std::path::Path;
use std::time::Duration;

use super::identity::UNFINISHED;
use super::keeper::{BackupMade, KeepError, Keeper};
use super::kept::IMPORTED;
use super::open::{CHECKPOINTS, CONTENT, JOURNAL, TREE};
use crate::journal::medium::replace_file;
use crate::journal::{SegmentFiles, Start, Witness, copy_file, segment_path};

/// The file in the tree's folder that says how far it goes.
const TREE_HEAD: &str = "head";

/// How often it is looked whether the writer has deleted what was held.
const DELETIONS_WAIT: Duration = Duration::from_millis(20);
/// How long the writer is waited for at a time.
const DELETIONS_WAIT_MAX: Duration =
    if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(30) };

impl Keeper {
    /// Copies everything into an empty folder.
    pub(super) fn backup(&mut self, to: &Path) -> Result<BackupMade, KeepError> {
        let medium = std::sync::Arc::clone(&self.places.medium);
        medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        let is_empty = medium.list(to).map(|names| names.is_empty());
        if !is_empty.map_err(KeepError::io("list the folder", to))? {
            let taken = io::Error::from(io::ErrorKind::DirectoryNotEmpty);
            return Err(KeepError::io("make a copy in", to)(taken));
        }
        // A copy without its last part opens, and has forgotten or lost something.
        let unfinished = to.join(UNFINISHED);
        replace_file(&*medium, &unfinished, b"").map_err(KeepError::io("write", &unfinished))?;
        // So that the copy starts quickly; and nothing is merged or archived while this thread copies.
        self.checkpoint()?;
        self.content.hold();
        let copied = self.copy_all(to);
        self.content.release();
        self.settle_deletions();
        let made = copied?;
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        medium.remove(&unfinished).map_err(KeepError::io("remove", &unfinished))?;
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        Ok(made)
    }

    /// Waits until what was to be deleted while content was held is deleted, for a while.
    pub(super) fn settle_deletions(&self) {
        let mut waited = Duration::ZERO;
        while self.content.is_unsettled() && waited < DELETIONS_WAIT_MAX {
            std::thread::park_timeout(DELETIONS_WAIT);
            waited = waited.saturating_add(DELETIONS_WAIT);
        }
        if self.content.is_unsettled() {
            tracing::warn!("the writer has not yet deleted what was held for the backup");
        }
    }

    fn copy_all(&self, to: &Path) -> Result<BackupMade, KeepError> {
        let medium = &*self.places.medium;
        // Before the last entry is fixed: a tree that knew more entries than the journal would say that it has forgotten.
        let mut bytes = self.copy_tree_head(&to.join(TREE))?;
        let seq = self.journal.durable_seq();
        let (copied, head) = self.copy_journal(&to.join(JOURNAL), seq)?;
        bytes = bytes.saturating_add(copied);
        bytes = bytes.saturating_add(self.copy_tiles(&to.join(TREE))?);
        bytes = bytes.saturating_add(self.copy_checkpoints(&to.join(CHECKPOINTS))?);
        // Content is durable before the entry that names it, so it is copied after the last entry is fixed; and it is held, since what
        // is deleted from here on is named by entries that are in the copy.
        bytes = bytes.saturating_add(self.content.copy_to(&to.join(CONTENT))?);
        bytes = bytes.saturating_add(self.copy_imported(&to.join(IMPORTED))?);
        let name = to.join("store-id");
        replace_file(medium, &name, format!("{}\n", self.places.store_id).as_bytes())
            .map_err(KeepError::io("write", &name))?;
        Ok(BackupMade { seq, head, bytes })
    }

    fn copy_tree_head(&self, to: &Path) -> Result<u64, KeepError> {
        let (medium, from) =
            (&*self.places.medium, self.places.directory.join(TREE).join(TREE_HEAD));
        medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        match copy_file(medium, &from, &to.join(TREE_HEAD), u64::MAX) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            copied => copied.map_err(KeepError::io("copy", &from)),
        }
    }

    /// The tiles: what of them lies behind the head is written again by the copy.
    fn copy_tiles(&self, to: &Path) -> Result<u64, KeepError> {
        let (medium, from) = (&*self.places.medium, self.places.directory.join(TREE));
        let mut bytes: u64 = 0;
        for level in medium.list(&from).map_err(KeepError::io("list the folder", &from))? {
            if level.parse::<u8>().is_err() {
                continue;
            }
            let (from, to) = (from.join(&level), to.join(&level));
            medium.create_dir(&to).map_err(KeepError::io("make the folder", &to))?;
            for name in medium.list(&from).map_err(KeepError::io("list the folder", &from))? {
                let copied = copy_file(medium, &from.join(&name), &to.join(&name), u64::MAX);
                bytes = bytes.saturating_add(copied.map_err(KeepError::io("copy", &from))?);
            }
        }
        Ok(bytes)
    }

    fn copy_journal(&self, to: &Path, seq: u64) -> Result<(u64, [u8; 32]), KeepError> {
        let files: &SegmentFiles = self.journal.files();
        let medium = &*files.medium;
        medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        let mut bytes: u64 = 0;
        if seq == 0 {
            return Ok((0, [0; 32]));
        }
        let frame = self.journal.read(seq)?;
        let Start { segment: last, offset, .. } = self.journal.start_after(seq)?;
        let end = offset.saturating_add(frame.stored_bytes());
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
        if self.footing.base.segment > 1 {
            self.footing.base.write(medium, to)?;
        }
        Witness { epoch: frame.epoch, seq, segments: last, head: frame.hash }.write(medium, to)?;
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        Ok((bytes, frame.hash))
    }

    /// The logs of stores that the ledger was in before.
    fn copy_imported(&self, to: &Path) -> Result<u64, KeepError> {
        let (medium, from) = (&*self.places.medium, self.places.directory.join(IMPORTED));
        let listed = medium.list(&from);
        if matches!(&listed, Err(error) if error.kind() == io::ErrorKind::NotFound) {
            return Ok(0);
        }
        medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        let mut bytes: u64 = 0;
        for name in listed.map_err(KeepError::io("list the folder", &from))? {
            let copied = copy_file(medium, &from.join(&name), &to.join(&name), u64::MAX);
            bytes = bytes.saturating_add(copied.map_err(KeepError::io("copy", &from))?);
        }
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        Ok(bytes)
    }

    fn copy_checkpoints(&self, to: &Path) -> Result<u64, KeepError> {
        let medium = &*self.places.medium;
        medium.create_dir(to).map_err(KeepError::io("make the folder", to))?;
        let Some(number) = self.checkpoints.numbers()?.last().copied() else { return Ok(0) };
        let mut bytes: u64 = 0;
        let (tables, bodies) = (self.index.tables(), self.bodies.get());
        let tables = tables.tables().iter().chain(bodies.tables());
        let paths = tables.map(|table| table.path().to_owned());
        // The checkpoint last: what it names is there before.
        for from in paths.chain([self.checkpoints.path(number)]) {
            let Some(name) = from.file_name() else { continue };
            let copied = copy_file(medium, &from, &to.join(name), u64::MAX);
            bytes = bytes.saturating_add(copied.map_err(KeepError::io("copy", &from))?);
        }
        medium.sync_dir(to).map_err(KeepError::io("sync the folder", to))?;
        Ok(bytes)
    }
}
