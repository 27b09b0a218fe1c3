//! Content: the bytes whose digests the journal names (arguments, evidence, results), kept per tenant.
//!
//! Owns: `<folder>/<SHA-256 of the tenant's name>/` with packs `000001.pack`, … for what is small and `<digest>.blob` for what
//! is large, and `<folder>/places/`, where what is in packs is looked up. A record in a pack is `"PLC" 01` (deleted: `"PLD" 01`), its
//! length (4 bytes, little-endian), its SHA-256, the CRC-32C of these 40 bytes, and the content (deleted: zeros). Not here: who
//! names the content, and when it may be deleted. A piece that two records name is one piece: deleted for one, it is gone.
//! Invariants: content is durable once [`ContentStore::sync`] has returned, which the writer awaits before it writes a frame
//! that names it; what is read is proven by its digest every time; after a failed write or sync nothing more is taken.

mod copies;
mod error;
mod forget;
mod mending;
mod pack;
mod places;
mod reader;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_types::digest::Digest;

pub use error::ContentError;
pub use reader::ContentReader;

use crate::journal::medium::{Disk, Medium, TEMPORARY, replace_file, to_u64, write_all_at};
use copies::{Copies, erase_found};
use forget::{Erasures, Hold};
use pack::{RECORD_HEADER_BYTES, encode, read_records};
use places::{Located, PackInfo, Place, PlaceIndex, TenantKey};
use reader::tenant_key;

/// The largest content that is kept.
pub const BLOB_BYTES_MAX: usize = 16 << 20;
/// The largest content that goes into a pack; larger ones get a file of their own.
const PACKED_BYTES_MAX: usize = 256 << 10;
/// After how many bytes a new pack is begun.
const PACK_BYTES: u64 = 64 << 20;

/// What opening found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContentReport {
    /// How many pieces of content there are.
    pub blobs: u64,
    /// Bytes at the ends of packs that interrupted appends left; they are left alone.
    pub torn_bytes: u64,
    /// Bytes in the middle of packs that are no records: content has been damaged, and reading it will say so.
    pub damaged_bytes: u64,
}

/// The one writer of a content folder. Its owner holds the lock of the journal beside it.
#[derive(Debug)]
pub struct ContentStore {
    medium: Arc<dyn Medium>,
    directory: PathBuf,
    reader: ContentReader,
    tenants: HashMap<TenantKey, Tenant>,
    /// What waits for the next sync, in the order of tenants.
    pending: BTreeMap<TenantKey, Pending>,
    erasures: Erasures,
    pack_bytes: u64,
    /// Nothing is changed.
    is_looked_at: bool,
    poisoned: bool,
}

/// Where a tenant's next record goes.
#[derive(Debug, Clone, Copy)]
struct Tenant {
    pack: u32,
    length: u64,
    /// Whether the pack's file has still to be made.
    is_new: bool,
}

/// Whether a piece is kept already.
#[derive(Debug, Clone, Copy)]
enum Kept {
    There,
    Not,
    /// It was, and is not any more what it was.
    Rotted(Place),
}

#[derive(Debug, Default)]
struct Pending {
    bytes: Vec<u8>,
    entries: HashMap<Digest, Located>,
}

impl ContentStore {
    /// Opens a content folder, made where it is missing, and reads where everything lies.
    ///
    /// # Errors
    /// What the operating system answers. Damage is reported, not refused: it shows where the content is asked for.
    pub fn open(directory: impl Into<PathBuf>) -> Result<(Self, ContentReport), ContentError> {
        Self::open_on(Arc::new(Disk), directory)
    }

    /// The same on another medium.
    ///
    /// # Errors
    /// What the medium answers.
    pub fn open_on(
        medium: Arc<dyn Medium>,
        directory: impl Into<PathBuf>,
    ) -> Result<(Self, ContentReport), ContentError> {
        Self::begin(medium, directory.into(), None)
    }

    /// Opens only to look: neither packs nor places are changed, whatever is found. What is too much for memory goes into tables in the
    /// folder `aside`, whose owner removes it.
    pub(crate) fn open_to_look(
        directory: impl Into<PathBuf>,
        aside: &Path,
    ) -> Result<(Self, ContentReport), ContentError> {
        Disk.create_dir(aside).map_err(ContentError::io("make the folder", aside))?;
        Self::begin(Arc::new(Disk), directory.into(), Some(aside.to_owned()))
    }

