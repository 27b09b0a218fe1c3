//! The cache: who may share a credential, who may not, and when it goes.

use std::collections::BTreeMap;

use placet_identity::{SubjectToken, TokenFacts};
use placet_types::{
    contract::credential::{ActorSource, CachePolicy, CredentialKind},
    digest::Digest,
};
use serde_json::json;

use super::support::{
    AGENT_TOKEN, Act, NOW, Service, USER_TOKEN, good, request, token, tokens, with_scopes,
};
use crate::{
    BrokerError, CallTokens, GrantRequest, Purge, StsConfig, SubjectName,
    request::{Keys, keys_of, wanted},
    service::Service as TokenService,
};

fn section() -> StsConfig {
    serde_json::from_value(json!({
        "name": "corp", "issuer": "https://sts.example", "client_id": "placet",
        "token_endpoint": "https://sts.example/token",
        "client_auth": { "method": "private_key_jwt", "key": "key" },
    }))
    .unwrap()
}

fn keys(section: StsConfig, request: &GrantRequest) -> Keys {
    let service = TokenService::new(section);
    let wanted = wanted(&service.config, request, NOW).unwrap();
    keys_of(&service, request, &wanted)
}

fn of_subject(text: &str, who: &str) -> Option<CallTokens> {
    Some(CallTokens { subject: token(text, who, 600_000), ..tokens() })
}

/// The same token, as if another issuer had issued it.
fn of_other_issuer() -> Option<CallTokens> {
    let facts = tokens().subject.facts().clone();
    let facts = TokenFacts { issuer: "https://other.example".to_owned(), ..facts };
    Some(CallTokens { subject: SubjectToken::seal(USER_TOKEN, facts), ..tokens() })
}

fn of_actor(text: &str, who: &str) -> Option<CallTokens> {
    Some(CallTokens { actor: Some(token(text, who, 600_000)), ..tokens() })
}

/// Requests that differ in whom the credential speaks for, at which target, or for what.
fn others() -> Vec<(&'static str, GrantRequest)> {
    let text = |text: &str| Some(text.to_owned());
    vec![
        ("nothing", request()),
        ("tenant", GrantRequest { tenant: "other".parse().unwrap(), ..request() }),
        ("kind", GrantRequest { kind: CredentialKind::ClientCredentials, ..request() }),
        ("subject", GrantRequest { tokens: of_subject(USER_TOKEN, "bob"), ..request() }),
        ("subject's issuer", GrantRequest { tokens: of_other_issuer(), ..request() }),
        ("actor", GrantRequest { tokens: of_actor(AGENT_TOKEN, "agent-2"), ..request() }),
        ("gateway", GrantRequest { actor: ActorSource::Gateway, ..request() }),
        ("no actor", GrantRequest { actor: ActorSource::Nobody, ..request() }),
        ("audience", GrantRequest { audience: text("other"), ..request() }),
        ("no audience", GrantRequest { audience: None, ..request() }),
        ("resource", GrantRequest { resource: text("other"), ..request() }),
        ("moved", GrantRequest { audience: None, resource: text("urn:mail-api"), ..request() }),
        ("scopes", with_scopes("mail.read mail.send", "mail.read")),
        ("origin", GrantRequest { origin: "https://other.example:443".to_owned(), ..request() }),
        ("contract", GrantRequest { revision: Digest::of(b"other"), ..request() }),
    ]
}

#[test]
fn keys_differ_in_every_security_field() {
    let mut seen = BTreeMap::new();
    for (name, request) in others() {
        let Keys { key, holder } = keys(section(), &request);
        for digest in [key, holder] {
            assert_eq!(seen.insert(digest, name), None, "`{name}` has the same key");
        }
    }
    for name in ["name", "issuer", "client_id"] {
        let mut other = json!(section());
        other[name] = json!("https://other.example");
        let Keys { key, holder } = keys(serde_json::from_value(other).unwrap(), &request());
        for digest in [key, holder] {
            assert_eq!(seen.insert(digest, name), None, "`{name}` has the same key");
        }
    }
}

#[test]
fn a_holder_is_the_same_for_later_tokens_of_the_same_people() {
    let now = keys(section(), &request());
    for later in [
        GrantRequest { tokens: of_subject("later", "alice"), ..request() },
        GrantRequest { tokens: of_actor("later", "agent-1"), ..request() },
        with_scopes("mail.read", ""),
    ] {
        let later = keys(section(), &later);
        assert_eq!(later.holder, now.holder);
        assert_ne!(later.key, now.key);
    }
}

