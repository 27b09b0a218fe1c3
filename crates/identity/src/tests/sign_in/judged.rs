//! What an issuer's configuration asks of every token, it asks of the ID token of a sign-in.

use std::collections::BTreeSet;

use placet_types::ids::PrincipalId;

use super::*;
use crate::{IdentityError, config::KIND_CLAIM};

fn missing(claim: &str) -> Result<(), SignInError> {
    Err(SignInError::Identity(IdentityError::ClaimMissing(claim.to_owned())))
}

fn refused(claim: &str, problem: &'static str) -> Result<(), SignInError> {
    Err(SignInError::Identity(IdentityError::ClaimRefused { claim: claim.to_owned(), problem }))
}

#[tokio::test]
async fn a_sign_in_without_the_claims_that_every_token_must_have_is_refused() {
    let world = World::new(|_, issuer| {
        issuer.required_claims.insert("amr".to_owned(), BTreeSet::from(["mfa".to_owned()]));
        issuer.required_claims.insert("acr".to_owned(), BTreeSet::new());
    })
    .await;
    let none_of_them = "it is none of the required values";
    for (amr, acr, expected) in [
        (Value::Null, json!("2"), missing("amr")),
        (json!(["mfa"]), Value::Null, missing("acr")),
        (json!(["pwd"]), json!("2"), refused("amr", none_of_them)),
        (json!("mfa sms"), json!("2"), refused("amr", none_of_them)),
        (json!(["pwd", "mfa"]), json!("2"), Ok(())),
        (json!("mfa"), json!("2"), Ok(())),
    ] {
        let found = world.sign_in(false, |claims| {
            (claims["amr"], claims["acr"]) = (amr.clone(), acr.clone());
        });
        assert_eq!(found.await.map(drop), expected, "{amr} {acr}");
    }
}

#[tokio::test]
async fn a_sign_in_is_a_persons_where_the_token_says_of_what_kind_it_is() {
    let kinds = [PrincipalKind::User, PrincipalKind::Agent];
    let world = World::new(|_, issuer| issuer.kinds = KindRule::Claim(kinds.into())).await;
    for (kind, expected) in [
        (json!("agent"), refused(KIND_CLAIM, "only a person can sign in")),
        (json!("service"), refused(KIND_CLAIM, "the issuer may not assert this kind of principal")),
        (Value::Null, refused(KIND_CLAIM, "it must be a string of at most 512 bytes")),
        (json!("user"), Ok(())),
    ] {
        let found = world.sign_in(false, |claims| claims[KIND_CLAIM] = kind.clone()).await;
        assert_eq!(found.map(drop), expected, "{kind}");
    }
    assert_eq!(world.sign_in(false, |_| {}).await.map(drop), missing(KIND_CLAIM));
}

#[test]
fn people_sign_in_with_no_agents_client() {
    let keys = KeySource::Inline(json!({ "keys": [] }));
    let kinds = KindRule::Fixed(PrincipalKind::User);
    let audiences = ["us".to_owned()].into();
    let mut people = IssuerConfig::new("https://idp.example", tenant(), audiences, keys, kinds);
    let config: SignInConfig =
        serde_json::from_value(json!({ "issuer": "https://idp.example", "client_id": CLIENT }))
            .unwrap();
    assert!(config.check(std::slice::from_ref(&people)).is_ok());
    people.clients.insert(CLIENT.to_owned(), PrincipalId::new("bot").unwrap());
    let refused = config.check(&[people]).unwrap_err().to_string();
    assert!(refused.contains("stands for an agent"), "{refused}");
}
