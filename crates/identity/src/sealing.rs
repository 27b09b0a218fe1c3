//! Sealing under a secret of the browser: AES-256-GCM, with a key that is made of the secret for one purpose.
//!
//! Owns the form: twelve random bytes, then the cipher text. Invariant: the key is made of 256 random bits and is kept nowhere.

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
};
use serde::{Serialize, de::DeserializeOwned};
use zeroize::Zeroizing;

use crate::{dev::fill_random, error::SetupError};

/// Seals a value under a secret, for a purpose.
pub(crate) fn seal<T: Serialize>(
    secret: &str,
    purpose: &str,
    value: &T,
) -> Result<Vec<u8>, SetupError> {
    let mut nonce = [0_u8; NONCE_LEN];
    fill_random(&mut nonce)?;
    let mut bytes = serde_json::to_vec(value).map_err(|_error| SetupError::NoRandomness)?;
    let key = key(secret, purpose).ok_or(SetupError::NoRandomness)?;
    let aad = Aad::from(purpose.as_bytes());
    key.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes)
        .map_err(|_unspecified| SetupError::NoRandomness)?;
    Ok([nonce.as_slice(), &bytes].concat())
}

/// The value that was sealed; `None` if the secret or the purpose differs, or anything was altered.
pub(crate) fn unseal<T: DeserializeOwned>(secret: &str, purpose: &str, sealed: &[u8]) -> Option<T> {
    let (nonce, rest) = sealed.split_first_chunk::<NONCE_LEN>()?;
    let mut bytes = Zeroizing::new(rest.to_vec());
    let aad = Aad::from(purpose.as_bytes());
    let nonce = Nonce::assume_unique_for_key(*nonce);
    let plain = key(secret, purpose)?.open_in_place(nonce, aad, &mut bytes).ok()?;
    serde_json::from_slice(plain).ok()
}

fn key(secret: &str, purpose: &str) -> Option<LessSafeKey> {
    let made_of = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let key = hmac::sign(&made_of, purpose.as_bytes());
    UnboundKey::new(&AES_256_GCM, key.as_ref()).ok().map(LessSafeKey::new)
}

#[cfg(test)]
mod tests {
    use super::{seal, unseal};

    #[test]
    fn what_is_sealed_opens_for_its_secret_and_purpose_alone_and_unaltered() {
        let sealed = seal("secret", "purpose", &"value").unwrap();
        let opened = |secret, purpose, bytes: &[u8]| unseal::<String>(secret, purpose, bytes);
        assert_eq!(opened("secret", "purpose", &sealed).as_deref(), Some("value"));
        assert_eq!(opened("other", "purpose", &sealed), None);
        assert_eq!(opened("secret", "other", &sealed), None);
        for place in 0..sealed.len() {
            let mut altered = sealed.clone();
            altered[place] ^= 1;
            assert_eq!(opened("secret", "purpose", &altered), None, "{place}");
        }
        assert_eq!(opened("secret", "purpose", &[]), None);
        assert_ne!(seal("secret", "purpose", &"value").unwrap(), sealed, "never the same twice");
    }
}
