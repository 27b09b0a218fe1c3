//! JWT-SVIDs of SPIFFE trust domains.

use std::collections::BTreeSet;

use placet_types::{error::ErrorCode, ids::PrincipalId, principal::PrincipalKind};
use serde_json::{Value, json};

use super::support::{ISSUER, NOW_S, Signer, US, clock_at, issuer, key_set, tenant, verify};
use crate::{
    Algorithm, IdentityConfig, IdentityError, KeySource, TokenRole, TrustDomainConfig,
    VerifiedToken, Verifier, WorkloadNames,
};

const AGENT: &str = "spiffe://prod.example/agent/bot";

/// A trust bundle as a SPIFFE server publishes it: keys for X.509 and for JWT side by side.
fn bundle(signer: &Signer, other: &Signer) -> Value {
    let (mut jwt, mut x509) = (signer.jwk(), other.jwk());
    jwt["use"] = json!("jwt-svid");
    x509["use"] = json!("x509-svid");
    x509["x5c"] = json!(["MIIB"]);
    json!({ "keys": [jwt, x509], "spiffe_sequence": 7, "spiffe_refresh_hint": 300 })
}

fn domain(bundle: Value) -> TrustDomainConfig {
    serde_json::from_value(json!({
        "trust_domain": "prod.example", "tenant": "acme", "audiences": [US],
        "bundle": { "inline": bundle }, "workloads": { "below": "/agent/" },
    }))
    .unwrap()
}

fn verifier_of(domains: Vec<TrustDomainConfig>) -> Verifier {
    let config = IdentityConfig { trust_domains: domains, ..IdentityConfig::default() };
    Verifier::new(config, clock_at(NOW_S), None).unwrap()
}

fn claims() -> Value {
    json!({ "sub": AGENT, "aud": [US], "exp": NOW_S + 300, "iat": NOW_S - 5 })
}

fn with(name: &str, value: Value) -> Value {
    let mut claims = claims();
    claims[name] = value;
    claims
}

fn header(signer: &Signer) -> Value {
    json!({ "alg": signer.algorithm, "kid": signer.kid, "typ": "JWT" })
}

/// A workload with a key of the bundle.
struct Workload {
    signer: Signer,
    other: Signer,
    verifier: Verifier,
}

impl Workload {
    fn new() -> Self {
        let (signer, other) = (Signer::es256("jwt"), Signer::es256("x509"));
        let verifier = verifier_of(vec![domain(bundle(&signer, &other))]);
        Self { signer, other, verifier }
    }

    fn sign(&self, claims: &Value) -> String {
        self.signer.sign_text(&header(&self.signer).to_string(), &claims.to_string())
    }

    async fn shows(&self, claims: &Value) -> Result<VerifiedToken, IdentityError> {
        verify(&self.verifier, &self.sign(claims)).await
    }
}

#[tokio::test]
async fn an_svid_of_the_trust_domain_is_an_agent_of_its_tenant() {
    let workload = Workload::new();
    for claims in [claims(), with("iss", json!("https://spire.example/")), with("aud", json!(US))] {
        let token = workload.shows(&claims).await.unwrap();
        assert_eq!((token.principal().id.as_str(), token.kind()), ("bot", PrincipalKind::Agent));
        assert_eq!((token.tenant(), token.subject()), (&tenant(), AGENT));
        assert_eq!(token.issuer(), "spiffe://prod.example");
        assert!(token.attests_workload());
        assert_eq!(token.proof().spiffe_id(), Some(AGENT));
    }
    let mut without = claims();
    without.as_object_mut().unwrap().remove("iat");
    let undated = workload.shows(&without).await.expect("`iat` is the issuer's choice");
    assert_eq!(undated.said_issued_at(), None, "our own word is not the token's");
}

