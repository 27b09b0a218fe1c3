//! A signed token taken apart: header, claims and signature, strictly read and not yet believed.
//!
//! Owns the compact form and the header's rules. Does not look at claims. Invariants: header and claims are each parsed once, without
//! duplicate keys; a header that brings its own key, or asks for different processing of the token, is refused.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_types::json::{JsonLimits, parse_strict};
use serde_json::{Map, Value};

use crate::{
    config::{Algorithm, IssuerConfig},
    error::IdentityError,
    key_set::KID_BYTES_MAX,
    signature::PublicKey,
};

pub(crate) const TOKEN_BYTES_MAX: usize = 16 * 1024;

const LIMITS: JsonLimits = JsonLimits {
    bytes_max: TOKEN_BYTES_MAX,
    depth_max: 32,
    string_bytes_max: 8 * 1024,
    members_max: 2_000,
    nodes_max: 4_000,
};

/// Header members that name or bring a key, change the token's encoding, or must be understood.
const HEADERS_REFUSED: [&str; 7] = ["crit", "jku", "x5u", "jwk", "x5c", "b64", "zip"];

/// A token in parts. It has no `Debug`: it holds the token.
pub(crate) struct Jws<'a> {
    signed: &'a str,
    signature: &'a str,
    header: Map<String, Value>,
    claims: Map<String, Value>,
}

impl<'a> Jws<'a> {
    pub(crate) fn parse(token: &'a str) -> Result<Self, IdentityError> {
        if token.len() > TOKEN_BYTES_MAX {
            return Err(IdentityError::TooLong(TOKEN_BYTES_MAX));
        }
        let parts = || malformed("form", "it does not have three parts");
        let (signed, signature) = token.rsplit_once('.').ok_or_else(parts)?;
        let (header, claims) = signed.split_once('.').ok_or_else(parts)?;
        if claims.contains('.') {
            return Err(parts());
        }
        let header = object("header", header)?;
        if let Some(member) =
            HEADERS_REFUSED.into_iter().find(|member| header.contains_key(*member))
        {
            return Err(IdentityError::HeaderRefused(member));
        }
        Ok(Self { signed, signature, header, claims: object("payload", claims)? })
    }

    /// What is signed: header and claims as they were sent.
    pub(crate) fn signed(&self) -> &'a str {
        self.signed
    }

    pub(crate) fn claims(&self) -> &Map<String, Value> {
        &self.claims
    }

    /// The issuer that the token claims; only for choosing a key set.
    pub(crate) fn claimed_issuer(&self) -> Result<&str, IdentityError> {
        let issuer =
            self.claims.get("iss").ok_or_else(|| IdentityError::ClaimMissing("iss".to_owned()))?;
        issuer.as_str().ok_or_else(|| IdentityError::ClaimRefused {
            claim: "iss".to_owned(),
            problem: "it must be one string",
        })
    }

    /// The algorithm, if it is in the issuer's list. The list decides, not the header.
    pub(crate) fn algorithm(&self, issuer: &IssuerConfig) -> Result<Algorithm, IdentityError> {
        let named = self.header.get("alg").and_then(Value::as_str).and_then(Algorithm::from_name);
        named
            .filter(|algorithm| issuer.algorithms.contains(algorithm))
            .ok_or_else(|| IdentityError::AlgorithmRefused(issuer.issuer.clone()))
    }

    /// The name of the key.
    pub(crate) fn kid(&self) -> Result<&str, IdentityError> {
        let kid = self.header.get("kid").and_then(Value::as_str);
        kid.filter(|kid| !kid.is_empty() && kid.len() <= KID_BYTES_MAX)
            .ok_or_else(|| malformed("header", "it names no key in `kid`"))
    }

    /// Whether the header says that this is an access token (RFC 9068). Media types have no case.
    pub(crate) fn check_type(&self, issuer: &IssuerConfig) -> Result<(), IdentityError> {
        let refused = |problem| refused_type(issuer, problem);
        let Some(named) = self.header.get("typ").and_then(Value::as_str) else {
            return refused("the header has no `typ`");
        };
        let access_token =
            ["at+jwt", "application/at+jwt"].iter().any(|typ| typ.eq_ignore_ascii_case(named));
        if access_token {
            return Ok(());
        }
        if !issuer.accept_typ_jwt || !named.eq_ignore_ascii_case("JWT") {
            return refused("the `typ` of the header is another");
        }
        // ID tokens have these claims (OpenID Connect Core). Some old providers put the nonce into access tokens too: rather none of those.
        if ["nonce", "at_hash", "c_hash"].iter().any(|claim| self.claims.contains_key(*claim)) {
            return refused("it has claims of an ID token");
        }
        Ok(())
    }

    /// Whether the header is one that a JWT-SVID may have: `alg`, `kid`, and `typ` if it says `JWT` or `JOSE`.
    pub(crate) fn check_svid_header(&self, issuer: &IssuerConfig) -> Result<(), IdentityError> {
        let refused = |problem| refused_type(issuer, problem);
        if !self.header.keys().all(|member| ["alg", "kid", "typ"].contains(&member.as_str())) {
            return refused("the header of an SVID has a member that is not known");
        }
        let typ = self.header.get("typ");
        if typ.is_some_and(|typ| !matches!(typ.as_str(), Some("JWT" | "JOSE"))) {
            return refused("the `typ` of an SVID is `JWT`, `JOSE` or nothing");
        }
        Ok(())
    }

    /// Whether an ID token may have this header: it says `JWT`, or nothing.
    pub(crate) fn check_id_token_type(&self, issuer: &IssuerConfig) -> Result<(), IdentityError> {
        let Some(typ) = self.header.get("typ") else { return Ok(()) };
        if typ.as_str().is_some_and(|named| named.eq_ignore_ascii_case("JWT")) {
            return Ok(());
        }
        refused_type(issuer, "it was sent as an ID token, and the `typ` of the header is another")
    }

    /// Whether the token is signed by `key`.
    pub(crate) fn check_signature(
        &self,
        key: &PublicKey,
        algorithm: Algorithm,
        issuer: &IssuerConfig,
    ) -> Result<(), IdentityError> {
        if key.has_signed(self.signed.as_bytes(), self.signature, algorithm) {
            return Ok(());
        }
        Err(IdentityError::SignatureInvalid(issuer.issuer.clone()))
    }
}

fn refused_type(issuer: &IssuerConfig, problem: &'static str) -> Result<(), IdentityError> {
    Err(IdentityError::TypeRefused { issuer: issuer.issuer.clone(), problem })
}

fn malformed(part: &'static str, problem: impl ToString) -> IdentityError {
    IdentityError::Malformed { part, problem: problem.to_string() }
}

fn object(part: &'static str, encoded: &str) -> Result<Map<String, Value>, IdentityError> {
    let Ok(bytes) = URL_SAFE_NO_PAD.decode(encoded) else {
        return Err(malformed(part, "it is not base64url without padding"));
    };
    match parse_strict(&bytes, &LIMITS).map_err(|error| malformed(part, error))? {
        Value::Object(members) => Ok(members),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Err(malformed(part, "it is not an object"))
        }
    }
}
