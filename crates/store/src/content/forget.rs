//! Deleting content for retention.
//!
//! Owns the erasing: content in a pack is overwritten with zeros, then its header says that it is gone; a large piece's file is
//! removed. Not here: who decides it, and the journal's entry that says so, which is durable before. Invariants: erasing again what
//! is erased changes nothing; a record that is half erased is never answered as content; its place is never used for another.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use placet_types::digest::Digest;

use super::error::ContentError;
use super::pack::{RECORD_HEADER_BYTES, dead_header};
use super::places::{Located, Place, TenantKey};
use super::reader::tenant_key;
use super::{ContentStore, blob_path, pack_path, tenant_path};
use crate::journal::medium::{MediumFile, to_u64, to_usize, write_all_at};

/// What waits to be erased at the next sync, by pack.
#[derive(Debug, Default)]
pub(super) struct Erasures {
    packs: BTreeMap<(TenantKey, u32), BTreeMap<Digest, Place>>,
    folders: BTreeSet<TenantKey>,
}

/// What is not deleted while everything is copied: the copy has entries that still name it.
#[derive(Debug, Default)]
pub(super) struct Hold(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    is_on: bool,
    waiting: BTreeSet<(TenantKey, Digest)>,
    /// What was put off is being deleted.
    is_in_hand: bool,
    writer_is_gone: bool,
}

impl Hold {
    fn held(&self) -> MutexGuard<'_, Held> {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a deletion off, if a copy is being made.
    fn puts_off(&self, tenant: TenantKey, digest: Digest) -> bool {
        let mut held = self.held();
        if held.is_on {
            held.waiting.insert((tenant, digest));
        }
        held.is_on
    }

    /// It is kept anew: an earlier deletion does not concern it.
    pub(super) fn keeps(&self, tenant: TenantKey, digest: Digest) {
        self.held().waiting.remove(&(tenant, digest));
    }

    /// What was put off and is due now.
    fn take_due(&self) -> BTreeSet<(TenantKey, Digest)> {
        let mut held = self.held();
        if held.is_on || held.waiting.is_empty() {
            return BTreeSet::new();
        }
        held.is_in_hand = true;
        std::mem::take(&mut held.waiting)
    }

    /// What was due is deleted, durably.
    pub(super) fn done(&self) {
        self.held().is_in_hand = false;
    }

    /// Whether anything that was put off is not deleted yet, by a writer that lives or not.
    pub(super) fn owes(&self) -> bool {
        let held = self.held();
        held.is_in_hand || !held.waiting.is_empty()
    }

    pub(super) fn writer_goes(&self) {
        self.held().writer_is_gone = true;
    }

    pub(super) fn set(&self, is_on: bool) {
        self.held().is_on = is_on;
    }

    /// Whether the writer has yet to delete what was put off. One that is gone leaves it to the next start.
    pub(super) fn is_unsettled(&self) -> bool {
        self.owes() && !self.held().writer_is_gone
    }
}

impl ContentStore {
    /// Deletes a piece of content at the next [`ContentStore::sync`]; while a copy is made, at one after that. One that is not there
    /// is no error.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`ContentError::Poisoned`].
    pub fn forget(&mut self, tenant: &str, digest: Digest) -> Result<(), ContentError> {
        self.check_alive()?;
        let tenant = tenant_key(tenant);
        if self.reader.hold.puts_off(tenant, digest) {
            return Ok(());
        }
        self.forget_now(tenant, digest)
    }

    /// Whether deletions were put off that are not done yet: [`ContentStore::sync`] does them once the copy is made.
    pub(crate) fn owes(&self) -> bool {
        self.reader.hold.owes()
    }

    pub(super) fn forget_due(&mut self) -> Result<(), ContentError> {
        for (tenant, digest) in self.reader.hold.take_due() {
            self.forget_now(tenant, digest)?;
        }
        Ok(())
    }

    fn forget_now(&mut self, tenant: TenantKey, digest: Digest) -> Result<(), ContentError> {
        if self.pending.get(&tenant).is_some_and(|pending| pending.entries.contains_key(&digest)) {
            self.sync()?;
        }
        match self.reader.locate(tenant, digest)? {
            Some(Located::At { place, .. }) => {
                let pack = self.erasures.packs.entry((tenant, place.pack)).or_default();
                pack.insert(digest, place);
                Ok(())
            }
            Some(Located::Gone) => Ok(()),
            None => {
                let path = blob_path(&self.directory, tenant, digest);
                let removed = match self.medium.remove(&path) {
                    Ok(()) => {
                        self.erasures.folders.insert(tenant);
                        Ok(())
                    }
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    Err(error) => Err(ContentError::io("remove the content", &path)(error)),
                };
                self.guard(removed)
            }
        }
    }