#[tokio::test]
async fn an_svid_that_is_not_by_the_letter_is_refused() {
    let workload = Workload::new();
    let mut table = vec![
        ("another trust domain", with("sub", json!("spiffe://evil.example/agent/bot"))),
        ("the domain itself", with("sub", json!("spiffe://prod.example"))),
        (
            "a path that another reader shortens",
            with("sub", json!("spiffe://prod.example/agent/../x")),
        ),
        ("a workload without a name here", with("sub", json!("spiffe://prod.example/db/one"))),
        ("nobody", with("sub", json!("spiffe://prod.example/agent/"))),
        ("below below", with("sub", json!("spiffe://prod.example/agent/a%20b"))),
        ("another audience", with("aud", json!(["https://other.example/"]))),
        ("expired", with("exp", json!(NOW_S - 6))),
        ("too long", with("exp", json!(NOW_S + 3_600))),
        ("of the future", with("iat", json!(NOW_S + 60))),
        ("not yet", with("nbf", json!(NOW_S + 60))),
        ("for somebody", with("act", json!({ "sub": "x" }))),
        ("bound to a key", with("cnf", json!({ "jkt": "x" }))),
    ];
    for missing in ["sub", "aud", "exp"] {
        let mut claims = claims();
        claims.as_object_mut().unwrap().remove(missing);
        table.push((missing, claims));
    }
    for (what, claims) in table {
        assert!(workload.shows(&claims).await.is_err(), "{what}");
    }
    let mut endless = claims();
    endless.as_object_mut().unwrap().remove("iat");
    endless["exp"] = json!(NOW_S + 3_601);
    let refused = workload.shows(&endless).await.unwrap_err();
    assert!(matches!(refused, IdentityError::LifetimeTooLong { .. }), "{refused}");
    endless["exp"] = json!(NOW_S - 60);
    let refused = workload.shows(&endless).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::CredentialExpired);
    assert!(
        workload.verifier.verify(&workload.sign(&claims()), TokenRole::Delegation).await.is_err()
    );
}

#[tokio::test]
async fn the_header_of_an_svid_has_three_members_at_most() {
    let workload = Workload::new();
    for (member, value, accepted) in [
        ("typ", json!("JWT"), true),
        ("typ", json!("JOSE"), true),
        ("typ", json!("at+jwt"), false),
        ("typ", json!("jwt"), false),
        ("cty", json!("JWT"), false),
        ("jwk", json!({}), false),
        ("alg", json!("none"), false),
        ("alg", json!("EdDSA"), false),
        ("alg", json!("HS256"), false),
        ("kid", json!("unknown"), false),
    ] {
        let mut header = header(&workload.signer);
        header[member] = value.clone();
        let token = workload.signer.sign_text(&header.to_string(), &claims().to_string());
        let verified = verify(&workload.verifier, &token).await;
        assert_eq!(verified.is_ok(), accepted, "{member}: {value}");
    }
    let mut untyped = header(&workload.signer);
    untyped.as_object_mut().unwrap().remove("typ");
    let token = workload.signer.sign_text(&untyped.to_string(), &claims().to_string());
    assert!(verify(&workload.verifier, &token).await.is_ok());
}

#[tokio::test]
async fn only_keys_for_jwt_svids_sign_them_and_only_for_their_own_domain() {
    let workload = Workload::new();
    let by_x509 =
        workload.other.sign_text(&header(&workload.other).to_string(), &claims().to_string());
    let refused = verify(&workload.verifier, &by_x509).await.unwrap_err();
    assert!(matches!(refused, IdentityError::UnknownKey { .. }), "{refused}");

    // Two domains with keys of one name: neither signs for the other.
    let (ours, theirs) = (Signer::es256("k"), Signer::es256("k"));
    let mut second = domain(bundle(&theirs, &Signer::es256("x")));
    second.trust_domain = "other.example".to_owned();
    second.workloads.principal_prefix = "other:".to_owned();
    let mut first = domain(bundle(&ours, &Signer::es256("x")));
    first.workloads.principal_prefix = "prod:".to_owned();
    let verifier = verifier_of(vec![first, second]);
    let forged = theirs.sign_text(&header(&theirs).to_string(), &claims().to_string());
    let refused = verify(&verifier, &forged).await.unwrap_err();
    assert!(matches!(refused, IdentityError::SignatureInvalid(_)), "{refused}");
    // `iss` chooses nothing: the subject's domain does.
    let mut named = with("iss", json!("spiffe://other.example"));
    named["sub"] = json!(AGENT);
    let forged = theirs.sign_text(&header(&theirs).to_string(), &named.to_string());
    assert!(verify(&verifier, &forged).await.is_err());
}

