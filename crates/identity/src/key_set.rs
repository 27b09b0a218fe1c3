//! A set of public keys, read from a JSON Web Key Set (RFC 7517).
//!
//! Owns which keys of a set are usable and how one is found. Does not load sets. Invariants: a key without a name, for
//! encryption, symmetric, too short or of an unknown type is never used; a set that publishes a private key, or that
//! names two keys of one type alike, is refused whole.

use std::{collections::BTreeMap, ops::RangeInclusive};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_types::json::{JsonError, JsonLimits, from_value_strict, parse_strict};
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    config::Algorithm,
    error::{KeyError, echo},
    signature::{KeyType, PublicKey},
};

/// The size of a key set.
pub(crate) const KEY_SET_BYTES_MAX: usize = 256 * 1024;
const KEYS_MAX: usize = 100;
pub(crate) const KID_BYTES_MAX: usize = 256;
const RSA_MODULUS_BYTES: RangeInclusive<usize> = 256..=512;
const RSA_EXPONENT_BYTES_MAX: usize = 4;

/// The usable keys of one issuer by name.
#[derive(Debug, Clone)]
pub(crate) struct KeySet {
    keys: BTreeMap<String, Vec<PublicKey>>,
}

/// The tokens for which the keys of a set are used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KeyUse {
    /// Access tokens: keys for signatures, and those without a stated use.
    Signatures,
    /// JWT-SVIDs: the keys of a trust bundle that are marked for them.
    JwtSvids,
    /// JWT-SVIDs: the Workload API returns only keys for them, so that these need no mark.
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

/// The result of looking up a name.
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
            return Err(KeyError::Unusable(format!("it is larger than {KEY_SET_BYTES_MAX} bytes")));
        }
        let limits =
            JsonLimits { bytes_max: KEY_SET_BYTES_MAX, depth_max: 8, ..JsonLimits::default() };
        Self::from_value(parse_strict(bytes, &limits).map_err(malformed)?, wanted)
    }

    /// Reads a key set that was parsed before.
    pub(crate) fn from_value(value: Value, wanted: KeyUse) -> Result<Self, KeyError> {
        let document: Document = from_value_strict(value).map_err(malformed)?;
        if document.keys.len() > KEYS_MAX {
            return Err(KeyError::Unusable(format!("it has more than {KEYS_MAX} keys")));
        }
        let mut keys: BTreeMap<String, Vec<PublicKey>> = BTreeMap::new();
        for jwk in &document.keys {
            refuse_private_part(jwk)?;
            let Some((kid, key)) = usable_key(jwk, wanted) else { continue };
            let namesakes = keys.entry(kid.to_owned()).or_default();
            if namesakes.iter().any(|other| other.key_type() == key.key_type()) {
                let problem = format!("it has two keys `{}` of the same type", echo(kid));
                return Err(KeyError::Unusable(problem));
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

fn malformed(error: JsonError) -> KeyError {
    KeyError::Unusable(format!("it is malformed: {error}"))
}

fn refuse_private_part(jwk: &Map<String, Value>) -> Result<(), KeyError> {
    let private =
        ["d", "p", "q", "dp", "dq", "qi", "oth"].iter().any(|member| jwk.contains_key(*member));
    if !private {
        return Ok(());
    }
    let kid = echo(text(jwk, "kid").unwrap_or_default());
    let problem = format!("it holds the private part of key `{kid}`: replace that key");
    Err(KeyError::Unusable(problem))
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
    Some((kid, key_of(jwk)?.only_for(algorithm)?))
}

fn key_of(jwk: &Map<String, Value>) -> Option<PublicKey> {
    let bytes = |member: &str, length: RangeInclusive<usize>| {
        let bytes = URL_SAFE_NO_PAD.decode(text(jwk, member)?).ok()?;
        length.contains(&bytes.len()).then_some(bytes)
    };
    match (text(jwk, "kty")?, text(jwk, "crv")) {
        ("EC", Some("P-256")) => {
            PublicKey::point(KeyType::P256, &bytes("x", 32..=32)?, &bytes("y", 32..=32)?)
        }
        ("EC", Some("P-384")) => {
            PublicKey::point(KeyType::P384, &bytes("x", 48..=48)?, &bytes("y", 48..=48)?)
        }
        ("OKP", Some("Ed25519")) => Some(PublicKey::ed25519(bytes("x", 32..=32)?)),
        ("RSA", None) => PublicKey::rsa(
            &bytes("n", RSA_MODULUS_BYTES)?,
            &bytes("e", 1..=RSA_EXPONENT_BYTES_MAX)?,
        ),
        _ => None,
    }
}