    /// Erases what waits for it.
    pub(super) fn erase(&mut self) -> Result<(), ContentError> {
        let Erasures { packs, folders } = std::mem::take(&mut self.erasures);
        for ((tenant, pack), places) in packs {
            self.erase_in_pack(tenant, pack, &places)?;
        }
        for tenant in folders {
            let folder = tenant_path(&self.directory, tenant);
            self.medium.sync_dir(&folder).map_err(ContentError::io("sync the folder", &folder))?;
        }
        Ok(())
    }

    fn erase_in_pack(
        &self,
        tenant: TenantKey,
        pack: u32,
        places: &BTreeMap<Digest, Place>,
    ) -> Result<(), ContentError> {
        let index = &self.reader.places;
        // Not while the pack is copied or written anew; should it be gone since, its records are elsewhere.
        let _in_use = index.packs_in_use();
        let mut moved = Vec::new();
        let path = pack_path(&self.directory, tenant, pack);
        let failed = || ContentError::io("erase content in the pack", &path);
        let file = match self.medium.open(&path) {
            Ok(file) => Some(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed()(error)),
        };
        let mut here = Vec::new();
        for (digest, place) in places {
            match index.locate(tenant, *digest)? {
                Some(Located::At { place: now, .. }) if now == *place => here.push((digest, place)),
                Some(Located::At { place: now, .. }) => moved.push((*digest, now)),
                Some(Located::Gone) | None => {}
            }
        }
        if let Some(file) = file {
            overwrite(&*file, &here).map_err(failed())?;
        }
        let mut info = index.pack(tenant, pack);
        for (_, place) in &here {
            let bytes = to_u64(RECORD_HEADER_BYTES).saturating_add(u64::from(place.length));
            info.dead_bytes = info.dead_bytes.saturating_add(bytes);
            info.records = info.records.saturating_sub(1);
        }
        let gone = here.iter().map(|(digest, _)| (**digest, Located::Gone));
        index.publish(tenant, gone, (!here.is_empty()).then_some((pack, info)));
        drop(_in_use);
        // A pack was written anew between the asking and the erasing: once more, where the pieces are now.
        for (digest, place) in moved {
            self.erase_in_pack(tenant, place.pack, &BTreeMap::from([(digest, place)]))?;
        }
        Ok(())
    }
    /// Whether a piece that was found in a pack is there already, whole, in another place: a kill while a pack was written anew leaves
    /// both.
    pub(super) fn is_copy(
        &self,
        tenant: TenantKey,
        digest: Digest,
        place: Place,
    ) -> Result<bool, ContentError> {
        match self.reader.locate(tenant, digest)? {
            Some(Located::At { place: known, .. }) if known != place => {
                Ok(self.reader.load(tenant, digest, known).is_ok())
            }
            Some(Located::At { .. } | Located::Gone) | None => Ok(false),
        }
    }

    /// Erases pieces that are there once more elsewhere: they would outlive their deletion, and come back with it.
    pub(super) fn erase_copies(
        &self,
        file: &dyn MediumFile,
        path: &Path,
        copies: &BTreeMap<Digest, Place>,
    ) -> Result<(), ContentError> {
        if copies.is_empty() {
            return Ok(());
        }
        let copies: Vec<_> = copies.iter().collect();
        overwrite(file, &copies).map_err(ContentError::io("erase copies of content in", path))
    }
}

/// Overwrites pieces in a pack, and says in their headers that they are gone.
fn overwrite(file: &dyn MediumFile, pieces: &[(&Digest, &Place)]) -> io::Result<()> {
    for (_, place) in pieces {
        let zeros = vec![0; to_usize(u64::from(place.length))];
        write_all_at(file, &zeros, u64::from(place.offset))?;
    }
    // The bytes are gone before the header says so: what says so is never looked at again.
    file.sync_data()?;
    for (digest, place) in pieces {
        let header = dead_header(digest.as_bytes(), place.length);
        let at = u64::from(place.offset).saturating_sub(to_u64(RECORD_HEADER_BYTES));
        write_all_at(file, &header, at)?;
    }
    file.sync_data()
}
