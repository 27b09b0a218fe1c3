//! Assertions: Placet's own signed statement of who it is (RFC 7523).
//!
//! Owns their claims. Invariant: each has an id of its own and lives for less than a minute.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use p256::{
    SecretKey,
    ecdsa::{Signature, SigningKey, signature::Signer as _},
    pkcs8::DecodePrivateKey as _,
};
use placet_types::clock::Timestamp;
use rand::{TryRngCore as _, rngs::OsRng};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use zeroize::Zeroizing;

use crate::error::BrokerError;

const LIFETIME_S: i64 = 50;
const ID_BYTES: usize = 24;

/// What an assertion says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Assertion<'a> {
    pub(crate) client_id: &'a str,
    pub(crate) audience: &'a str,
    pub(crate) key_id: Option<&'a str>,
}

/// Signs an assertion with a P-256 key in PEM form.
pub(crate) fn sign(
    key: &SecretString,
    assertion: &Assertion<'_>,
    now: Timestamp,
) -> Result<Zeroizing<String>, BrokerError> {
    let problem = |problem: &str| BrokerError::ClientSecret(problem.to_owned());
    // The library's error is not repeated: it is about the key.
    let key = SecretKey::from_pkcs8_pem(key.expose_secret())
        .map_err(|_unreadable| problem("it is not a P-256 key as PKCS #8 in PEM form"))?;
    let mut id = [0_u8; ID_BYTES];
    OsRng.try_fill_bytes(&mut id).map_err(|_none| problem("there is no randomness for its id"))?;
    let now_s = now.as_ms().div_euclid(1_000);
    let claims = json!({
        "iss": assertion.client_id,
        "sub": assertion.client_id,
        "aud": assertion.audience,
        "jti": URL_SAFE_NO_PAD.encode(id),
        "iat": now_s,
        "exp": now_s.saturating_add(LIFETIME_S),
    });
    let mut head = json!({ "typ": "JWT", "alg": "ES256" });
    if let (Some(members), Some(key_id)) = (head.as_object_mut(), assertion.key_id) {
        members.insert("kid".to_owned(), key_id.into());
    }
    let encode = |value: &serde_json::Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encode(&head), encode(&claims));
    let signature: Signature = SigningKey::from(&key).sign(signed.as_bytes());
    Ok(Zeroizing::new(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.to_bytes()))))
}
