//! Checking one signature with one key.
//!
//! Owns the only use of the JWT library: its raw signature check. The library's own reading of headers and claims accepts
//! too much (trap T2) and reads the system's clock, so it is not used. Invariant: a key is only ever used with algorithms
//! of its own type.

use std::fmt;

use jsonwebtoken::{Algorithm as LibraryAlgorithm, DecodingKey, crypto};

use crate::config::Algorithm;

/// What a key can be used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyType {
    P256,
    P384,
    Rsa,
    Ed25519,
}

impl Algorithm {
    pub(crate) const fn key_type(self) -> KeyType {
        match self {
            Self::Es256 => KeyType::P256,
            Self::Es384 => KeyType::P384,
            Self::Rs256 | Self::Rs384 | Self::Rs512 | Self::Ps256 | Self::Ps384 | Self::Ps512 => {
                KeyType::Rsa
            }
            Self::EdDsa => KeyType::Ed25519,
        }
    }

    const fn library(self) -> LibraryAlgorithm {
        match self {
            Self::Es256 => LibraryAlgorithm::ES256,
            Self::Es384 => LibraryAlgorithm::ES384,
            Self::Rs256 => LibraryAlgorithm::RS256,
            Self::Rs384 => LibraryAlgorithm::RS384,
            Self::Rs512 => LibraryAlgorithm::RS512,
            Self::Ps256 => LibraryAlgorithm::PS256,
            Self::Ps384 => LibraryAlgorithm::PS384,
            Self::Ps512 => LibraryAlgorithm::PS512,
            Self::EdDsa => LibraryAlgorithm::EdDSA,
        }
    }
}

/// A public key.
#[derive(Clone)]
pub(crate) struct PublicKey {
    key_type: KeyType,
    /// The only algorithm it is for, where its publisher says so.
    algorithm: Option<Algorithm>,
    key: DecodingKey,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("key_type", &self.key_type).finish_non_exhaustive()
    }
}

/// The coordinates or components of a key, with their lengths already checked.
pub(crate) enum Components<'a> {
    P256 { x: &'a str, y: &'a str },
    P384 { x: &'a str, y: &'a str },
    Rsa { n: &'a str, e: &'a str },
    Ed25519 { x: &'a str },
}

impl PublicKey {
    /// The key, or nothing when its components are no key.
    pub(crate) fn new(components: &Components<'_>, algorithm: Option<Algorithm>) -> Option<Self> {
        let (key_type, key) = match *components {
            Components::P256 { x, y } => (KeyType::P256, DecodingKey::from_ec_components(x, y)),
            Components::P384 { x, y } => (KeyType::P384, DecodingKey::from_ec_components(x, y)),
            Components::Rsa { n, e } => (KeyType::Rsa, DecodingKey::from_rsa_components(n, e)),
            Components::Ed25519 { x } => (KeyType::Ed25519, DecodingKey::from_ed_components(x)),
        };
        let usable = Self { key_type, algorithm, key: key.ok()? };
        // A point that is not on its curve makes the check fail instead of answering "not signed by this key".
        let probe = Algorithm::ALL.iter().find(|algorithm| algorithm.key_type() == key_type)?;
        crypto::verify("", b"", &usable.key, probe.library()).ok()?;
        Some(usable)
    }

    pub(crate) fn key_type(&self) -> KeyType {
        self.key_type
    }

    /// Whether the key may be used with `algorithm`.
    pub(crate) fn fits(&self, algorithm: Algorithm) -> bool {
        self.key_type == algorithm.key_type() && self.algorithm.is_none_or(|only| only == algorithm)
    }

    /// Whether `signature`, in base64url, is by this key over `message`.
    pub(crate) fn has_signed(&self, message: &[u8], signature: &str, algorithm: Algorithm) -> bool {
        self.fits(algorithm)
            && crypto::verify(signature, message, &self.key, algorithm.library()).unwrap_or(false)
    }
}