    fn begin(
        medium: Arc<dyn Medium>,
        directory: PathBuf,
        aside: Option<PathBuf>,
    ) -> Result<(Self, ContentReport), ContentError> {
        let is_looked_at = aside.is_some();
        medium.create_dir(&directory).map_err(ContentError::io("make the folder", &directory))?;
        let places = Arc::new(PlaceIndex::open(Arc::clone(&medium), &directory, aside)?);
        let mut store = Self {
            reader: ContentReader {
                medium: Arc::clone(&medium),
                directory: Arc::new(directory.clone()),
                places,
                hold: Arc::new(Hold::default()),
            },
            medium,
            directory,
            tenants: HashMap::new(),
            pending: BTreeMap::new(),
            erasures: Erasures::default(),
            pack_bytes: PACK_BYTES,
            is_looked_at,
            poisoned: false,
        };
        store.reader.mend_partial()?;
        let mut report = ContentReport::default();
        let names = store.medium.list(&store.directory);
        for name in names.map_err(ContentError::io("list the folder", &store.directory))? {
            let mut tenant: TenantKey = [0; 32];
            if hex::decode_to_slice(&name, &mut tenant).is_ok() {
                store.open_tenant(tenant, &mut report)?;
            }
        }
        let synced = store.medium.sync_dir(&store.directory);
        synced.map_err(ContentError::io("sync the folder", &store.directory))?;
        if !is_looked_at && store.reader.damaged_places().is_some() {
            // Once, so that the next start has sound ones.
            if let Err(error) = store.reader.places.flush() {
                tracing::warn!(%error, "the places of content could not be written");
            }
        }
        Ok((store, report))
    }

    /// A reader for any thread; it sees what has been synced.
    pub fn reader(&self) -> ContentReader {
        self.reader.clone()
    }

    /// Keeps bytes for a tenant and answers their digest. Costs nothing where they are kept already. They are durable, and
    /// visible to readers, after [`ContentStore::sync`].
    ///
    /// # Errors
    /// [`ContentError::TooLarge`], which leaves the store usable; what the operating system answers, once; then
    /// [`ContentError::Poisoned`].
    pub fn put(&mut self, tenant: &str, bytes: Vec<u8>) -> Result<Digest, ContentError> {
        let digest = Digest::of(&bytes);
        self.put_digested(tenant, digest, bytes)?;
        Ok(digest)
    }

    /// Keeps bytes whose digest has just been computed.
    pub(crate) fn put_digested(
        &mut self,
        tenant: &str,
        digest: Digest,
        bytes: Vec<u8>,
    ) -> Result<(), ContentError> {
        self.check_alive()?;
        if bytes.len() > BLOB_BYTES_MAX {
            let limit_bytes = to_u64(BLOB_BYTES_MAX);
            return Err(ContentError::TooLarge { bytes: to_u64(bytes.len()), limit_bytes });
        }
        let tenant = tenant_key(tenant);
        self.reader.hold.keeps(tenant, digest);
        let kept = self.keep(tenant, digest, &bytes);
        self.guard(kept)
    }

    /// Makes everything that was put durable: one `fdatasync` for each tenant touched.
    ///
    /// # Errors
    /// What the operating system answers, once; then [`ContentError::Poisoned`].
    pub fn sync(&mut self) -> Result<(), ContentError> {
        self.check_alive()?;
        while let Some((tenant, pending)) = self.pending.pop_first() {
            let flushed = self.flush(tenant, pending);
            self.guard(flushed)?;
        }
        self.forget_due()?;
        let erased = self.erase();
        self.guard(erased)?;
        self.reader.hold.done();
        Ok(())
    }

    /// Lets go of it in good order: what was deleted is known at the next start without the entries that say so.
    pub(crate) fn close(self) {
        if let Err(error) = self.reader.settle() {
            tracing::warn!(%error, "the places of content could not be written");
        }
    }

    fn keep(
        &mut self,
        tenant: TenantKey,
        digest: Digest,
        bytes: &[u8],
    ) -> Result<(), ContentError> {
        let is_small = bytes.len() <= PACKED_BYTES_MAX;
        match self.find_kept(tenant, digest, is_small)? {
            Kept::There => return Ok(()),
            Kept::Rotted(place) => self.erasures.replace(tenant, digest, place),
            Kept::Not => {}
        }
        if !is_small {
            return self.keep_in_file(tenant, digest, bytes);
        }
        let mut place = self.tenant(tenant)?;
        let record_bytes = to_u64(bytes.len().saturating_add(RECORD_HEADER_BYTES));
        let waiting = self.pending.get(&tenant).map_or(0, |pending| to_u64(pending.bytes.len()));
        let end = place.length.saturating_add(waiting).saturating_add(record_bytes);
        if end > self.pack_bytes && end > record_bytes {
            if let Some(pending) = self.pending.remove(&tenant) {
                self.flush(tenant, pending)?;
            }
            place = self.begin_pack(tenant);
        }
        let pending = self.pending.entry(tenant).or_default();
        encode(digest.as_bytes(), bytes, &mut pending.bytes);
        let before = to_u64(pending.bytes.len()).saturating_sub(to_u64(bytes.len()));
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let offset = u32::try_from(place.length.saturating_add(before)).unwrap_or(u32::MAX);
        let place = Place { pack: place.pack, offset, length };
        pending.entries.insert(digest, Located::At { place, proven: true });
        Ok(())
    }

