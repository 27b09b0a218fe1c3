//! Deleting content for retention.
//!
//! Owns the erasing: content in a pack is overwritten with zeros, then its header says that it is gone; a large piece's file is
//! removed. Not here: who decides it, and the journal's entry that says so, which is durable before. Invariants: erasing again what
//! is erased changes nothing; a record that is half erased is never answered as content; its place is never used for another; what belongs
//! to another record is never overwritten, whatever the tables of places say.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use placet_types::digest::Digest;

use super::copies::Pieces;
use super::error::ContentError;
use super::pack::{RECORD_HEADER_BYTES, Record, dead_header, read_records, record_at};
use super::places::{Located, Place, TenantKey};
use super::reader::tenant_key;
use super::{ContentStore, blob_path, pack_path, tenant_path};
use crate::journal::medium::{MediumFile, to_u64, to_usize, write_all_at};

/// What waits to be erased at the next sync, by pack.
#[derive(Debug, Default)]
pub(super) struct Erasures {
    packs: BTreeMap<(TenantKey, u32), Pieces>,
    /// What has rotted there, and was kept anew elsewhere.
    replaced: BTreeMap<(TenantKey, u32), Pieces>,
    folders: BTreeSet<TenantKey>,
}

impl Erasures {
    /// What is at this place has rotted, and is kept anew.
    pub(super) fn replace(&mut self, tenant: TenantKey, digest: Digest, place: Place) {
        self.replaced.entry((tenant, place.pack)).or_default().insert(digest, place);
    }
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
        let Erasures { packs, replaced, folders } = std::mem::take(&mut self.erasures);
        for ((tenant, pack), pieces) in replaced {
            self.erase_replaced(tenant, pack, &pieces)?;
        }
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
        places: &Pieces,
    ) -> Result<(), ContentError> {
        let index = &self.reader.places;
        // Not while the pack is copied or rewritten; should it be gone since, its records are elsewhere.
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
        let mut own = here.clone();
        if let Some(file) = file {
            own = own_of(&*file, &here).map_err(failed())?;
            overwrite(&*file, &own).map_err(failed())?;
        }
        let info = index.pack(tenant, pack).without(&own);
        let gone = here.iter().map(|(digest, _)| (**digest, Located::Gone));
        index.publish(tenant, gone, (!here.is_empty()).then_some((pack, info)));
        drop(_in_use);
        // A pack was rewritten between the asking and the erasing: once more, where the pieces are now.
        for (digest, place) in moved {
            self.erase_in_pack(tenant, place.pack, &BTreeMap::from([(digest, place)]))?;
        }
        Ok(())
    }
}

/// Those of the pieces that lie where they are said to lie. Where a header verifies as that of another record, the place is wrong, and
/// what is there is another's; where it does not verify, its bytes are erased unless they reach into another record.
pub(super) fn own_of<'a>(
    file: &dyn MediumFile,
    pieces: &[(&'a Digest, &'a Place)],
) -> io::Result<Vec<(&'a Digest, &'a Place)>> {
    let (mut own, mut records) = (Vec::new(), None);
    for (digest, place) in pieces {
        let offset = u64::from(place.offset);
        let found = record_at(file, offset)?;
        let is_own = found.is_some_and(|record| {
            record.digest == *digest.as_bytes() && record.length == place.length
        });
        if is_own {
            own.push((*digest, *place));
            continue;
        }
        // All of them are read once, and only where a header is not the right one.
        if records.is_none() {
            records = Some(read_records(file, 0)?.records);
        }
        let begin = offset.saturating_sub(to_u64(RECORD_HEADER_BYTES));
        let end = offset.saturating_add(u64::from(place.length));
        let reaches_into = |record: &Record| record.begin() < end && begin < record.end();
        if records.iter().flatten().any(reaches_into) {
            tracing::error!(%digest, pack = place.pack, "content to be deleted is not where it is said to be; what is there is left alone");
        } else {
            own.push((*digest, *place));
        }
    }
    Ok(own)
}

/// Overwrites pieces in a pack, and says in their headers that they are gone.
pub(super) fn overwrite(file: &dyn MediumFile, pieces: &[(&Digest, &Place)]) -> io::Result<()> {
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