#[tokio::test]
async fn an_issuer_and_a_trust_domain_do_not_speak_for_each_other() {
    let (people, workloads) = (Signer::es256("k"), Signer::es256("k"));
    let config = IdentityConfig {
        issuers: vec![{
            let mut issuer = issuer(KeySource::Inline(key_set(&[&people])));
            issuer.shared_principals = true;
            issuer
        }],
        trust_domains: vec![domain(bundle(&workloads, &Signer::es256("x")))],
        ..IdentityConfig::default()
    };
    let verifier = Verifier::new(config, clock_at(NOW_S), None).unwrap();
    let svid = |signer: &Signer, claims: &Value| {
        signer.sign_text(&header(signer).to_string(), &claims.to_string())
    };
    assert!(verify(&verifier, &svid(&workloads, &claims())).await.is_ok());
    assert!(verify(&verifier, &svid(&people, &claims())).await.is_err(), "the issuer's key");
    // A token that names the issuer is checked by the issuer's rules.
    let named = with("iss", json!(ISSUER));
    assert!(verify(&verifier, &svid(&workloads, &named)).await.is_err());
    let mut user = super::support::claims();
    user["sub"] = json!("ada");
    assert!(verify(&verifier, &workloads.sign(&user)).await.is_err(), "the domain's key");
    assert!(verify(&verifier, &people.sign(&user)).await.is_ok());
}

#[test]
fn a_trust_domain_that_is_not_sound_is_refused() {
    let sound = || domain(bundle(&Signer::es256("k"), &Signer::es256("x")));
    let refused = |change: &dyn Fn(&mut TrustDomainConfig)| {
        let mut domain = sound();
        change(&mut domain);
        IdentityConfig { trust_domains: vec![domain], ..IdentityConfig::default() }.check().is_err()
    };
    assert!(!refused(&|_| {}));
    assert!(refused(&|d| d.trust_domain = "PROD.example".to_owned()));
    assert!(refused(&|d| d.audiences = BTreeSet::new()));
    assert!(refused(&|d| d.algorithms = vec![Algorithm::EdDsa]));
    assert!(refused(&|d| d.algorithms = Vec::new()));
    assert!(refused(&|d| d.lifetime_s_max = 0));
    assert!(refused(&|d| d.kind = PrincipalKind::User));
    assert!(refused(&|d| d.workloads = WorkloadNames::default()));
    assert!(refused(&|d| d.workloads.below = Some("agent".to_owned())));
    let bot = PrincipalId::new("bot").unwrap();
    assert!(refused(&|d| {
        d.workloads.names.insert("spiffe://other.example/a".to_owned(), bot.clone());
    }));
    let twice =
        IdentityConfig { trust_domains: vec![sound(), sound()], ..IdentityConfig::default() };
    assert!(twice.check().is_err());
    let mut people = issuer(KeySource::Inline(key_set(&[&Signer::es256("k")])));
    let both = |people| IdentityConfig {
        issuers: vec![people],
        trust_domains: vec![sound()],
        ..IdentityConfig::default()
    };
    assert!(both(people.clone()).check().is_err(), "both could name `bot`");
    people.principal_prefix = "idp:".to_owned();
    people.shared_principals = true;
    assert!(both(people).check().is_ok());
}
