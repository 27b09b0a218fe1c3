//! Reading content from any thread while more is being kept.
//!
//! Owns: the proof at every reading, and what the keeper does with packs: making tables of their places, writing mostly dead ones
//! anew, copying them. Not here: writing. Invariants: what [`ContentReader::get`] answers hashes to the digest that was asked for; a
//! pack goes only when all that lives in it is elsewhere, durably; what is altered stays altered, and is never taken for deleted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_types::digest::Digest;

use super::error::ContentError;
use super::forget::Hold;
use super::pack::{PackRecords, Record, encode, is_dead, read_records};
use super::places::{Located, PackInfo, Place, PlaceIndex, TenantKey};
use super::{BLOB_BYTES_MAX, blob_path, pack_path, tenant_path};
use crate::journal::copy_file;
use crate::journal::medium::{
    Medium, MediumFile, beside, read_full_at, to_u64, to_usize, write_all_at,
};

/// Up to this size content is as quick to read as a record.
const SMALL_BYTES_MAX: usize = 64 * 1024;

/// Reads content; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct ContentReader {
    pub(super) medium: Arc<dyn Medium>,
    pub(super) directory: Arc<PathBuf>,
    pub(super) places: Arc<PlaceIndex>,
    pub(super) hold: Arc<Hold>,
}

impl ContentReader {
    /// The bytes of this digest that were kept for this tenant, proven by hashing them again.
    ///
    /// # Errors
    /// [`ContentError::Missing`], [`ContentError::Altered`], or what the operating system answers.
    pub fn get(&self, tenant: &str, digest: Digest) -> Result<Vec<u8>, ContentError> {
        let tenant = tenant_key(tenant);
        let mut tried = None;
        loop {
            let located = self.locate(tenant, digest)?;
            let read = match located {
                Some(Located::At { place, .. }) => self.load(tenant, digest, place),
                Some(Located::Gone) => Err(ContentError::Missing { digest }),
                None => self.load_file(tenant, digest),
            };
            // The pack may have been rewritten between the two look-ups.
            match read {
                Ok(bytes) => return Ok(bytes),
                Err(error) if tried == Some(located) => return Err(error),
                Err(_) => tried = Some(located),
            }
        }
    }

    /// Whether what is kept under this digest is no more to read than a record is.
    pub(crate) fn is_small(&self, tenant: &str, digest: Digest) -> bool {
        let located = self.locate(tenant_key(tenant), digest);
        matches!(located, Ok(Some(Located::At { place, .. })) if to_usize(u64::from(place.length)) <= SMALL_BYTES_MAX)
    }

    /// Whether bytes of this digest are kept for this tenant; not whether they are still the right ones.
    pub fn contains(&self, tenant: &str, digest: Digest) -> bool {
        let tenant = tenant_key(tenant);
        match self.locate(tenant, digest) {
            Ok(Some(Located::At { .. })) => true,
            Ok(Some(Located::Gone)) | Err(_) => false,
            Ok(None) => self.medium.open_read(&blob_path(&self.directory, tenant, digest)).is_ok(),
        }
    }

    /// Whether it is known that the bytes were there and were deleted.
    ///
    /// # Errors
    /// What the operating system answers.
    pub(crate) fn was_deleted(&self, tenant: &str, digest: Digest) -> Result<bool, ContentError> {
        let tenant = tenant_key(tenant);
        match self.locate(tenant, digest)? {
            // The table may be older than the deletion: the record itself says it.
            Some(Located::At { place, .. }) => match self.load_living(tenant, digest, place) {
                Ok(living) => Ok(living.is_none()),
                Err(ContentError::Missing { .. } | ContentError::Altered { .. }) => Ok(false),
                Err(error) => Err(error),
            },
            Some(Located::Gone) => Ok(true),
            None => Ok(false),
        }
    }

    /// From here on nothing is deleted, until [`ContentReader::release`].
    pub(crate) fn hold(&self) {
        self.hold.set(true);
    }

    /// What was to be deleted meanwhile is, by the writer.
    pub(crate) fn release(&self) {
        self.hold.set(false);
    }