#[tokio::test]
async fn calls_share_a_credential_only_if_they_agree_in_everything() {
    let service = Service::start(|_, seen| {
        let mut answer = good();
        answer["scope"] = json!(seen.one("scope").unwrap());
        Act::Answer(200, answer.to_string())
    })
    .await;
    let (broker, _) = service.broker();
    let actor =
        |text: &str| CallTokens { actor: Some(token(text, "agent-2", 600_000)), ..tokens() };
    let subject =
        |text: &str, who: &str| CallTokens { subject: token(text, who, 600_000), ..tokens() };
    let requests = [
        request(),
        GrantRequest { tenant: "globex".parse().unwrap(), ..request() },
        GrantRequest { tokens: Some(subject("bobs", "bob")), ..request() },
        GrantRequest { tokens: Some(subject("newer", "alice")), ..request() },
        GrantRequest { tokens: Some(actor("another agent")), ..request() },
        GrantRequest { actor: ActorSource::Nobody, ..request() },
        GrantRequest { audience: Some("urn:files-api".to_owned()), ..request() },
        GrantRequest { resource: Some("https://mail.example/".to_owned()), ..request() },
        GrantRequest { origin: "https://files.example:443".to_owned(), ..request() },
        GrantRequest { revision: Digest::of(b"another contract"), ..request() },
        with_scopes("mail.send", "mail.send"),
    ];
    for round in 0..3 {
        for request in &requests {
            let granted = broker.mint(request.clone()).await.unwrap();
            assert_eq!(granted.used().reused, round > 0);
        }
    }
    assert_eq!(service.seen().len(), requests.len(), "each once, however often it is asked for");
    let never = GrantRequest { cache: CachePolicy::Never, ..request() };
    for _ in 0..2 {
        assert!(!broker.mint(never.clone()).await.unwrap().used().reused);
    }
    assert_eq!(service.seen().len(), 13);
}

#[tokio::test]
async fn one_exchange_for_a_hundred_concurrent_calls() {
    let service = Service::start(|_, _| Act::Late(100, good().to_string())).await;
    let (broker, _) = service.broker();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move { broker.mint(request()).await })
        })
        .collect();
    let mut reused = 0;
    for call in calls {
        reused += i32::from(call.await.unwrap().unwrap().used().reused);
    }
    assert_eq!((service.seen().len(), reused), (1, 99));
}

#[tokio::test]
async fn a_hundred_calls_that_are_refused_ask_once_too() {
    let service = Service::start(|_, _| Act::Late(100, "{}".to_owned())).await;
    let (broker, _) = service.broker();
    let calls: Vec<_> = (0..100)
        .map(|_| {
            let broker = broker.clone();
            tokio::spawn(async move { broker.mint(request()).await.unwrap_err() })
        })
        .collect();
    for call in calls {
        assert!(matches!(call.await.unwrap(), BrokerError::AnswerUnusable(_)));
    }
    assert_eq!(service.seen().len(), 1);
}

#[tokio::test]
async fn a_refusal_of_the_target_is_remembered_for_a_moment_and_others_are_not() {
    for (code, asked) in
        [("invalid_target", 2), ("access_denied", 2), ("invalid_scope", 4), ("invalid_grant", 4)]
    {
        let service = Service::answering(400, json!({ "error": code })).await;
        let (broker, clock) = service.broker();
        for _ in 0..3 {
            assert!(broker.mint(request()).await.is_err());
        }
        clock.advance(5_001);
        assert!(broker.mint(request()).await.is_err());
        assert_eq!(service.seen().len(), asked, "{code}");
    }
}

#[tokio::test]
async fn a_credential_goes_when_its_time_is_over() {
    let service = Service::answering(200, good()).await;
    let (broker, clock) = service.broker();
    drop(broker.mint(request()).await.unwrap());
    clock.advance(104_999);
    drop(broker.mint(request()).await.unwrap());
    assert_eq!(service.seen().len(), 1);
    clock.advance(1);
    drop(broker.mint(request()).await.unwrap());
    assert_eq!(service.seen().len(), 2);
    clock.advance(105_000);
    broker.sweep();
    assert_eq!(broker.cached(), 0);
}

fn alice() -> SubjectName {
    SubjectName {
        tenant: "acme".parse().unwrap(),
        issuer: Some("https://idp.example".to_owned()),
        subject: "alice".to_owned(),
    }
}

