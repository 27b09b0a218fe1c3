//! Marks that distinguish versions of a secret in records, without revealing the secret.
//!
//! Owns the key of this process. Invariant: the key is in memory only, so that a reader of records cannot test guesses of the secret; marks
//! of two processes cannot be compared.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use placet_types::digest::{Digest, DigestBuilder};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use crate::dev::fill_random;

type Key = Zeroizing<[u8; 32]>;

/// The key, made when it is first needed.
#[derive(Clone, Default)]
pub(super) struct Marks(Arc<OnceLock<Option<Key>>>);

impl fmt::Debug for Marks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marks").finish_non_exhaustive()
    }
}

impl Marks {
    /// The mark of a version; `None` if no randomness is available for a key.
    pub(super) fn of(&self, name: &str, version: &SecretString) -> Option<Digest> {
        let key = self.0.get_or_init(|| {
            let mut key = Key::default();
            fill_random(key.as_mut_slice()).ok().map(|()| key)
        });
        let key = key.as_ref()?;
        let mark = DigestBuilder::new("placet.secret-version.v1")
            .field("key", key.as_slice())
            .field("name", name)
            .field("value", version.expose_secret());
        Some(mark.finish())
    }
}
