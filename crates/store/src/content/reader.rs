//! Reading content from any thread while more is being kept.
//!
//! Owns: the index of where content lies (in memory, rebuilt at every start) and the proof at every reading.
//! Not here: writing. Invariant: what [`ContentReader::get`] answers hashes to the digest that was asked for.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use placet_types::digest::Digest;

use super::error::ContentError;
use super::{BLOB_BYTES_MAX, blob_path, pack_path};
use crate::journal::medium::{Medium, read_full_at, to_usize};

/// A tenant, as its folder is named: the digest of its name.
pub(crate) type TenantKey = [u8; 32];

/// Where content lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a pack.
    Pack { number: u64, offset: u64, length: u32 },
    /// In a file of its own.
    File { length: u64 },
}

/// A place, and whether this process knows that the right bytes are there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Located {
    pub(crate) place: Place,
    pub(crate) proven: bool,
}

/// Reads content; cheap to clone, usable from any thread.
#[derive(Debug, Clone)]
pub struct ContentReader {
    medium: Arc<dyn Medium>,
    directory: Arc<PathBuf>,
    index: Arc<RwLock<HashMap<(TenantKey, Digest), Located>>>,
}

impl ContentReader {
    pub(crate) fn new(medium: Arc<dyn Medium>, directory: PathBuf) -> Self {
        Self { medium, directory: Arc::new(directory), index: Arc::default() }
    }

    /// The bytes of this digest that were kept for this tenant, proven by hashing them again.
    ///
    /// # Errors
    /// [`ContentError::Missing`], [`ContentError::Altered`], or what the operating system answers.
    pub fn get(&self, tenant: &str, digest: Digest) -> Result<Vec<u8>, ContentError> {
        let tenant = tenant_key(tenant);
        let located = self.locate(tenant, digest).ok_or(ContentError::Missing { digest })?;
        self.load(tenant, digest, located.place)
    }

    /// Whether bytes of this digest are kept for this tenant; not whether they are still the right ones.
    pub fn contains(&self, tenant: &str, digest: Digest) -> bool {
        self.locate(tenant_key(tenant), digest).is_some()
    }

    pub(crate) fn locate(&self, tenant: TenantKey, digest: Digest) -> Option<Located> {
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        self.index.read().unwrap_or_else(PoisonError::into_inner).get(&(tenant, digest)).copied()
    }

    pub(crate) fn publish(
        &self,
        tenant: TenantKey,
        entries: impl IntoIterator<Item = (Digest, Located)>,
    ) {
        let mut index = self.index.write().unwrap_or_else(PoisonError::into_inner);
        index.extend(entries.into_iter().map(|(digest, located)| ((tenant, digest), located)));
    }

    pub(crate) fn load(
        &self,
        tenant: TenantKey,
        digest: Digest,
        place: Place,
    ) -> Result<Vec<u8>, ContentError> {
        let (path, offset, length) = match place {
            Place::Pack { number, offset, length } => {
                (pack_path(&self.directory, tenant, number), offset, u64::from(length))
            }
            Place::File { length } => (blob_path(&self.directory, tenant, digest), 0, length),
        };
        let length = to_usize(length);
        if length > BLOB_BYTES_MAX {
            return Err(ContentError::Altered { digest });
        }
        let file = match self.medium.open_read(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(ContentError::Missing { digest });
            }
            Err(error) => return Err(ContentError::io("open the content", &path)(error)),
        };
        let mut bytes = vec![0; length];
        let count = read_full_at(&*file, &mut bytes, offset)
            .map_err(ContentError::io("read the content", &path))?;
        if count != length || Digest::of(&bytes) != digest {
            return Err(ContentError::Altered { digest });
        }
        Ok(bytes)
    }
}

pub(crate) fn tenant_key(tenant: &str) -> TenantKey {
    *Digest::of(tenant.as_bytes()).as_bytes()
}
