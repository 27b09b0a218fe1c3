//! What a verified proof tells policies: how it was proved, whether that attests the workload, and which claims.

use placet_types::{principal::PrincipalKind, proof::AuthType};
use serde_json::{Value, json};

use super::support::{Signer, claims_with, config, issuer, key_set, verifier_of, verify};
use crate::{
    ActingRule, DevKey, IssuerConfig, KeySource, MintRequest, Presented, VerifiedCaller, Verifier,
};

fn issuer_of(signer: &Signer, change: impl FnOnce(&mut IssuerConfig)) -> Verifier {
    let mut issuer = issuer(KeySource::Inline(key_set(&[signer])));
    change(&mut issuer);
    verifier_of(vec![issuer])
}

fn of_kind(kind: &str) -> Value {
    claims_with("placet_kind", json!(kind))
}

async fn caller(verifier: &Verifier, token: &str) -> VerifiedCaller {
    let presented = Presented { token: Some(token), ..Presented::default() };
    verifier.caller(presented).await.unwrap()
}

#[tokio::test]
async fn a_plain_token_attests_a_workload_only_where_its_issuer_does() {
    let signer = Signer::es256("k1");
    for attests in [false, true] {
        let verifier = issuer_of(&signer, |issuer| issuer.attests_workloads = attests);
        let agent = verify(&verifier, &signer.sign(&of_kind("agent"))).await.unwrap();
        assert_eq!(agent.proof().auth_type, AuthType::Jwt);
        assert_eq!(agent.attests_workload(), attests);
        let user = verify(&verifier, &signer.sign(&of_kind("user"))).await.unwrap();
        assert!(!user.attests_workload(), "a person is no workload");
    }
}

#[tokio::test]
async fn an_actor_in_a_users_token_is_attested_by_the_issuer_alone() {
    let signer = Signer::es256("k1");
    for attests in [false, true] {
        let verifier = issuer_of(&signer, |issuer| {
            issuer.act = Some(ActingRule::default());
            issuer.attests_workloads = attests;
            issuer.policy_claims = ["tier".to_owned()].into();
        });
        let mut both = claims_with("act", json!({ "sub": "bot" }));
        both["tier"] = json!("gold");
        let proof = caller(&verifier, &signer.sign(&both)).await.proof();
        assert_eq!((proof.actor.auth_type, proof.attested), (AuthType::ActorClaim, attests));
        assert_eq!(proof.actor.subject, "bot");
        assert!(proof.actor.claims.is_empty(), "they are about the user");
        let user = proof.user.unwrap();
        assert_eq!(user.auth_type, AuthType::Jwt);
        assert!(user.claims["tier"].contains("gold") && user.scopes.contains("calls:read"));
    }
}

#[tokio::test]
async fn a_claim_for_policies_is_shown_whole_or_its_token_is_refused() {
    let signer = Signer::es256("k1");
    let verifier = issuer_of(&signer, |issuer| {
        issuer.policy_claims = ["tier".to_owned(), "jti".to_owned()].into()
    });
    let shown = async |value: Value| {
        let token = verify(&verifier, &signer.sign(&claims_with("tier", value))).await;
        token.map(|token| token.proof().claims)
    };
    let one = shown(json!("gold")).await.unwrap();
    assert_eq!(serde_json::to_value(&one).unwrap(), json!({ "tier": ["gold"], "jti": ["id-1"] }));
    let several = shown(json!(["gold", "blue", "gold"])).await.unwrap();
    assert_eq!(serde_json::to_value(&several).unwrap()["tier"], json!(["blue", "gold"]));
    let absent = shown(Value::Null).await.unwrap();
    assert!(!absent.contains_key("tier"));
    let hundred: Vec<String> = (0..100).map(|n| format!("t{n}")).collect();
    assert_eq!(shown(json!(hundred)).await.unwrap()["tier"].len(), 100);
    let more: Vec<String> = (0..101).map(|n| format!("t{n}")).collect();
    for value in [
        json!(more),
        json!("x".repeat(513)),
        json!(7),
        json!(true),
        json!({ "a": "b" }),
        json!(["gold", 7]),
    ] {
        let refused = shown(value.clone()).await.unwrap_err();
        assert!(refused.to_string().contains("tier"), "{value}: {refused}");
    }
    let mut many = issuer(KeySource::Inline(key_set(&[&signer])));
    many.policy_claims = (0..33).map(|n| format!("c{n}")).collect();
    assert!(config(vec![many]).check().is_err());
}

#[tokio::test]
async fn the_development_key_attests_and_says_what_it_is() {
    let key = DevKey::generate().unwrap();
    let (tenant, clock) =
        (super::support::tenant(), super::support::clock_at(super::support::NOW_S));
    let loopback = std::net::IpAddr::from([127, 0, 0, 1]);
    let audiences = ["placet".to_owned()].into();
    let verifier =
        verifier_of(vec![key.issuer_config(loopback, tenant.clone(), audiences).unwrap()]);
    let request = MintRequest::new(tenant, PrincipalKind::Agent, "bot".parse().unwrap(), "placet");
    let proof = caller(&verifier, &key.mint(&request, clock.as_ref()).unwrap()).await.proof();
    assert_eq!((proof.actor.auth_type, proof.attested), (AuthType::Development, true));
}
