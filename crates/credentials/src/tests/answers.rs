//! What is accepted of an answer, check by check.

use placet_types::{contract::credential::ActorSource, error::ErrorCode};
use serde_json::{Value, json};

use super::support::{
    NOW, ORIGIN, Service, good, good_but, jwt, request, token, tokens, with_scopes,
};
use crate::{Broker, BrokerError, CallTokens, GrantRequest, Leniency, Remedy};

async fn minted(answer: Value) -> Result<crate::Grant, BrokerError> {
    minted_for(answer, request()).await
}

async fn minted_for(answer: Value, request: GrantRequest) -> Result<crate::Grant, BrokerError> {
    let service = Service::answering(200, answer).await;
    service.broker().0.mint(request).await
}

fn problem(result: Result<crate::Grant, BrokerError>) -> &'static str {
    match result {
        Err(BrokerError::AnswerRefused(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

/// What is wrong with the form or the times of an answer; it is no fault of the call's.
fn fault(result: Result<crate::Grant, BrokerError>) -> &'static str {
    match result {
        Err(BrokerError::AnswerUnusable(problem)) => problem,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn scope_may_narrow_never_widen() {
    let wide = good_but("scope", json!("mail.read mail.send"));
    assert_eq!(problem(minted(wide).await), "it grants more than was asked for");
    // Not even a scope that means the same.
    for scope in ["mail.read MAIL.READ", "mail.read *", "mail.send"] {
        assert!(minted(good_but("scope", json!(scope))).await.is_err(), "{scope}");
    }
    let wanted = || with_scopes("mail.read mail.labels", "mail.read");
    let grant = minted_for(good(), wanted()).await.unwrap();
    assert_eq!(grant.used().scopes, ["mail.read"]);
    // A missing `scope` means the requested ones.
    let grant = minted_for(good_but("scope", Value::Null), wanted()).await.unwrap();
    assert_eq!(grant.used().scopes, ["mail.labels", "mail.read"]);
    let narrow = minted_for(good_but("scope", json!("mail.labels")), wanted()).await;
    assert_eq!(narrow.unwrap_err(), BrokerError::TooNarrow);
    let narrow = minted_for(good_but("scope", json!("")), wanted()).await.unwrap_err();
    assert_eq!(narrow.refusal().code, ErrorCode::CredentialRefused);
}

#[tokio::test]
async fn a_token_that_is_wider_than_its_answer_says_is_refused() {
    let of = |scope: Value| {
        let claims = json!({
            "aud": "urn:mail-api", "sub": "alice", "act": { "sub": "agent-1" }, "scope": scope
        });
        let mut answer: Value =
            serde_json::from_str(&good_but("access_token", json!(jwt(&claims))).to_string())
                .unwrap();
        answer.as_object_mut().unwrap().remove("scope");
        minted(answer)
    };
    let wider = "the token has more scopes than were asked for";
    assert_eq!(problem(of(json!("mail.read mail.send")).await), wider);
    assert_eq!(problem(of(json!(["mail.read", "mail.send"])).await), wider);
    assert_eq!(problem(of(json!(7)).await), "the token's scope is no text");
    let partly = json!([{ "mail": "send" }, "mail.read"]);
    assert_eq!(problem(of(partly).await), "the token's scope is no text", "no word is left out");
    assert_eq!(of(json!("")).await.unwrap_err(), BrokerError::TooNarrow);
    assert!(of(json!("mail.read")).await.is_ok());
}

#[tokio::test]
async fn the_record_names_no_scope_that_the_token_says_it_lacks() {
    let of = |said: Value, own: Value| {
        let claims = json!({
            "aud": "urn:mail-api", "sub": "alice", "act": { "sub": "agent-1" }, "scope": own
        });
        let mut answer = good_but("scope", said);
        answer["access_token"] = json!(jwt(&claims));
        minted_for(answer, with_scopes("mail.read mail.labels", "mail.read"))
    };
    let both = json!("mail.read mail.labels");
    for (said, own) in [
        (Value::Null, json!("mail.read")),
        (both.clone(), json!(["mail.read"])),
        (json!("mail.read"), both.clone()),
    ] {
        let grant = of(said.clone(), own.clone()).await.unwrap();
        assert_eq!(grant.used().scopes, ["mail.read"], "{said} {own}");
    }
    assert_eq!(of(Value::Null, both).await.unwrap().used().scopes, ["mail.labels", "mail.read"]);
}

#[tokio::test]
async fn faults_of_form_and_time_are_for_operators_and_what_was_asked_for_is_final() {
    let claims = json!({ "aud": "urn:mail-api", "sub": "alice", "act": { "sub": "agent-1" } });
    let with = |name: &str, value: Value| {
        let mut claims = claims.clone();
        claims[name] = value;
        good_but("access_token", json!(jwt(&claims)))
    };
    let now = NOW.as_ms() / 1_000;
    for (answer, why) in [
        (json!({}), "it holds no token"),
        (json!({ "error": "invalid_grant" }), "it holds no token"),
        (good_but("expires_in", json!("300")), "its `expires_in` is no number"),
        (good_but("expires_in", json!(0)), "its `expires_in` is no time"),
        (good_but("scope", json!(7)), "its scope is no text"),
        (with("nbf", json!(now + 7)), "the token's time has not begun"),
        (with("exp", json!(now + 10)), "its time is as good as over"),
        (with("exp", json!("soon")), "a time of the token cannot be read"),
    ] {
        let error = minted(answer).await.unwrap_err();
        assert_eq!(error, BrokerError::AnswerUnusable(why));
        assert_eq!(error.remedy(), Remedy::Operator, "{why}");
        assert!(error.for_operators().is_some(), "{why}");
    }
    for answer in [
        with("aud", json!("urn:evil")),
        with("sub", json!("mallory")),
        with("act", json!({ "sub": "mallory" })),
        with("scope", json!("admin")),
        good_but("access_token", json!(super::support::USER_TOKEN)),
    ] {
        let error = minted(answer).await.unwrap_err();
        assert!(matches!(error, BrokerError::AnswerRefused(_)), "{error:?}");
        assert_eq!(error.remedy(), Remedy::None, "{error:?}");
    }
}

#[tokio::test]
async fn wrong_issued_type_is_refused() {
    for kind in [
        json!("urn:ietf:params:oauth:token-type:refresh_token"),
        json!("urn:ietf:params:oauth:token-type:id_token"),
        json!("urn:ietf:params:oauth:token-type:id-jag"),
        json!("access_token"),
        json!(7),
        Value::Null,
    ] {
        let refused = fault(minted(good_but("issued_token_type", kind.clone())).await);
        assert_eq!(refused, "the token is not of the type that was asked for", "{kind}");
    }
    let service = Service::answering(200, good_but("issued_token_type", Value::Null)).await;
    let mut config = service.config();
    config.lenient = [Leniency::IssuedType].into();
    let (broker, _) = service.broker_with(config.clone());
    // Counted once, by the call that it was minted for.
    assert!(broker.mint(request()).await.unwrap().is_untyped());
    assert!(!broker.mint(request()).await.unwrap().is_untyped());
    assert!(!minted(good()).await.unwrap().is_untyped());
    // It may leave the type out, but not state another.
    let other = good_but("issued_token_type", json!("urn:ietf:params:oauth:token-type:jwt"));
    let service = Service::answering(200, other).await;
    config.token_endpoint = service.config().token_endpoint;
    assert!(service.broker_with(config).0.mint(request()).await.is_err());
}

#[tokio::test]
async fn na_token_type_is_not_forwarded() {
    for kind in
        [json!("N_A"), json!("DPoP"), json!("mac"), json!(""), json!(null), json!(["Bearer"])]
    {
        let refused = fault(minted(good_but("token_type", kind.clone())).await);
        assert_eq!(refused, "the token is not of the type `Bearer`", "{kind}");
    }
    assert!(minted(good_but("token_type", json!("bearer"))).await.is_ok());
}

#[tokio::test]
async fn what_is_no_token_is_refused() {
    let long = "x".repeat(32 * 1024 + 1);
    for text in
        [json!(""), json!(null), json!(7), json!("two words"), json!("a\r\nb: c"), json!(long)]
    {
        assert_eq!(fault(minted(good_but("access_token", text)).await), "it holds no token");
    }
}

#[tokio::test]
async fn subject_expiry_caps_the_grant() {
    // It ends with whichever token ends first, here the agent's.
    let agent = |lifetime_ms| CallTokens {
        actor: Some(token("agent", "agent-1", lifetime_ms)),
        ..tokens()
    };
    let of_agent = || GrantRequest { tokens: Some(agent(40_000)), ..request() };
    let grant = minted_for(good_but("expires_in", json!(3_600)), of_agent()).await.unwrap();
    assert_eq!(grant.expires_at(), NOW.plus_ms(25_000), "15 s before the agent's token ends");
    for lifetime_ms in [-1, 0, 1, 15_000] {
        let of_agent = GrantRequest { tokens: Some(agent(lifetime_ms)), ..request() };
        let refused = minted_for(good(), of_agent).await;
        assert_eq!(refused.unwrap_err(), BrokerError::SubjectExpired, "{lifetime_ms}");
    }
    // A token that is not presented does not matter.
    let unseen = GrantRequest { tokens: Some(agent(1)), actor: ActorSource::Nobody, ..request() };
    let grant = minted_for(good(), unseen).await.unwrap();
    assert_eq!(grant.expires_at(), NOW.plus_ms(105_000));
    let short = CallTokens { subject: token("short", "alice", 40_000), ..tokens() };
    let wanted = || GrantRequest { tokens: Some(short.clone()), ..request() };
    let grant = minted_for(good_but("expires_in", json!(3_600)), wanted()).await.unwrap();
    assert_eq!(grant.expires_at(), NOW.plus_ms(25_000), "15 s before the caller's token ends");
    let grant = minted(good_but("expires_in", json!(3_600))).await.unwrap();
    assert_eq!(grant.expires_at(), NOW.plus_ms(285_000), "five minutes at most");
    let grant = minted(good_but("expires_in", Value::Null)).await.unwrap();
    assert_eq!(grant.expires_at(), NOW.plus_ms(45_000), "a minute where nothing is said");
    let exp = NOW.as_ms() / 1_000 + 30;
    let claims =
        json!({ "aud": "urn:mail-api", "sub": "alice", "act": { "sub": "agent-1" }, "exp": exp });
    let grant = minted(good_but("access_token", json!(jwt(&claims)))).await.unwrap();
    assert_eq!(grant.expires_at(), NOW.plus_ms(15_000), "what the token itself says");
    for lifetime in [json!(0), json!(-1), json!(10), json!("120"), json!(1.5)] {
        assert!(minted(good_but("expires_in", lifetime.clone())).await.is_err(), "{lifetime}");
    }
    for lifetime_ms in [-1, 0, 15_000] {
        let over = CallTokens { subject: token("over", "alice", lifetime_ms), ..tokens() };
        let refused = minted_for(good(), GrantRequest { tokens: Some(over), ..request() }).await;
        assert_eq!(refused.unwrap_err(), BrokerError::SubjectExpired);
    }
}

#[tokio::test]
async fn a_token_that_can_be_read_may_not_contradict_what_was_asked_for() {
    let right = json!({ "aud": ["urn:mail-api"], "sub": "alice", "act": { "sub": "agent-1", "act": { "sub": "before" } } });
    let token = |claims: &Value| good_but("access_token", json!(jwt(claims)));
    assert!(minted(token(&right)).await.is_ok());
    let but = |name: &str, value: Value| {
        let mut claims = right.clone();
        claims.as_object_mut().unwrap().remove(name);
        if !value.is_null() {
            claims[name] = value;
        }
        token(&claims)
    };
    let deep = json!({ "sub": "agent-1", "x": "y".repeat(9_000) });
    for (answer, leniency, why) in [
        (but("aud", json!("urn:files-api")), Some(Leniency::Audience), "another audience"),
        (but("aud", json!(7)), Some(Leniency::Audience), "an audience that is none"),
        (but("aud", Value::Null), Some(Leniency::Audience), "no audience"),
        (but("sub", json!("bob")), Some(Leniency::Subject), "another subject"),
        (but("sub", Value::Null), Some(Leniency::Subject), "no subject"),
        (but("act", Value::Null), Some(Leniency::Actor), "no actor"),
        (but("act", json!({ "sub": "agent-2" })), None, "another actor"),
        (but("act", json!({})), None, "an actor without a name"),
        (but("act", deep), None, "an actor that is too large"),
    ] {
        problem(minted(answer.clone()).await);
        let service = Service::answering(200, answer).await;
        let mut config = service.config();
        config.lenient = leniency.into_iter().collect();
        let lenient = service.broker_with(config).0.mint(request()).await;
        assert_eq!(lenient.is_ok(), leniency.is_some(), "{why}");
    }
    let unreadable = good_but("access_token", json!("eyJhbGciOiJFUzI1NiJ9.bm8ganNvbg.c2ln"));
    assert_eq!(problem(minted(unreadable).await), "the token cannot be read");
    assert!(minted(good_but("access_token", json!("three.opaque.words"))).await.is_ok());
    let nobody = GrantRequest { actor: ActorSource::Nobody, ..request() };
    assert_eq!(problem(minted_for(token(&right), nobody).await), "the token names an actor");
}

#[tokio::test]
async fn grant_for_host_a_is_refused_at_host_b() {
    let grant = minted(good()).await.unwrap();
    assert!(grant.value_for(ORIGIN, NOW).is_ok());
    for origin in [
        "https://mail.example:8443",
        "http://mail.example:443",
        "https://mail.example.evil:443",
        "https://files.example:443",
        "",
    ] {
        assert_eq!(grant.value_for(origin, NOW).unwrap_err(), BrokerError::OtherHost, "{origin}");
    }
    assert_eq!(
        grant.value_for(ORIGIN, NOW.plus_ms(200_000)).unwrap_err(),
        BrokerError::GrantExpired
    );
}

#[tokio::test]
async fn the_record_says_which_credential_it_was_without_it() {
    let grant = minted(good()).await.unwrap();
    let used = grant.used();
    assert_eq!((used.subject.as_deref(), used.actor.as_deref()), (Some("alice"), Some("agent-1")));
    assert_eq!(used.audience.as_deref(), Some("urn:mail-api"));
    assert_eq!(used.digest, Some(placet_types::digest::Digest::of(b"minted-token-1")));
    assert_eq!(used.expires_at, Some(NOW.plus_ms(105_000)));
    assert!(!serde_json::to_string(&used).unwrap().contains("minted-token-1"));
}

#[tokio::test]
async fn a_service_that_is_not_configured_mints_nothing() {
    let service = Service::answering(200, good()).await;
    let (broker, _): (Broker, _) = service.broker();
    let refused = broker.mint(GrantRequest { service: "other".to_owned(), ..request() }).await;
    assert!(matches!(refused, Err(BrokerError::UnknownService(_))));
    let lost = broker.mint(GrantRequest { tokens: None, ..request() }).await.unwrap_err();
    assert_eq!(lost, BrokerError::SubjectMissing);
    assert_eq!(lost.refusal().code, ErrorCode::CredentialExpired);
    assert!(service.seen().is_empty());
}
