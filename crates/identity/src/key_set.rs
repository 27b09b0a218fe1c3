//! A set of public keys, read from a JSON Web Key Set (RFC 7517).
//!
//! Owns which keys of a set are usable and how one is found. Does not load sets. Invariants: a key without a name, for
//! encryption, symmetric, too short or of an unknown type is never used; a set that publishes a private key, or that
//! names two keys of one type alike, is refused whole.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_types::json::{JsonLimits, from_value_strict, parse_strict};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    config::Algorithm,
    error::{KeyError, echo},
    signature::{Components, PublicKey},
};

/// The size of a key set.
pub(crate) const KEY_SET_BYTES_MAX: usize = 256 * 1024;
const KEYS_MAX: usize = 100;
pub(crate) const KID_BYTES_MAX: usize = 256;
const RSA_MODULUS_BYTES: std::ops::RangeInclusive<usize> = 256..=512;
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// The usable keys of one issuer by name.
#[derive(Debug, Clone)]
pub(crate) struct KeySet {
    keys: BTreeMap<String, Vec<PublicKey>>,
}

/// For which tokens the keys of a set are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyUse {
    /// Access tokens: keys for signatures, and those that do not say what they are for.
    Signatures,
    /// JWT-SVIDs: of a trust bundle, the keys that say so.
    JwtSvids,
    /// JWT-SVIDs: of what the Workload API gives, which is their keys alone, so that they need not say it.
    WorkloadApi,
}

impl KeyUse {
    fn covers(self, jwk: &Map<String, Value>) -> bool {
        match self {
            Self::Signatures => !jwk.contains_key("use") || text(jwk, "use") == Some("sig"),
            Self::JwtSvids => text(jwk, "use") == Some("jwt-svid"),
            Self::WorkloadApi => !jwk.contains_key("use") || text(jwk, "use") == Some("jwt-svid"),
        }
    }
}

/// What a set has under a name.
#[derive(Debug)]
pub(crate) enum Found<'a> {
    Key(&'a PublicKey),
    /// There is a key of this name, but not for this algorithm.
    OtherAlgorithm,
    Nothing,
}

#[derive(Deserialize)]
struct Document {
    keys: Vec<Map<String, Value>>,
}

impl KeySet {
    /// Reads a key set's text.
    pub(crate) fn parse(bytes: &[u8], wanted: KeyUse) -> Result<Self, KeyError> {
        if bytes.len() > KEY_SET_BYTES_MAX {
            return Err(KeyError::TooLarge { bytes_max: KEY_SET_BYTES_MAX });
        }
        let limits =
            JsonLimits { bytes_max: KEY_SET_BYTES_MAX, depth_max: 8, ..JsonLimits::default() };
        Self::from_value(parse_strict(bytes, &limits).map_err(KeyError::Malformed)?, wanted)
    }

    /// Reads a key set that was parsed before.
    pub(crate) fn from_value(value: Value, wanted: KeyUse) -> Result<Self, KeyError> {
        let document: Document = from_value_strict(value).map_err(KeyError::Malformed)?;
        if document.keys.len() > KEYS_MAX {
            return Err(KeyError::TooMany { keys_max: KEYS_MAX });
        }
        let mut keys: BTreeMap<String, Vec<PublicKey>> = BTreeMap::new();
        for jwk in &document.keys {
            refuse_private_part(jwk)?;
            let Some((kid, key)) = usable_key(jwk, wanted) else { continue };
            let namesakes = keys.entry(kid.to_owned()).or_default();
            if namesakes.iter().any(|other| other.key_type() == key.key_type()) {
                return Err(KeyError::Ambiguous { kid: echo(kid) });
            }
            namesakes.push(key);
        }
        if keys.is_empty() { Err(KeyError::Empty) } else { Ok(Self { keys }) }
    }

    /// The key of this name for this algorithm.
    pub(crate) fn find(&self, kid: &str, algorithm: Algorithm) -> Found<'_> {
        match self.keys.get(kid) {
            None => Found::Nothing,
            Some(namesakes) => namesakes
                .iter()
                .find(|key| key.fits(algorithm))
                .map_or(Found::OtherAlgorithm, Found::Key),
        }
    }
}

fn text<'a>(jwk: &'a Map<String, Value>, member: &str) -> Option<&'a str> {
    jwk.get(member).and_then(Value::as_str)
}

fn refuse_private_part(jwk: &Map<String, Value>) -> Result<(), KeyError> {
    let private =
        ["d", "p", "q", "dp", "dq", "qi", "oth"].iter().any(|member| jwk.contains_key(*member));
    if !private {
        return Ok(());
    }
    Err(KeyError::PrivateKey { kid: echo(text(jwk, "kid").unwrap_or_default()) })
}

/// The key with its name, when it is one that can verify tokens.
fn usable_key(jwk: &Map<String, Value>, wanted: KeyUse) -> Option<(&str, PublicKey)> {
    let kid = text(jwk, "kid").filter(|kid| !kid.is_empty() && kid.len() <= KID_BYTES_MAX)?;
    if !wanted.covers(jwk) {
        return None;
    }
    if let Some(operations) = jwk.get("key_ops") {
        operations.as_array()?.iter().find(|operation| operation.as_str() == Some("verify"))?;
    }
    let algorithm = match jwk.get("alg") {
        None => None,
        Some(name) => Some(Algorithm::from_name(name.as_str()?)?),
    };
    let key = PublicKey::new(&components(jwk)?, algorithm)?;
    if algorithm.is_some_and(|algorithm| !key.fits(algorithm)) {
        return None;
    }
    Some((kid, key))
}

fn components(jwk: &Map<String, Value>) -> Option<Components<'_>> {
    match (text(jwk, "kty")?, text(jwk, "crv")) {
        ("EC", Some("P-256")) => {
            let (x, y) = (sized(jwk, "x", 32..=32)?, sized(jwk, "y", 32..=32)?);
            Some(Components::P256 { x, y })
        }
        ("EC", Some("P-384")) => {
            let (x, y) = (sized(jwk, "x", 48..=48)?, sized(jwk, "y", 48..=48)?);
            Some(Components::P384 { x, y })
        }
        ("OKP", Some("Ed25519")) => Some(Components::Ed25519 { x: sized(jwk, "x", 32..=32)? }),
        ("RSA", None) => {
            let (n, e) =
                (sized(jwk, "n", RSA_MODULUS_BYTES)?, sized(jwk, "e", 1..=RSA_EXPONENT_BYTES_MAX)?);
            Some(Components::Rsa { n, e })
        }
        _ => None,
    }
}

/// A base64url member of so many bytes. The library cuts or panics on other lengths of some keys.
fn sized<'a>(
    jwk: &'a Map<String, Value>,
    member: &str,
    bytes: std::ops::RangeInclusive<usize>,
) -> Option<&'a str> {
    let value = text(jwk, member)?;
    let decoded = URL_SAFE_NO_PAD.decode(value).ok()?;
    Some(value).filter(|_| bytes.contains(&decoded.len()))
}