    /// Whether the bytes need not be written again. What an earlier process left is believed only after reading it: its
    /// last writes may not have reached the disk whole, and no frame may name what is not there.
    fn find_kept(
        &self,
        tenant: TenantKey,
        digest: Digest,
        is_small: bool,
    ) -> Result<Kept, ContentError> {
        if self.pending.get(&tenant).is_some_and(|pending| pending.entries.contains_key(&digest)) {
            return Ok(Kept::There);
        }
        let (read, place) = match self.reader.locate(tenant, digest)? {
            Some(Located::At { proven: true, .. }) => return Ok(Kept::There),
            Some(Located::At { place, .. }) => {
                let read = self.reader.load(tenant, digest, place);
                if read.is_ok() {
                    let proven = Located::At { place, proven: true };
                    self.reader.places.publish(tenant, [(digest, proven)], None);
                }
                (read, Some(place))
            }
            Some(Located::Gone) => return Ok(Kept::Not),
            // What is small was never put into a file of its own, so none is looked for.
            None if is_small => return Ok(Kept::Not),
            None => (self.reader.load_file(tenant, digest), None),
        };
        match read {
            Ok(_) => Ok(Kept::There),
            Err(ContentError::Altered { .. }) => Ok(place.map_or(Kept::Not, Kept::Rotted)),
            Err(ContentError::Missing { .. }) => Ok(Kept::Not),
            Err(error) => Err(error),
        }
    }

    fn keep_in_file(
        &mut self,
        tenant: TenantKey,
        digest: Digest,
        bytes: &[u8],
    ) -> Result<(), ContentError> {
        self.tenant(tenant)?;
        let path = blob_path(&self.directory, tenant, digest);
        replace_file(&*self.medium, &path, bytes)
            .map_err(ContentError::io("write the content", &path))
    }

    /// Where the tenant's next record goes; makes its folder, durably, at the first.
    fn tenant(&mut self, tenant: TenantKey) -> Result<Tenant, ContentError> {
        if let Some(place) = self.tenants.get(&tenant) {
            return Ok(*place);
        }
        let folder = tenant_path(&self.directory, tenant);
        self.medium.create_dir(&folder).map_err(ContentError::io("make the folder", &folder))?;
        self.medium
            .sync_dir(&self.directory)
            .map_err(ContentError::io("sync the folder", &self.directory))?;
        Ok(self.begin_pack(tenant))
    }

    fn begin_pack(&mut self, tenant: TenantKey) -> Tenant {
        let pack = self.reader.places.new_pack(tenant);
        let place = Tenant { pack, length: 0, is_new: true };
        self.reader.places.set_current(tenant, pack);
        self.tenants.insert(tenant, place);
        place
    }

    fn flush(&mut self, tenant: TenantKey, pending: Pending) -> Result<(), ContentError> {
        let place = self.tenant(tenant)?;
        let path = pack_path(&self.directory, tenant, place.pack);
        let opened = if place.is_new { self.medium.create(&path) } else { self.medium.open(&path) };
        let file = opened.map_err(ContentError::io("open the pack", &path))?;
        let written = write_all_at(&*file, &pending.bytes, place.length);
        written.map_err(ContentError::io("write to the pack", &path))?;
        file.sync_data().map_err(ContentError::io("sync the pack", &path))?;
        if place.is_new {
            let folder = tenant_path(&self.directory, tenant);
            self.medium.sync_dir(&folder).map_err(ContentError::io("sync the folder", &folder))?;
        }
        let length = place.length.saturating_add(to_u64(pending.bytes.len()));
        self.tenants.insert(tenant, Tenant { pack: place.pack, length, is_new: false });
        let info = self.reader.places.pack(tenant, place.pack);
        let records = info.records.saturating_add(to_u64(pending.entries.len()));
        let info = PackInfo { length, records, ..info };
        self.reader.places.publish(tenant, pending.entries, Some((place.pack, info)));
        Ok(())
    }

