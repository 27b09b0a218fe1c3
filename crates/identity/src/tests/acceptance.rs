//! The acceptance tests of inbound identity, each with its name in the security specification.

use placet_types::error::ErrorCode;
use serde_json::{Value, json};

use super::support::{
    ISSUER, NOW_S, Signer, claims, claims_with, issuer, key_set, verifier, verifier_of, verify,
};
use crate::{ActingRule, IdentityError, KeySource, Presented, TokenRole, VerifiedCaller};

async fn refusal_of(claims: &Value) -> IdentityError {
    let signer = Signer::es256("k1");
    verify(&verifier(&[&signer]), &signer.sign(claims)).await.unwrap_err()
}

#[tokio::test]
async fn id_token_is_not_an_access_token() {
    // An ID token's audience is the client. Even one that is also for us shows what it is by its type.
    let for_the_client = refusal_of(&claims_with("aud", json!("web-client"))).await;
    assert_eq!(for_the_client, IdentityError::AudienceRefused(ISSUER.to_owned()));
    let signer = Signer::es256("k1");
    let mut lenient = issuer(KeySource::Inline(key_set(&[&signer])));
    lenient.accept_typ_jwt = true;
    let header = json!({ "typ": "JWT", "alg": "ES256", "kid": "k1" }).to_string();
    for hash in ["nonce", "at_hash", "c_hash"] {
        let token = signer.sign_text(&header, &claims_with(hash, json!("x")).to_string());
        for verifier in [verifier(&[&signer]), verifier_of(vec![lenient.clone()])] {
            let refused = verify(&verifier, &token).await.unwrap_err();
            assert!(matches!(refused, IdentityError::TypeRefused { .. }), "{refused}");
            assert_eq!(refused.refusal().code, ErrorCode::Unauthenticated);
        }
    }
}

#[tokio::test]
async fn missing_aud_is_refused() {
    let refused = refusal_of(&claims_with("aud", Value::Null)).await;
    assert_eq!(refused, IdentityError::ClaimMissing("aud".to_owned()));
}

#[tokio::test]
async fn iss_array_is_refused() {
    for named in [json!([ISSUER]), json!(["https://evil.example/", ISSUER])] {
        let refused = refusal_of(&claims_with("iss", named)).await;
        assert!(matches!(&refused, IdentityError::ClaimRefused { claim, .. } if claim == "iss"));
    }
}

#[tokio::test]
async fn no_issuer_but_its_trust_domain_names_a_workload() {
    let refused = refusal_of(&claims_with("sub", json!("spiffe://prod.example/agent/bot"))).await;
    assert!(matches!(&refused, IdentityError::ClaimRefused { claim, .. } if claim == "sub"));
    assert_eq!(refused.refusal().code, ErrorCode::Unauthenticated);
}

#[tokio::test]
async fn future_iat_is_refused() {
    for ahead in [6, 3_600, 86_400 * 365] {
        let mut claims = claims_with("iat", json!(NOW_S + ahead));
        claims["exp"] = json!(NOW_S + ahead + 60);
        let refused = refusal_of(&claims).await;
        assert!(matches!(refused, IdentityError::NotYetValid { claim: "iat", .. }), "{refused}");
    }
}

#[tokio::test]
async fn empty_may_act_authorizes_nobody() {
    let signer = Signer::es256("k1");
    let mut rule = issuer(KeySource::Inline(key_set(&[&signer])));
    rule.act = Some(ActingRule::default());
    let verifier = verifier_of(vec![rule]);
    let mut agent = claims_with("sub", json!("bot"));
    agent["placet_kind"] = json!("agent");
    let agent = signer.sign(&agent);
    let with = |value: Value| claims_with("may_act", value);
    for (what, may_act) in [
        ("an empty map is vacuously true of everybody", json!({})),
        ("no object", json!("bot")),
        ("no object", json!(["bot"])),
        ("no object", json!(true)),
        ("a map of nothing", json!({ "sub": null })),
        ("an issuer alone", json!({ "iss": ISSUER })),
        ("another actor", json!({ "sub": "other" })),
        ("another actor of the same client", json!({ "sub": "other", "client_id": "bot" })),
        ("a condition nobody knows", json!({ "sub": "bot", "until": 1 })),
    ] {
        let two = signer.sign(&with(may_act.clone()));
        let presented =
            Presented { token: Some(&agent), delegation: Some(&two), certificate: None };
        assert!(verifier.caller(presented).await.is_err(), "{what}, as two tokens");
        let mut one = with(may_act);
        one["act"] = json!({ "sub": "bot" });
        let one = signer.sign(&one);
        let presented = Presented { token: Some(&one), ..Presented::default() };
        assert!(verifier.caller(presented).await.is_err(), "{what}, as one token");
    }
    // A token that the issuer did not sign authorises nobody, whatever it says.
    let stranger = Signer::es256("k1");
    let unverified = stranger.sign(&with(json!({ "sub": "bot" })));
    let presented =
        Presented { token: Some(&agent), delegation: Some(&unverified), certificate: None };
    assert!(verifier.caller(presented).await.is_err());
    let named = signer.sign(&with(json!({ "sub": "bot" })));
    let presented = Presented { token: Some(&agent), delegation: Some(&named), certificate: None };
    assert!(verifier.caller(presented).await.is_ok(), "the actor that it names may act");
}

#[tokio::test]
async fn keys_that_are_away_are_a_temporary_refusal_that_says_nothing_of_the_issuer() {
    let error = IdentityError::KeysUnavailable(ISSUER.to_owned());
    let refusal = error.refusal();
    assert_eq!((refusal.code, refusal.code.http_status()), (ErrorCode::IdentityUnavailable, 503));
    assert!(refusal.code.retryable() && refusal.retry_after_ms.is_some());
    assert!(!refusal.message.contains("idp.example"), "{}", refusal.message);
    assert!(refusal.detail.unwrap().contains(ISSUER), "the log says which");
}

#[tokio::test]
async fn claims_that_the_configuration_asks_for_must_be_there_with_one_of_their_values() {
    let signer = Signer::es256("k1");
    let mut rule = issuer(KeySource::Inline(key_set(&[&signer])));
    rule.required_claims.insert("jti".to_owned(), [].into());
    rule.required_claims.insert("tier".to_owned(), ["gold".to_owned(), "blue".to_owned()].into());
    let verifier = verifier_of(vec![rule]);
    for (tier, accepted) in [
        (json!("gold"), true),
        (json!(["red", "blue"]), true),
        (json!("red"), false),
        (json!(["red"]), false),
        (json!([]), false),
        (json!({ "gold": true }), false),
        (json!(1), false),
        (Value::Null, false),
    ] {
        let mut claims = claims();
        claims["tier"] = tier.clone();
        let verified = verify(&verifier, &signer.sign(&claims)).await;
        assert_eq!(verified.is_ok(), accepted, "{tier}");
        claims["jti"] = Value::Null;
        assert!(verify(&verifier, &signer.sign(&claims)).await.is_err(), "{tier} without jti");
    }
}

#[tokio::test]
async fn the_actor_is_never_the_users_own_subject() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let mut agent = claims();
    agent["placet_kind"] = json!("agent");
    let actor = verifier.verify(&signer.sign(&agent), TokenRole::Actor).await.unwrap();
    let user = verifier.verify(&signer.sign(&claims()), TokenRole::Delegation).await.unwrap();
    let refused = VerifiedCaller::bind(actor, Some(user)).unwrap_err();
    let problem = "the actor is the user's own subject";
    assert_eq!(refused, IdentityError::BindingRefused(problem));
}
