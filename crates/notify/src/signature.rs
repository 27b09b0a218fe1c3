//! Signatures of webhooks, as defined by Standard Webhooks.
//!
//! Owns reading a signing key and the value of `webhook-signature`. Does not send. Invariant: the key never leaves this module, not even
//! into an error.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;
use zeroize::Zeroizing;

/// The prefix of a key.
const PREFIX: &str = "whsec_";
/// The shortest and the longest key, in bytes (Standard Webhooks, "Signature scheme").
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// An unusable key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a signing key is `whsec_` and the base64 of 24 to 64 bytes")]
pub struct KeyError;

/// A key that webhooks are signed with.
pub struct SigningKey(Zeroizing<Vec<u8>>);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey(..)")
    }
}

impl SigningKey {
    /// Reads a key.
    ///
    /// # Errors
    /// [`KeyError`] when the text is not one.
    pub fn read(text: &SecretString) -> Result<Self, KeyError> {
        let encoded = text.expose_secret().trim().strip_prefix(PREFIX).ok_or(KeyError)?;
        let bytes = STANDARD.decode(encoded).map_err(|_not_base64| KeyError)?;
        let key = Zeroizing::new(bytes);
        if BYTES.contains(&key.len()) { Ok(Self(key)) } else { Err(KeyError) }
    }

    /// The signature of one message, in the form `v1,…`.
    pub fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        // A MAC takes a key of any length.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return String::new() };
        mac.update(id.as_bytes());
        mac.update(format!(".{timestamp_s}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::SigningKey;

    #[test]
    fn the_example_of_the_specification_has_its_signature() {
        // From the specification's reference libraries.
        let key = SigningKey::read(&SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
            .unwrap();
        let signature =
            key.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_key_that_is_too_short_or_no_key_is_refused_and_never_shown() {
        for text in
            ["", "whsec_", "whsec_c2hvcnQ=", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_???"]
        {
            let error = SigningKey::read(&SecretString::from(text)).unwrap_err().to_string();
            assert!(!error.contains("MfKQ"), "{error}");
        }
        let key = SigningKey::read(&SecretString::from("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"))
            .unwrap();
        assert_eq!(format!("{key:?}"), "SigningKey(..)");
    }
}