    fn open_tenant(
        &mut self,
        tenant: TenantKey,
        report: &mut ContentReport,
    ) -> Result<(), ContentError> {
        let folder = tenant_path(&self.directory, tenant);
        let mut last = None;
        for name in
            self.medium.list(&folder).map_err(ContentError::io("list the folder", &folder))?
        {
            let path = folder.join(&name);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(PACK) => {
                    let Some(number) = pack_number(&path) else { continue };
                    if self.reader.places.is_superseded(tenant, number) {
                        continue;
                    }
                    last = Some(self.open_pack((tenant, number), report)?);
                    // Where no table covers the packs, their places are not to be held in memory for all of them.
                    self.reader.tend()?;
                }
                Some(BLOB) => report.blobs = report.blobs.saturating_add(1),
                Some(TEMPORARY) if !self.is_looked_at => {
                    self.medium
                        .remove(&path)
                        .map_err(ContentError::io("remove the unfinished file", &path))?;
                }
                _ => {}
            }
        }
        self.medium.sync_dir(&folder).map_err(ContentError::io("sync the folder", &folder))?;
        if let Some(place) = last.filter(|place| !place.is_new) {
            self.reader.places.set_current(tenant, place.pack);
            self.tenants.insert(tenant, place);
        }
        Ok(())
    }

    /// Reads those of a pack's headers that are not known; answers where the next record would go if it is the last.
    fn open_pack(
        &mut self,
        (tenant, number): (TenantKey, u32),
        report: &mut ContentReport,
    ) -> Result<Tenant, ContentError> {
        let path = pack_path(&self.directory, tenant, number);
        let known = self.reader.places.pack(tenant, number);
        let file = self.medium.open(&path).map_err(ContentError::io("open the pack", &path))?;
        let length = file.length().map_err(ContentError::io("look at the pack", &path))?;
        report.blobs = report.blobs.saturating_add(known.records);
        if length <= known.length {
            report.damaged_bytes =
                report.damaged_bytes.saturating_add(known.length.saturating_sub(length));
            return Ok(Tenant { pack: number, length, is_new: length < known.length });
        }
        // What a killed process had written but not synced is found here, and must not be taken for durable.
        file.sync_data().map_err(ContentError::io("sync the pack", &path))?;
        let found =
            read_records(&*file, known.length).map_err(ContentError::io("read the pack", &path))?;
        report.torn_bytes = report.torn_bytes.saturating_add(found.torn_bytes);
        report.damaged_bytes = report.damaged_bytes.saturating_add(found.damaged_bytes);
        let (mut info, mut entries, mut copies) = (known, Vec::new(), Copies::default());
        for record in &found.records {
            info.length = record.end();
            let digest = Digest::from_bytes(record.digest);
            let offset = u32::try_from(record.offset).unwrap_or(u32::MAX);
            let place = Place { pack: number, offset, length: record.length };
            if !record.is_dead && self.counts(tenant, (digest, place), &mut copies)? {
                info.records = info.records.saturating_add(1);
                entries.push((digest, Located::At { place, proven: false }));
                continue;
            }
            let bytes = to_u64(RECORD_HEADER_BYTES).saturating_add(u64::from(record.length));
            info.dead_bytes = info.dead_bytes.saturating_add(bytes);
            if record.is_dead && self.reader.locate(tenant, digest)?.is_none() {
                // Else it was kept again since, in a pack that was read before.
                entries.push((digest, Located::Gone));
            }
        }
        if !self.is_looked_at {
            erase_found(&*file, &path, copies.found())?;
        }
        let records = info.records.saturating_sub(known.records);
        report.blobs = report.blobs.saturating_add(records);
        self.reader.places.publish(tenant, entries, Some((number, info)));
        for (pack, pieces) in copies.known() {
            if !self.is_looked_at {
                self.erase_replaced(tenant, *pack, pieces)?;
            }
            report.blobs = report.blobs.saturating_sub(to_u64(pieces.len()));
        }
        Ok(Tenant { pack: number, length: found.length, is_new: found.torn_bytes > 0 })
    }

    fn check_alive(&self) -> Result<(), ContentError> {
        if self.poisoned { Err(ContentError::Poisoned) } else { Ok(()) }
    }

    fn guard<T>(&mut self, result: Result<T, ContentError>) -> Result<T, ContentError> {
        self.poisoned = self.poisoned || result.is_err();
        result
    }
}

impl Drop for ContentStore {
    fn drop(&mut self) {
        self.reader.hold.writer_goes();
    }
}

const PACK: &str = "pack";
const BLOB: &str = "blob";

fn tenant_path(directory: &Path, tenant: TenantKey) -> PathBuf {
    directory.join(hex::encode(tenant))
}

fn pack_path(directory: &Path, tenant: TenantKey, number: u32) -> PathBuf {
    tenant_path(directory, tenant).join(format!("{number:06}.{PACK}"))
}

fn blob_path(directory: &Path, tenant: TenantKey, digest: Digest) -> PathBuf {
    tenant_path(directory, tenant).join(format!("{}.{BLOB}", hex::encode(digest.as_bytes())))
}

fn pack_number(path: &Path) -> Option<u32> {
    path.file_stem()?.to_str()?.parse().ok()
}
