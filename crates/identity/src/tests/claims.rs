//! How the claims of a properly signed token are interpreted, and which of that the configuration decides.

use std::sync::Arc;

use placet_testkit::clock::TestClock;
use placet_types::{error::ErrorCode, principal::PrincipalKind};
use serde_json::{Value, json};

use super::support::{
    ISSUER, NOW_S, Signer, claims, claims_with, clock_at, config, issuer, key_set, verifier,
    verifier_of, verify,
};
use crate::{IdentityError, KeySource, KindRule, TokenRole, Verifier};

#[tokio::test]
async fn only_users_delegate_and_a_delegated_token_is_not_a_callers_own() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let agent = signer.sign(&claims_with("placet_kind", json!("agent")));
    assert!(verifier.verify(&agent, TokenRole::Delegation).await.is_err());
    let delegated = signer.sign(&claims_with("act", json!({ "sub": "bot" })));
    assert!(verifier.verify(&delegated, TokenRole::Delegation).await.is_ok());
    let refused = verifier.verify(&delegated, TokenRole::Actor).await.unwrap_err();
    assert!(matches!(refused, IdentityError::ClaimRefused { claim, .. } if claim == "act"));
}

#[tokio::test]
async fn an_actor_claim_that_is_not_understood_is_refused() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let mut chain = json!({ "sub": "first" });
    for _ in 0..9 {
        chain = json!({ "sub": "next", "act": chain });
    }
    let ten = signer.sign(&claims_with("act", chain.clone()));
    assert!(verifier.verify(&ten, TokenRole::Delegation).await.is_ok());
    for (claim, value) in [
        ("act", json!({ "sub": "next", "act": chain })),
        ("act", json!("bot")),
        ("act", json!({})),
        ("act", json!({ "sub": "" })),
        ("act", json!({ "sub": "bot", "act": [] })),
        ("act", json!({ "sub": "bot", "note": "x".repeat(8_200) })),
        ("may_act", json!({})),
        ("may_act", json!("bot")),
        ("may_act", json!([{ "sub": "bot" }])),
        ("may_act", json!({ "sub": "bot", "only_on": "sundays" })),
        ("may_act", json!({ "iss": ISSUER })),
    ] {
        let token = signer.sign(&claims_with(claim, value.clone()));
        let refused = verifier.verify(&token, TokenRole::Delegation).await;
        assert!(refused.is_err(), "{claim} = {value}");
    }
}

#[tokio::test]
async fn groups_that_are_elsewhere_are_not_taken_for_none() {
    let mut elsewhere = claims_with("groups", Value::Null);
    assert!(verify_one(&elsewhere).await.is_ok_and(|token| token.groups().is_empty()));
    elsewhere["_claim_names"] = json!({ "groups": "src1" });
    assert!(verify_one(&elsewhere).await.is_err());
    let odd = claims_with("groups", json!(["ops", "Domain Users", "/admins", ""]));
    let token = verify_one(&odd).await.unwrap();
    assert_eq!(token.groups().iter().map(|g| g.as_str()).collect::<Vec<_>>(), ["ops"]);
    let many: Vec<String> = (0..1_001).map(|n| format!("g{n}")).collect();
    assert!(verify_one(&claims_with("groups", json!(many))).await.is_err());
}

async fn verify_one(claims: &Value) -> Result<crate::VerifiedToken, IdentityError> {
    let signer = Signer::es256("k1");
    verify(&verifier(&[&signer]), &signer.sign(claims)).await
}

#[tokio::test]
async fn the_configuration_decides_the_principals_name_kind_and_age() {
    let signer = Signer::es256("k1");
    let mut issuer = issuer(KeySource::Inline(key_set(&[&signer])));
    issuer.principal_claim = "email".to_owned();
    issuer.principal_prefix = "corp:".to_owned();
    issuer.kinds = KindRule::Fixed(PrincipalKind::User);
    issuer.auth_age_s_max = Some(100);
    let verifier = verifier_of(vec![issuer]);
    let mut claims = claims();
    claims["email"] = json!("ada@corp.example");
    claims["auth_time"] = json!(NOW_S - 104);
    claims["placet_kind"] = json!("agent");
    let token = verify(&verifier, &signer.sign(&claims)).await.unwrap();
    assert_eq!(
        (token.principal().id.as_str(), token.kind()),
        ("corp:ada@corp.example", PrincipalKind::User)
    );
    claims["auth_time"] = json!(NOW_S - 105);
    let refused = verify(&verifier, &signer.sign(&claims)).await.unwrap_err();
    assert_eq!(refused.code(), ErrorCode::CredentialExpired);
    claims.as_object_mut().unwrap().remove("auth_time");
    assert!(verify(&verifier, &signer.sign(&claims)).await.is_err());
    claims["auth_time"] = json!(NOW_S);
    claims["email"] = json!("ada lovelace");
    assert!(verify(&verifier, &signer.sign(&claims)).await.is_err());
}

#[tokio::test]
async fn a_token_expires_while_the_verifier_runs() {
    let signer = Signer::es256("k1");
    let clock = clock_at(NOW_S);
    let issuers = vec![issuer(KeySource::Inline(key_set(&[&signer])))];
    let verifier = Verifier::new(config(issuers), Arc::<TestClock>::clone(&clock), None).unwrap();
    let token = signer.sign(&claims());
    assert!(verify(&verifier, &token).await.is_ok());
    clock.set((NOW_S + 305) * 1_000);
    assert_eq!(verify(&verifier, &token).await.unwrap_err().code(), ErrorCode::CredentialExpired);
    clock.set((NOW_S - 600) * 1_000);
    assert_eq!(verify(&verifier, &token).await.unwrap_err().code(), ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn the_handle_of_a_token_is_its_own() {
    let first = verify_one(&claims()).await.unwrap().token_ref();
    assert_eq!(verify_one(&claims()).await.unwrap().token_ref(), first);
    assert_ne!(verify_one(&claims_with("jti", json!("id-2"))).await.unwrap().token_ref(), first);
    assert_ne!(verify_one(&claims_with("jti", Value::Null)).await.unwrap().token_ref(), first);
    assert!(first.strip_prefix("tok_").unwrap().bytes().all(|b| b.is_ascii_hexdigit()));
}

#[tokio::test]
async fn two_names_for_the_client_must_be_the_same() {
    let mut both = claims_with("client_id", json!("web"));
    both["azp"] = json!("web");
    assert_eq!(verify_one(&both).await.unwrap().client(), Some("web"));
    both["azp"] = json!("other");
    assert!(verify_one(&both).await.is_err());
}
