//! Checking one signature with one key.
//!
//! Owns the use of `ring` for the signatures of tokens (RFC 7518, section 3, and RFC 8037), and what each key has verified before.
//! Invariants: a key is only ever used with algorithms of its own type; what is remembered is remembered by the key, so it is
//! forgotten with the key set, and only of the signature: claims, expiry and revocation are judged for each token each time.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{
    agreement::{self, ECDH_P256, ECDH_P384, EphemeralPrivateKey},
    rand::SystemRandom,
    signature::{
        self, EcdsaVerificationAlgorithm, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    },
};

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
}

/// A public key.
#[derive(Clone)]
pub(crate) struct PublicKey {
    key_type: KeyType,
    /// The only algorithm it is for, where its publisher says so.
    algorithm: Option<Algorithm>,
    key: Material,
}

/// The bytes of a key, as `ring` takes them.
#[derive(Clone)]
enum Material {
    /// An uncompressed point, or the 32 bytes of an Edwards key.
    Bytes(Vec<u8>),
    /// Big-endian, without leading zeros.
    Rsa { n: Vec<u8>, e: Vec<u8> },
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
            Components::P256 { x, y } => (KeyType::P256, point(&ECDH_P256, x, y)?),
            Components::P384 { x, y } => (KeyType::P384, point(&ECDH_P384, x, y)?),
            Components::Rsa { n, e } => {
                (KeyType::Rsa, Material::Rsa { n: number(n)?, e: number(e)? })
            }
            Components::Ed25519 { x } => (KeyType::Ed25519, Material::Bytes(bytes(x)?)),
        };
        Some(Self { key_type, algorithm, key })
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
            && bytes(signature).is_some_and(|raw| self.verify(message, &raw, algorithm))
    }

    fn verify(&self, message: &[u8], signature: &[u8], algorithm: Algorithm) -> bool {
        let point = |with: &'static EcdsaVerificationAlgorithm, key: &[u8]| {
            UnparsedPublicKey::new(with, key).verify(message, signature)
        };
        let rsa = |with: &'static RsaParameters, n: &[u8], e: &[u8]| {
            RsaPublicKeyComponents { n, e }.verify(with, message, signature)
        };
        let outcome = match (&self.key, algorithm) {
            (Material::Bytes(key), Algorithm::Es256) => {
                point(&signature::ECDSA_P256_SHA256_FIXED, key)
            }
            (Material::Bytes(key), Algorithm::Es384) => {
                point(&signature::ECDSA_P384_SHA384_FIXED, key)
            }
            (Material::Bytes(key), Algorithm::EdDsa) => {
                UnparsedPublicKey::new(&signature::ED25519, key).verify(message, signature)
            }
            (Material::Rsa { n, e }, Algorithm::Rs256) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA256, n, e)
            }
            (Material::Rsa { n, e }, Algorithm::Rs384) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA384, n, e)
            }
            (Material::Rsa { n, e }, Algorithm::Rs512) => {
                rsa(&signature::RSA_PKCS1_2048_8192_SHA512, n, e)
            }
            (Material::Rsa { n, e }, Algorithm::Ps256) => {
                rsa(&signature::RSA_PSS_2048_8192_SHA256, n, e)
            }
            (Material::Rsa { n, e }, Algorithm::Ps384) => {
                rsa(&signature::RSA_PSS_2048_8192_SHA384, n, e)
            }
            (Material::Rsa { n, e }, Algorithm::Ps512) => {
                rsa(&signature::RSA_PSS_2048_8192_SHA512, n, e)
            }
            (Material::Bytes(_) | Material::Rsa { .. }, _) => return false,
        };
        outcome.is_ok()
    }
}

fn bytes(encoded: &str) -> Option<Vec<u8>> {
    URL_SAFE_NO_PAD.decode(encoded).ok()
}

/// An uncompressed point (SEC 1, section 2.3.3) that is on its curve: `ring` agrees on a secret with no other.
fn point(curve: &'static agreement::Algorithm, x: &str, y: &str) -> Option<Material> {
    let point = [vec![4], bytes(x)?, bytes(y)?].concat();
    let other = EphemeralPrivateKey::generate(curve, &SystemRandom::new()).ok()?;
    let theirs = agreement::UnparsedPublicKey::new(curve, &point);
    agreement::agree_ephemeral(other, &theirs, |_secret| ()).ok()?;
    Some(Material::Bytes(point))
}

/// A number without the zeros before it, which some publishers write and `ring` refuses.
fn number(encoded: &str) -> Option<Vec<u8>> {
    Some(bytes(encoded)?.into_iter().skip_while(|byte| *byte == 0).collect())
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    fn ed25519() -> (Ed25519KeyPair, PublicKey) {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let x = URL_SAFE_NO_PAD.encode(pair.public_key());
        let key = PublicKey::new(&Components::Ed25519 { x: &x }, None).unwrap();
        (pair, key)
    }

    #[test]
    fn only_the_key_that_signed_a_message_has_signed_it() {
        let ((pair, key), (_, other)) = (ed25519(), ed25519());
        let signature = URL_SAFE_NO_PAD.encode(pair.sign(b"header.claims"));
        assert!(key.has_signed(b"header.claims", &signature, Algorithm::EdDsa));
        assert!(!key.has_signed(b"header.other", &signature, Algorithm::EdDsa));
        assert!(!key.has_signed(b"header.claims", "AAAA", Algorithm::EdDsa));
        assert!(!key.has_signed(b"header.claims", &signature, Algorithm::Es256));
        assert!(!other.has_signed(b"header.claims", &signature, Algorithm::EdDsa));
    }
}
