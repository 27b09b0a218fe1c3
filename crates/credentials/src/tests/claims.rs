//! What a token that can be read may say of itself.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD},
};
use placet_types::contract::credential::{ActorSource, CredentialKind};
use serde_json::{Value, json};

use super::support::{NOW, Service, good, good_but, jwt, request, with_scopes};
use crate::{BrokerError, GrantRequest, Leniency};

/// A valid token, with these claims replaced; `null` removes one.
fn but(others: &Value) -> String {
    let mut claims = json!({
        "aud": "urn:mail-api", "sub": "alice", "act": { "sub": "agent-1" }, "scope": "mail.read",
    });
    for (name, value) in others.as_object().unwrap() {
        claims.as_object_mut().unwrap().remove(name);
        if !value.is_null() {
            claims[name] = value.clone();
        }
    }
    jwt(&claims)
}

async fn asked(
    others: &Value,
    leniency: Option<Leniency>,
    request: GrantRequest,
) -> Result<Option<i64>, BrokerError> {
    let mut answer = good();
    answer["access_token"] = json!(but(others));
    let service = Service::answering(200, answer).await;
    let mut config = service.config();
    config.lenient = leniency.into_iter().collect();
    let grant = service.broker_with(config).0.mint(request).await?;
    Ok(grant.used().expires_at.map(|at| at.since_ms(NOW)))
}

/// That such a token is refused, and why.
async fn refuses(others: Value, why: &'static str) {
    let refused = asked(&others, None, request()).await;
    assert_eq!(refused, Err(BrokerError::AnswerRefused(why)), "{others}");
}

/// That the times of such a token are of no use, and why.
async fn cannot_use(others: Value, why: &'static str) {
    let refused = asked(&others, None, request()).await;
    assert_eq!(refused, Err(BrokerError::AnswerUnusable(why)), "{others}");
}

async fn takes(others: Value) -> Option<i64> {
    let taken = asked(&others, None, request()).await;
    taken.unwrap_or_else(|error| panic!("{others}: {error}"))
}

#[tokio::test]
async fn a_scope_in_any_claim_is_a_scope_of_the_token() {
    let wider = "the token has more scopes than were asked for";
    for claim in ["scp", "scopes"] {
        // With a `scope` that matches the request, and without it.
        refuses(json!({ claim: ["admin"] }), wider).await;
        refuses(json!({ claim: "mail.read admin" }), wider).await;
        refuses(json!({ "scope": null, claim: ["mail.read admin"] }), wider).await;
        refuses(json!({ claim: 7 }), "the token's scope is no text").await;
        refuses(json!({ claim: [["admin"]] }), "the token's scope is no text").await;
        takes(json!({ claim: ["mail.read"] })).await;
        takes(json!({ "scope": null, claim: "mail.read" })).await;
        // The needed scopes may be in either.
        takes(json!({ "scope": "", claim: ["mail.read"] })).await;
        let narrow = asked(&json!({ "scope": "", claim: [] }), None, request()).await;
        assert_eq!(narrow, Err(BrokerError::TooNarrow));
    }
    let both = with_scopes("mail.read mail.labels", "mail.read");
    asked(&json!({ "scp": ["mail.labels"] }), None, both).await.unwrap();
    // What somebody is, is not a grant.
    takes(json!({ "roles": ["admin"], "groups": ["staff"] })).await;
    // It is the same for a token of our own.
    let own = || GrantRequest { kind: CredentialKind::ClientCredentials, ..request() };
    let refused = asked(&json!({ "scp": ["admin"] }), None, own()).await;
    assert_eq!(refused, Err(BrokerError::AnswerRefused(wider)));
}

