//! Checking one signature with one key.
//!
//! Owns the use of `ring` for the signatures of tokens (RFC 7518, section 3, and RFC 8037). Invariant: a key is only ever used with
//! algorithms of its own type.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use der::{
    Encode as _, Tag,
    asn1::{AnyRef, UintRef},
};
use ring::{
    agreement::{self, ECDH_P256, ECDH_P384, EphemeralPrivateKey},
    rand::SystemRandom,
    signature::{self, UnparsedPublicKey, VerificationAlgorithm},
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
    /// The only algorithm it may be used with, if its publisher says so.
    algorithm: Option<Algorithm>,
    /// As `ring` takes it: an uncompressed point, the 32 bytes of an Edwards key, or an `RSAPublicKey` in DER (RFC 8017, appendix A.1.1).
    bytes: Vec<u8>,
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PublicKey").field("key_type", &self.key_type).finish_non_exhaustive()
    }
}

impl PublicKey {
    /// A key at this point; `None` if it is not on the curve, which `ring` checks when it agrees on a secret.
    pub(crate) fn point(key_type: KeyType, x: &[u8], y: &[u8]) -> Option<Self> {
        let curve = if key_type == KeyType::P384 { &ECDH_P384 } else { &ECDH_P256 };
        // Uncompressed (SEC 1, section 2.3.3).
        let point = [&[4], x, y].concat();
        let other = EphemeralPrivateKey::generate(curve, &SystemRandom::new()).ok()?;
        let theirs = agreement::UnparsedPublicKey::new(curve, &point);
        agreement::agree_ephemeral(other, &theirs, |_secret| ()).ok()?;
        Some(Self { key_type, algorithm: None, bytes: point })
    }

    pub(crate) fn ed25519(bytes: Vec<u8>) -> Self {
        Self { key_type: KeyType::Ed25519, algorithm: None, bytes }
    }

    /// Strips the leading zeros that some publishers write.
    pub(crate) fn rsa(n: &[u8], e: &[u8]) -> Option<Self> {
        let numbers = [UintRef::new(n).ok()?.to_der().ok()?, UintRef::new(e).ok()?.to_der().ok()?];
        let bytes = AnyRef::new(Tag::Sequence, &numbers.concat()).ok()?.to_der().ok()?;
        Some(Self { key_type: KeyType::Rsa, algorithm: None, bytes })
    }

    /// The same key restricted to one algorithm, if any; `None` if it cannot be used with that.
    pub(crate) fn only_for(self, algorithm: Option<Algorithm>) -> Option<Self> {
        let fits = algorithm.is_none_or(|algorithm| self.fits(algorithm));
        fits.then_some(Self { algorithm, ..self })
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
        let Ok(signature) = URL_SAFE_NO_PAD.decode(signature) else { return false };
        let with: &'static dyn VerificationAlgorithm = match algorithm {
            Algorithm::Es256 => &signature::ECDSA_P256_SHA256_FIXED,
            Algorithm::Es384 => &signature::ECDSA_P384_SHA384_FIXED,
            Algorithm::Rs256 => &signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::Rs384 => &signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::Rs512 => &signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::Ps256 => &signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::Ps384 => &signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::Ps512 => &signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::EdDsa => &signature::ED25519,
        };
        let key = UnparsedPublicKey::new(with, &self.bytes);
        self.fits(algorithm) && key.verify(message, &signature).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use ring::signature::{Ed25519KeyPair, KeyPair as _};

    use super::*;

    fn ed25519() -> (Ed25519KeyPair, PublicKey) {
        let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
        let key = PublicKey::ed25519(pair.public_key().as_ref().to_vec());
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
