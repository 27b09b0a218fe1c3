//! Signers, clocks and issuers for the tests.

use std::{collections::BTreeSet, sync::Arc};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use jsonwebtoken::{EncodingKey, crypto, jwk::Jwk};
use p256::{elliptic_curve::rand_core::OsRng, pkcs8::EncodePrivateKey as _};
use placet_testkit::clock::TestClock;
use placet_types::{ids::TenantId, principal::PrincipalKind};
use serde_json::{Value, json};

use crate::{
    Algorithm, IdentityConfig, IdentityError, IssuerConfig, KeySource, KindRule, TokenRole,
    VerifiedToken, Verifier,
};

pub(crate) const NOW_S: i64 = 1_790_000_000;
pub(crate) const ISSUER: &str = "https://idp.example/";
pub(crate) const US: &str = "https://placet.example/";

/// Every algorithm that an issuer may use.
pub(crate) fn every_algorithm() -> Vec<Algorithm> {
    ["ES256", "ES384", "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "EdDSA"]
        .map(|name| Algorithm::from_name(name).unwrap())
        .to_vec()
}

/// A clock that stands at this many seconds until it is moved.
pub(crate) fn clock_at(seconds: i64) -> Arc<TestClock> {
    TestClock::at(seconds.saturating_mul(1_000))
}

/// Somebody who can sign.
pub(crate) struct Signer {
    pub(crate) key: EncodingKey,
    pub(crate) algorithm: jsonwebtoken::Algorithm,
    pub(crate) kid: String,
}

impl Signer {
    pub(crate) fn es256(kid: &str) -> Self {
        let secret = p256::SecretKey::random(&mut OsRng);
        let der = secret.to_pkcs8_der().unwrap();
        let key = EncodingKey::from_ec_der(der.as_bytes());
        Self { key, algorithm: jsonwebtoken::Algorithm::ES256, kid: kid.to_owned() }
    }

    pub(crate) fn es384(kid: &str) -> Self {
        let key = EncodingKey::from_ec_pem(include_bytes!("p384_test_key.pem")).unwrap();
        Self { key, algorithm: jsonwebtoken::Algorithm::ES384, kid: kid.to_owned() }
    }

    pub(crate) fn rsa(kid: &str, algorithm: jsonwebtoken::Algorithm) -> Self {
        let key = EncodingKey::from_rsa_pem(include_bytes!("rsa_test_key.pem")).unwrap();
        Self { key, algorithm, kid: kid.to_owned() }
    }

    pub(crate) fn ed25519(kid: &str, seed: u8) -> Self {
        // A PKCS#8 document around 32 bytes of seed.
        let mut der = vec![
            0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22,
            0x04, 0x20,
        ];
        der.extend([seed; 32]);
        let key = EncodingKey::from_ed_der(&der);
        Self { key, algorithm: jsonwebtoken::Algorithm::EdDSA, kid: kid.to_owned() }
    }

    pub(crate) fn jwk(&self) -> Value {
        let mut jwk =
            serde_json::to_value(Jwk::from_encoding_key(&self.key, self.algorithm).unwrap())
                .unwrap();
        jwk["kid"] = self.kid.clone().into();
        jwk["use"] = "sig".into();
        jwk
    }

    pub(crate) fn header(&self) -> Value {
        json!({ "typ": "at+jwt", "alg": self.algorithm, "kid": self.kid })
    }

    /// A token with these claims, as texts, so that a test can write what no serializer would.
    pub(crate) fn sign_text(&self, header: &str, claims: &str) -> String {
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(claims));
        let signature = crypto::sign(signed.as_bytes(), &self.key, self.algorithm).unwrap();
        format!("{signed}.{signature}")
    }

    pub(crate) fn sign(&self, claims: &Value) -> String {
        self.sign_text(&self.header().to_string(), &claims.to_string())
    }
}

pub(crate) fn key_set(signers: &[&Signer]) -> Value {
    json!({ "keys": signers.iter().map(|signer| signer.jwk()).collect::<Vec<_>>() })
}

pub(crate) fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

/// The claims of a valid token.
pub(crate) fn claims() -> Value {
    json!({
        "iss": ISSUER, "sub": "ada", "aud": US, "iat": NOW_S - 10, "exp": NOW_S + 300, "jti": "id-1",
        "placet_kind": "user", "groups": ["ops", "on-call"], "scope": "calls:write calls:read",
    })
}

/// The claims with one of them replaced, or taken away by `null`.
pub(crate) fn claims_with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    if value.is_null() {
        claims.as_object_mut().unwrap().remove(name);
    } else {
        claims[name] = value;
    }
    claims
}

pub(crate) fn issuer(keys: KeySource) -> IssuerConfig {
    let kinds = [PrincipalKind::User, PrincipalKind::Agent, PrincipalKind::Service];
    let audiences = BTreeSet::from([US.to_owned()]);
    let mut issuer =
        IssuerConfig::new(ISSUER, tenant(), audiences, keys, KindRule::Claim(kinds.into()));
    issuer.groups_claim = Some("groups".to_owned());
    issuer.person_clients.insert("cli".to_owned());
    issuer
}

pub(crate) fn config(issuers: Vec<IssuerConfig>) -> IdentityConfig {
    IdentityConfig { issuers, ..IdentityConfig::default() }
}

pub(crate) fn verifier_of(issuers: Vec<IssuerConfig>) -> Verifier {
    Verifier::new(config(issuers), clock_at(NOW_S), None).unwrap()
}

pub(crate) fn verifier(signers: &[&Signer]) -> Verifier {
    verifier_of(vec![issuer(KeySource::Inline(key_set(signers)))])
}

pub(crate) async fn verify(
    verifier: &Verifier,
    token: &str,
) -> Result<VerifiedToken, IdentityError> {
    verifier.verify(token, TokenRole::Actor).await
}
