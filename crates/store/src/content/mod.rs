//! Content: the bytes whose digests the journal names (arguments, evidence, results), kept per tenant.
//!
//! Owns: `<folder>/<SHA-256 of the tenant's name>/` with packs `000001.pack`, … for what is small and `<digest>.blob` for what
//! is large. A record in a pack is `"PLC" 01`, its length (4 bytes, little-endian), its SHA-256, the CRC-32C of these 40
//! bytes, and the content. Not here: who names the content, and when it may be deleted.
//! Invariants: content is durable once [`ContentStore::sync`] has returned, which the writer awaits before it writes a frame
//! that names it; what is read is proven by its digest every time; after a failed write or sync nothing more is taken.

mod error;
mod pack;
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
use pack::{RECORD_HEADER_BYTES, encode, read_records};
use reader::{Located, Place, TenantKey, tenant_key};

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
    pack_bytes: u64,
    poisoned: bool,
}

/// Where a tenant's next record goes.
#[derive(Debug, Clone, Copy)]
struct Tenant {
    pack: u64,
    length: u64,
    /// Whether the pack's file has still to be made.
    is_new: bool,
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
        let directory = directory.into();
        medium.create_dir(&directory).map_err(ContentError::io("make the folder", &directory))?;
        let mut store = Self {
            reader: ContentReader::new(Arc::clone(&medium), directory.clone()),
            medium,
            directory,
            tenants: HashMap::new(),
            pending: BTreeMap::new(),
            pack_bytes: PACK_BYTES,
            poisoned: false,
        };
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
        Ok(())
    }

    fn keep(
        &mut self,
        tenant: TenantKey,
        digest: Digest,
        bytes: &[u8],
    ) -> Result<(), ContentError> {
        if self.is_kept(tenant, digest)? {
            return Ok(());
        }
        if bytes.len() > PACKED_BYTES_MAX {
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
            place = Tenant { pack: place.pack.saturating_add(1), length: 0, is_new: true };
            self.tenants.insert(tenant, place);
        }
        let pending = self.pending.entry(tenant).or_default();
        encode(digest.as_bytes(), bytes, &mut pending.bytes);
        let before = to_u64(pending.bytes.len()).saturating_sub(to_u64(bytes.len()));
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        let place =
            Place::Pack { number: place.pack, offset: place.length.saturating_add(before), length };
        pending.entries.insert(digest, Located { place, proven: true });
        Ok(())
    }

    /// Whether the bytes need not be written again. What an earlier process left is believed only after reading it: its
    /// last writes may not have reached the disk whole, and no frame may name what is not there.
    fn is_kept(&self, tenant: TenantKey, digest: Digest) -> Result<bool, ContentError> {
        if self.pending.get(&tenant).is_some_and(|pending| pending.entries.contains_key(&digest)) {
            return Ok(true);
        }
        let Some(located) = self.reader.locate(tenant, digest) else { return Ok(false) };
        if located.proven {
            return Ok(true);
        }
        match self.reader.load(tenant, digest, located.place) {
            Ok(_) => {
                self.reader.publish(tenant, [(digest, Located { proven: true, ..located })]);
                Ok(true)
            }
            Err(ContentError::Missing { .. } | ContentError::Altered { .. }) => Ok(false),
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
            .map_err(ContentError::io("write the content", &path))?;
        let place = Place::File { length: to_u64(bytes.len()) };
        self.reader.publish(tenant, [(digest, Located { place, proven: true })]);
        Ok(())
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
        let place = Tenant { pack: 1, length: 0, is_new: true };
        self.tenants.insert(tenant, place);
        Ok(place)
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
        self.reader.publish(tenant, pending.entries);
        Ok(())
    }

    fn open_tenant(
        &mut self,
        tenant: TenantKey,
        report: &mut ContentReport,
    ) -> Result<(), ContentError> {
        let folder = tenant_path(&self.directory, tenant);
        let mut place = Tenant { pack: 1, length: 0, is_new: true };
        for name in
            self.medium.list(&folder).map_err(ContentError::io("list the folder", &folder))?
        {
            let path = folder.join(&name);
            match path.extension().and_then(|extension| extension.to_str()) {
                Some(PACK) => {
                    let Some(number) = pack_number(&path) else { continue };
                    place = self.open_pack((tenant, number), report)?;
                }
                Some(BLOB) => self.open_file(tenant, &path, report)?,
                Some(TEMPORARY) => {
                    self.medium
                        .remove(&path)
                        .map_err(ContentError::io("remove the unfinished file", &path))?;
                }
                _ => {}
            }
        }
        self.medium.sync_dir(&folder).map_err(ContentError::io("sync the folder", &folder))?;
        self.tenants.insert(tenant, place);
        Ok(())
    }

    /// Reads a pack's headers; answers where the next record would go if it is the last.
    fn open_pack(
        &mut self,
        (tenant, number): (TenantKey, u64),
        report: &mut ContentReport,
    ) -> Result<Tenant, ContentError> {
        let path = pack_path(&self.directory, tenant, number);
        let file = self.medium.open(&path).map_err(ContentError::io("open the pack", &path))?;
        // What a killed process had written but not synced is found here, and must not be taken for durable.
        file.sync_data().map_err(ContentError::io("sync the pack", &path))?;
        let found = read_records(&*file).map_err(ContentError::io("read the pack", &path))?;
        report.blobs = report.blobs.saturating_add(to_u64(found.records.len()));
        report.torn_bytes = report.torn_bytes.saturating_add(found.torn_bytes);
        report.damaged_bytes = report.damaged_bytes.saturating_add(found.damaged_bytes);
        self.reader.publish(
            tenant,
            found.records.iter().map(|record| {
                let place = Place::Pack { number, offset: record.offset, length: record.length };
                (Digest::from_bytes(record.digest), Located { place, proven: false })
            }),
        );
        if found.torn_bytes > 0 {
            return Ok(Tenant { pack: number.saturating_add(1), length: 0, is_new: true });
        }
        Ok(Tenant { pack: number, length: found.length, is_new: false })
    }

    fn open_file(
        &mut self,
        tenant: TenantKey,
        path: &Path,
        report: &mut ContentReport,
    ) -> Result<(), ContentError> {
        let mut digest = [0; 32];
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        if hex::decode_to_slice(name, &mut digest).is_err() {
            return Ok(());
        }
        let length = self.medium.open_read(path).and_then(|file| file.length());
        let place =
            Place::File { length: length.map_err(ContentError::io("open the content", path))? };
        self.reader
            .publish(tenant, [(Digest::from_bytes(digest), Located { place, proven: false })]);
        report.blobs = report.blobs.saturating_add(1);
        Ok(())
    }

    fn check_alive(&self) -> Result<(), ContentError> {
        if self.poisoned { Err(ContentError::Poisoned) } else { Ok(()) }
    }

    fn guard<T>(&mut self, result: Result<T, ContentError>) -> Result<T, ContentError> {
        self.poisoned = self.poisoned || result.is_err();
        result
    }
}

const PACK: &str = "pack";
const BLOB: &str = "blob";

fn tenant_path(directory: &Path, tenant: TenantKey) -> PathBuf {
    directory.join(hex::encode(tenant))
}

fn pack_path(directory: &Path, tenant: TenantKey, number: u64) -> PathBuf {
    tenant_path(directory, tenant).join(format!("{number:06}.{PACK}"))
}

fn blob_path(directory: &Path, tenant: TenantKey, digest: Digest) -> PathBuf {
    tenant_path(directory, tenant).join(format!("{}.{BLOB}", hex::encode(digest.as_bytes())))
}

fn pack_number(path: &Path) -> Option<u64> {
    path.file_stem()?.to_str()?.parse().ok()
}