#[tokio::test]
async fn only_the_target_accepts_what_is_minted_for_it() {
    let too = "the token is for other audiences too";
    let other = "the token is for another audience";
    for (aud, why) in [
        (json!(["urn:mail-api", "urn:payments"]), too),
        (json!(["urn:payments", "urn:mail-api"]), too),
        (json!(["urn:mail-api", "URN:MAIL-API"]), too),
        (json!(["urn:mail-api", 7]), other),
        (json!(["urn:mail-api", null]), other),
        (json!(vec!["urn:mail-api"; 65]), other),
        (json!([]), other),
        (json!(["urn:payments"]), other),
        // The resource, which was not asked for.
        (json!(["urn:mail-api", "https://mail.example/api"]), too),
    ] {
        refuses(json!({ "aud": aud }), why).await;
        let others = json!({ "aud": aud });
        asked(&others, Some(Leniency::Audience), request()).await.unwrap();
        let own = GrantRequest { kind: CredentialKind::ClientCredentials, ..request() };
        let refused = asked(&others, None, own).await;
        assert_eq!(refused, Err(BrokerError::AnswerRefused(why)), "{aud}");
    }
    takes(json!({ "aud": ["urn:mail-api"] })).await;
    takes(json!({ "aud": ["urn:mail-api", "urn:mail-api"] })).await;
    // Two names of one target.
    let resource = Some("https://mail.example/api".to_owned());
    let named = || GrantRequest { resource: resource.clone(), ..request() };
    for aud in [
        json!(["https://mail.example/api", "urn:mail-api"]),
        json!("https://mail.example/api"),
        json!("urn:mail-api"),
    ] {
        asked(&json!({ "aud": aud }), None, named()).await.unwrap();
    }
    let third = json!({ "aud": ["https://mail.example/api", "urn:mail-api", "urn:payments"] });
    let refused = asked(&third, None, named()).await;
    assert_eq!(refused, Err(BrokerError::AnswerRefused(too)));
}

#[tokio::test]
async fn an_actor_is_one_of_its_own_issuer() {
    let foreign = "the token names an actor of another issuer";
    let act = |issuer: Value| json!({ "act": { "sub": "agent-1", "iss": issuer } });
    for issuer in [json!("https://evil.example"), json!(""), json!(7), json!(null), json!([])] {
        refuses(act(issuer), foreign).await;
    }
    // By the agent's issuer, and by the service.
    takes(act(json!("https://idp.example"))).await;
    takes(act(json!("https://sts.example"))).await;
    let lenient = Some(Leniency::Actor);
    let refused = asked(&act(json!("https://evil.example")), lenient, request()).await;
    assert_eq!(
        refused,
        Err(BrokerError::AnswerRefused(foreign)),
        "let off naming who acts, not naming somebody else"
    );
    let nobody = GrantRequest { actor: ActorSource::Nobody, ..request() };
    assert!(asked(&json!({ "act": null }), None, nobody).await.is_ok());
}

#[tokio::test]
async fn the_times_of_a_token_are_read_or_it_is_refused() {
    let now = NOW.as_ms() / 1_000;
    let unread = "a time of the token cannot be read";
    for claim in ["exp", "nbf", "iat"] {
        let texts = [json!("9999999999"), json!(true), json!({}), json!([now]), json!("")];
        let numbers = [json!(-5), json!(-0.5), json!(1e300)];
        for value in texts.into_iter().chain(numbers) {
            cannot_use(json!({ claim: value }), unread).await;
        }
        // Without it, the answer says how long.
        assert_eq!(takes(json!({ claim: null })).await, Some(105_000));
    }
    for past in [json!(now - 5), json!(now), json!(now + 15), json!(0)] {
        cannot_use(json!({ "exp": past }), "its time is as good as over").await;
    }
    assert_eq!(takes(json!({ "exp": now + 60 })).await, Some(45_000));
    let fraction: Value = serde_json::from_str(&format!("{}.75", now + 60)).unwrap();
    assert_eq!(takes(json!({ "exp": fraction })).await, Some(45_000), "whole seconds count");
    let early = "the token's time has not begun";
    for future in [now + 6, now + 3_600] {
        cannot_use(json!({ "nbf": future }), early).await;
    }
    for begun in [now + 5, now, 0] {
        takes(json!({ "nbf": begun })).await;
    }
    // Nobody has to believe when it was issued.
    takes(json!({ "iat": now + 3_600 })).await;
}