#[tokio::test]
async fn a_purge_takes_what_it_is_about_and_nothing_more() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    let globex = || GrantRequest { tenant: "globex".parse().unwrap(), ..request() };
    let fill = async || {
        drop(broker.mint(request()).await.unwrap());
        drop(broker.mint(globex()).await.unwrap());
    };
    fill().await;
    assert_eq!(broker.purge(&Purge::Subject(alice())), 1);
    assert_eq!(broker.purge(&Purge::All), 1);
    fill().await;
    let grant = broker.mint(request()).await.unwrap();
    broker.forget(&grant.key(), grant.used().digest.unwrap());
    assert_eq!(broker.cached(), 1);
}

#[tokio::test]
async fn a_token_is_minted_again_once_however_many_calls_it_was_refused_for() {
    let service = Service::start(|number, _| {
        let mut answer = good();
        answer["access_token"] = json!(format!("opaque-{number}"));
        Act::Answer(200, answer.to_string())
    })
    .await;
    let (broker, _) = service.broker();
    let refused = broker.mint(request()).await.unwrap();
    let (key, digest) = (refused.key(), refused.used().digest.unwrap());
    for _late in 0..5 {
        broker.forget(&key, digest);
        let now = broker.mint(request()).await.unwrap();
        assert_ne!(now.used().digest, Some(digest));
    }
    assert_eq!(service.seen().len(), 2, "the one that was minted in its place was dropped");
    let fresh = broker.mint(request()).await.unwrap().used().digest.unwrap();
    broker.forget(&key, fresh);
    assert_eq!(broker.cached(), 0);
}

#[tokio::test]
async fn how_long_a_token_is_good_is_what_is_said_of_it_and_not_how_long_it_is_used() {
    for (said, seconds) in [(json!(7_200), Some(7_200)), (json!(60), Some(60)), (json!(null), None)]
    {
        let mut answer = good();
        if said.is_null() {
            answer.as_object_mut().unwrap().remove("expires_in");
        } else {
            answer["expires_in"] = said;
        }
        let service = Service::answering(200, answer).await;
        let (broker, _) = service.broker();
        let grant = broker.mint(request()).await.unwrap();
        let good_until = seconds.map(|seconds: i64| NOW.plus_ms(seconds * 1_000));
        assert_eq!(grant.good_until(), good_until);
        assert!(grant.expires_at() <= NOW.plus_ms(300_000));
    }
}

#[tokio::test]
async fn what_was_asked_for_before_a_purge_is_not_kept_after_it() {
    let service = Service::start(|_, _| Act::Late(200, good().to_string())).await;
    let (broker, _) = service.broker();
    let asking = {
        let broker = broker.clone();
        tokio::spawn(async move { broker.mint(request()).await })
    };
    while service.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    broker.purge(&Purge::All);
    assert!(asking.await.unwrap().is_ok());
    assert_eq!(broker.cached(), 0);
}

#[tokio::test]
async fn a_tenant_pushes_out_only_its_own() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    let globex = || GrantRequest { tenant: "globex".parse().unwrap(), ..request() };
    drop(broker.mint(globex()).await.unwrap());
    for number in 0..1_050_u32 {
        let revision = Digest::of(&number.to_be_bytes());
        drop(broker.mint(GrantRequest { revision, ..request() }).await.unwrap());
    }
    let asked = service.seen().len();
    assert!(broker.cached() <= 1_001, "{}", broker.cached());
    drop(broker.mint(globex()).await.unwrap());
    assert_eq!(service.seen().len(), asked, "the other tenant's was pushed out");
}

#[tokio::test]
async fn a_hit_never_outlives_the_token_it_was_exchanged_for() {
    let service = Service::answering(200, good()).await;
    let (broker, clock) = service.broker();
    let short = CallTokens { subject: token("short", "alice", 60_000), ..tokens() };
    let wanted = || GrantRequest { tokens: Some(short.clone()), ..request() };
    drop(broker.mint(wanted()).await.unwrap());
    clock.advance(45_000);
    assert_eq!(broker.mint(wanted()).await.unwrap_err(), BrokerError::SubjectExpired);
    // Neither the one that named who acts in it.
    let agents = CallTokens { actor: Some(token("agent", "agent-1", 105_000)), ..tokens() };
    let wanted = || GrantRequest { tokens: Some(agents.clone()), ..request() };
    drop(broker.mint(wanted()).await.unwrap());
    clock.advance(44_999);
    assert!(broker.mint(wanted()).await.unwrap().used().reused);
    clock.advance(1);
    assert_eq!(broker.mint(wanted()).await.unwrap_err(), BrokerError::SubjectExpired);
    assert_eq!(service.seen().len(), 2);
}