    /// Whether anything that was put off is not deleted yet: no checkpoint may cover the entry that says so, since a start deletes only
    /// what the entries after it say.
    pub(crate) fn owes(&self) -> bool {
        self.hold.owes()
    }

    /// Whether a writer that lives has yet to do so.
    pub(crate) fn is_unsettled(&self) -> bool {
        self.hold.is_unsettled()
    }

    /// Makes a table of the places in memory if they are many.
    pub(crate) fn tend(&self) -> Result<(), ContentError> {
        self.mended(PlaceIndex::tend)
    }

    /// Makes durably known what was deleted: before a checkpoint leaves the entry behind that says so.
    pub(crate) fn settle(&self) -> Result<(), ContentError> {
        self.mended(PlaceIndex::settle)
    }

    pub(super) fn load(
        &self,
        tenant: TenantKey,
        digest: Digest,
        place: Place,
    ) -> Result<Vec<u8>, ContentError> {
        self.load_living(tenant, digest, place)?.ok_or(ContentError::Missing { digest })
    }

    /// Whether what lies there is the piece. That it cannot be read now is no answer.
    pub(super) fn is_whole(
        &self,
        tenant: TenantKey,
        digest: Digest,
        place: Place,
    ) -> Result<bool, ContentError> {
        match self.load(tenant, digest, place) {
            Ok(_) => Ok(true),
            Err(ContentError::Missing { .. } | ContentError::Altered { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What lies in a pack; nothing where the record says that it was deleted.
    fn load_living(
        &self,
        tenant: TenantKey,
        digest: Digest,
        place: Place,
    ) -> Result<Option<Vec<u8>>, ContentError> {
        let path = pack_path(&self.directory, tenant, place.pack);
        let file = self.open(&path, digest)?;
        let (offset, length) = (u64::from(place.offset), to_usize(u64::from(place.length)));
        match read_proven(&*file, &path, digest, (offset, length)) {
            Err(ContentError::Altered { .. })
                if is_dead(&*file, offset).map_err(ContentError::io("read the pack", &path))? =>
            {
                Ok(None)
            }
            read => read.map(Some),
        }
    }

    pub(super) fn load_file(
        &self,
        tenant: TenantKey,
        digest: Digest,
    ) -> Result<Vec<u8>, ContentError> {
        let path = blob_path(&self.directory, tenant, digest);
        let file = self.open(&path, digest)?;
        let length = file.length().map_err(ContentError::io("look at the content", &path))?;
        read_proven(&*file, &path, digest, (0, to_usize(length)))
    }

    fn open(&self, path: &Path, digest: Digest) -> Result<Box<dyn MediumFile>, ContentError> {
        match self.medium.open_read(path) {
            Ok(file) => Ok(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(ContentError::Missing { digest })
            }
            Err(error) => Err(ContentError::io("open the content", path)(error)),
        }
    }

    /// Writes packs anew of which most is deleted, but for those that are being written to; answers how many bytes were given back.
    pub(crate) fn compact(&self) -> Result<u64, ContentError> {
        let mut freed: u64 = 0;
        for (tenant, packs) in self.places.packs() {
            let due = packs.iter().filter(|(_, info)| {
                info.dead_bytes.saturating_mul(2) > info.length && info.dead_bytes > 0
            });
            for (number, info) in due {
                if self.places.is_current(tenant, *number) {
                    continue;
                }
                let after = self.mended(|_| self.compact_pack(tenant, *number))?;
                // Durably known to be elsewhere before it goes: now, or with the next flush that there is room for.
                self.mended(PlaceIndex::flush)?;
                freed = freed.saturating_add(info.length.saturating_sub(after));
            }
        }
        Ok(freed)
    }

    /// Writes what lives in a pack into another one, durably; answers how long that is. The pack goes with the next flush.
    fn compact_pack(&self, tenant: TenantKey, number: u32) -> Result<u64, ContentError> {
        let _in_use = self.places.packs_in_use();
        if self.places.is_superseded(tenant, number) {
            return Ok(0);
        }
        let path = pack_path(&self.directory, tenant, number);
        let file =
            self.medium.open_read(&path).map_err(ContentError::io("open the pack", &path))?;
        let PackRecords { records, .. } =
            read_records(&*file, 0).map_err(ContentError::io("read the pack", &path))?;
        let mut target = Target { pack: self.places.new_pack(tenant), ..Target::default() };
        for record in records {
            if self.lives_at(tenant, number, &record)? {
                target.take(&*file, &path, &record)?;
            }
        }
        let length = to_u64(target.bytes.len());
        if target.entries.is_empty() {
            self.places.drop_pack(tenant, target.pack);
        } else {
            if let Err(error) = self.write_pack(tenant, &target) {
                // It may be in place, or beside it, and nobody knows what is in it.
                self.places.supersede(tenant, target.pack);
                return Err(error);
            }
            let info = PackInfo { length, records: to_u64(target.entries.len()), dead_bytes: 0 };
            self.places.publish(tenant, target.entries, Some((target.pack, info)));
        }
        self.places.supersede(tenant, number);
        Ok(length)
    }

    fn lives_at(
        &self,
        tenant: TenantKey,
        pack: u32,
        record: &Record,
    ) -> Result<bool, ContentError> {
        let located = self.places.locate(tenant, Digest::from_bytes(record.digest))?;
        Ok(matches!(located, Some(Located::At { place, .. })
            if place.pack == pack && u64::from(place.offset) == record.offset))
    }

    fn write_pack(&self, tenant: TenantKey, target: &Target) -> Result<(), ContentError> {
        let path = pack_path(&self.directory, tenant, target.pack);
        let temporary = beside(&path);
        let file = self.medium.create(&temporary);
        let file = file.map_err(ContentError::io("make the pack", &temporary))?;
        write_all_at(&*file, &target.bytes, 0)
            .and_then(|()| file.sync_data())
            .map_err(ContentError::io("write the pack", &temporary))?;
        self.medium
            .rename(&temporary, &path)
            .map_err(ContentError::io("put the pack in place", &path))?;
        let folder = tenant_path(&self.directory, tenant);
        self.medium.sync_dir(&folder).map_err(ContentError::io("sync the folder", &folder))
    }

    /// Where every piece of content in a pack is, by tenant and digest.
    pub(crate) fn placed(
        &self,
    ) -> impl Iterator<Item = Result<(TenantKey, Digest, Place), ContentError>> + use<> {
        self.places.everything()
    }

    /// Hands every piece of content to `visit`, by tenant and digest, but for those that were deleted. Altered and lost pieces are an
    /// error.
    pub(crate) fn each<E: From<ContentError>>(&self, visit: &mut Visit<'_, E>) -> Result<(), E> {
        self.check_places()?;
        for placed in self.places.everything() {
            let (tenant, digest, place) = placed?;
            let Some(bytes) = self.load_living(tenant, digest, place)? else { continue };
            visit(tenant, digest, &bytes)?;
        }
        let names = self.medium.list(&self.directory);
        for name in names.map_err(ContentError::io("list the folder", &self.directory))? {
            let mut tenant: TenantKey = [0; 32];
            if hex::decode_to_slice(&name, &mut tenant).is_ok() {
                self.each_file(tenant, visit)?;
            }
        }
        Ok(())
    }

    fn each_file<E: From<ContentError>>(
        &self,
        tenant: TenantKey,
        visit: &mut Visit<'_, E>,
    ) -> Result<(), E> {
        let folder = tenant_path(&self.directory, tenant);
        let names = self.medium.list(&folder);
        for name in names.map_err(ContentError::io("list the folder", &folder))? {
            let mut digest = [0; 32];
            let stem = name.strip_suffix(super::BLOB).and_then(|name| name.strip_suffix('.'));
            if stem.is_some_and(|stem| hex::decode_to_slice(stem, &mut digest).is_ok()) {
                let digest = Digest::from_bytes(digest);
                visit(tenant, digest, &self.load_file(tenant, digest)?)?;
            }
        }
        Ok(())
    }

    /// Copies all content into an empty folder; answers how many bytes that were. What is kept meanwhile may be in the copy or not.
    pub(crate) fn copy_to(&self, to: &Path) -> Result<u64, ContentError> {
        let medium = &*self.medium;
        let mut bytes: u64 = 0;
        // First, so that it covers no more of the packs than is copied.
        let folder = to.join(PlaceIndex::folder());
        medium.create_dir(&folder).map_err(ContentError::io("make the folder", &folder))?;
        for from in self.places.files() {
            bytes = bytes.saturating_add(copy_into(medium, &from, &folder)?);
        }
        let names = medium.list(&self.directory);
        for name in names.map_err(ContentError::io("list the folder", &self.directory))? {
            let mut tenant: TenantKey = [0; 32];
            if hex::decode_to_slice(&name, &mut tenant).is_ok() {
                bytes = bytes.saturating_add(self.copy_tenant(tenant, &to.join(name))?);
            }
        }
        medium.sync_dir(to).map_err(ContentError::io("sync the folder", to))?;
        Ok(bytes)
    }

    fn copy_tenant(&self, tenant: TenantKey, to: &Path) -> Result<u64, ContentError> {
        let (medium, from) = (&*self.medium, tenant_path(&self.directory, tenant));
        medium.create_dir(to).map_err(ContentError::io("make the folder", to))?;
        let mut bytes: u64 = 0;
        for name in medium.list(&from).map_err(ContentError::io("list the folder", &from))? {
            let path = from.join(&name);
            let extension = path.extension().and_then(|extension| extension.to_str());
            if matches!(extension, Some(super::PACK | super::BLOB)) {
                let _in_use = self.places.packs_in_use();
                bytes = bytes.saturating_add(copy_into(medium, &path, to)?);
            }
        }
        medium.sync_dir(to).map_err(ContentError::io("sync the folder", to))?;
        Ok(bytes)
    }
}

/// What is handed a piece of content.
pub(crate) type Visit<'a, E> = dyn FnMut(TenantKey, Digest, &[u8]) -> Result<(), E> + 'a;

/// A pack in the making.
#[derive(Debug, Default)]
struct Target {
    pack: u32,
    bytes: Vec<u8>,
    entries: Vec<(Digest, Located)>,
}

impl Target {
    fn take(
        &mut self,
        file: &dyn MediumFile,
        path: &Path,
        record: &Record,
    ) -> Result<(), ContentError> {
        let digest = Digest::from_bytes(record.digest);
        let length = to_usize(u64::from(record.length));
        let (content, proven) = match read_proven(file, path, digest, (record.offset, length)) {
            Ok(content) => (content, true),
            // Carried on as it is: whoever reads it is told so, and what deletes it finds it. Left behind, its place would lead into a pack
            // that is gone.
            Err(ContentError::Altered { .. }) => {
                tracing::error!(%digest, "altered content is carried into another pack as it is");
                let mut bytes = vec![0; length];
                read_full_at(file, &mut bytes, record.offset)
                    .map_err(ContentError::io("read the content", path))?;
                (bytes, false)
            }
            Err(error) => return Err(error),
        };
        encode(&record.digest, &content, &mut self.bytes);
        let offset = to_u64(self.bytes.len()).saturating_sub(to_u64(content.len()));
        let offset = u32::try_from(offset).unwrap_or(u32::MAX);
        let place = Place { pack: self.pack, offset, length: record.length };
        self.entries.push((digest, Located::At { place, proven }));
        Ok(())
    }
}

fn read_proven(
    file: &dyn MediumFile,
    path: &Path,
    digest: Digest,
    (offset, length): (u64, usize),
) -> Result<Vec<u8>, ContentError> {
    if length > BLOB_BYTES_MAX {
        return Err(ContentError::Altered { digest });
    }
    let mut bytes = vec![0; length];
    let count = read_full_at(file, &mut bytes, offset)
        .map_err(ContentError::io("read the content", path))?;
    if count != length || Digest::of(&bytes) != digest {
        return Err(ContentError::Altered { digest });
    }
    Ok(bytes)
}

fn copy_into(medium: &dyn Medium, from: &Path, folder: &Path) -> Result<u64, ContentError> {
    let Some(name) = from.file_name() else { return Ok(0) };
    match copy_file(medium, from, &folder.join(name), u64::MAX) {
        Ok(bytes) => Ok(bytes),
        // Deleted since it was listed.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(ContentError::io("copy", from)(error)),
    }
}

pub(crate) fn tenant_key(tenant: &str) -> TenantKey {
    *Digest::of(tenant.as_bytes()).as_bytes()
}