#[tokio::test]
async fn a_token_that_began_while_it_was_on_its_way_has_begun() {
    use super::support::Act;
    let begins = NOW.as_ms() / 1_000 + 9;
    let mut answer = good();
    answer["access_token"] = json!(but(&json!({ "nbf": begins })));
    let body = answer.to_string();
    let service = Service::start(move |_, _| Act::Late(300, body.clone())).await;
    let (broker, clock) = service.broker();
    let asking = tokio::spawn(async move { broker.mint(request()).await });
    while service.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    clock.advance(9_000);
    let grant = asking.await.unwrap().unwrap();
    assert_eq!(grant.expires_at(), NOW.plus_ms(105_000), "how long it is used counts from before");
}

/// A token with this head, as it stands there, for another target and with other scopes.
fn headed(head: &str) -> String {
    let claims = json!({ "aud": "urn:evil", "sub": "mallory", "scope": "admin" });
    format!("{head}.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

#[tokio::test]
async fn a_token_in_an_odd_encoding_is_not_taken_for_an_opaque_one() {
    let plain = |head: &str| URL_SAFE_NO_PAD.encode(head);
    let head = r#"{"alg":"ES256","kid":"k1"}"#;
    // A letter that the two alphabets write differently.
    let other = STANDARD_NO_PAD.encode(r#"{"alg":"ES256","x":"???>>>"}"#);
    assert!(other.contains(['+', '/']), "{other}");
    let one = plain(head);
    let (front, back) = one.split_at(4);
    let mixed = format!("{front}~{back}");
    let mut bits = one.clone();
    // Of the last letter's six bits two are not used.
    assert_eq!((bits.len() % 4, bits.pop()), (3, Some('0')));
    for head in [
        format!("{one}="),
        format!("{one}=="),
        other,
        mixed,
        format!("{bits}1"),
        plain(r#"{"alg":"ES256","alg":"ES256"}"#),
        plain(&format!(" \n{head}")) + "=",
        plain("{\n        \"alg\": \"ES256\"}") + "=",
        plain(&format!("\u{feff}{head}")),
        plain(r#"{"alg":"ES256",}"#),
    ] {
        let service = Service::answering(200, good_but("access_token", headed(&head).into())).await;
        let mut config = service.config();
        config.lenient = [Leniency::Audience, Leniency::Subject, Leniency::Actor].into();
        let refused = service.broker_with(config).0.mint(request()).await.map(|grant| grant.used());
        let problem = "the token cannot be read";
        assert_eq!(refused, Err(BrokerError::AnswerRefused(problem)), "{head}");
    }
    // More or fewer parts than a signed token has.
    for token in [headed(&one) + ".", headed(&one) + ".x.y", headed(&one).replace(".c2ln", "")] {
        let service = Service::answering(200, good_but("access_token", json!(token))).await;
        let refused = service.broker().0.mint(request()).await.unwrap_err();
        assert!(matches!(refused, BrokerError::AnswerRefused(_)), "{token}: {refused:?}");
    }
    // What no reader takes for a signed token, and what only its target can read.
    let encrypted = plain(r#"{"alg":"RSA-OAEP-256","enc":"A256GCM"}"#) + ".a2V5.aXY.dGV4dA.dGFn";
    let session = plain(r#"{"session":7}"#) + ".Zm9v.YmFy";
    for token in [encrypted, session, "e2e.opaque.words".to_owned(), "eyw.a.b".to_owned()] {
        let service = Service::answering(200, good_but("access_token", json!(token))).await;
        assert!(service.broker().0.mint(request()).await.is_ok(), "{token}");
    }
}
