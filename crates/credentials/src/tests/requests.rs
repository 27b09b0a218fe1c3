//! What is sent to a token service: every parameter, and how the client proves itself.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD},
};
use p256::{
    SecretKey,
    ecdsa::{Signature, VerifyingKey, signature::Verifier as _},
    pkcs8::{EncodePrivateKey as _, LineEnding},
};
use placet_identity::ActorClaim;
use placet_types::contract::credential::{ActorSource, CachePolicy, CredentialKind};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::support::{
    AGENT_TOKEN, NOW, ORIGIN, SECRET, Service, USER_TOKEN, bound, good, request, secrets, tokens,
    with_scopes,
};
use crate::{BrokerError, CallTokens, GrantRequest, StsConfig};

const AT: &str = "urn:ietf:params:oauth:token-type:access_token";

#[tokio::test]
async fn an_exchange_is_sent_exactly_as_rfc_8693_says() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    let wanted = GrantRequest {
        resource: Some("https://mail.example/api".to_owned()),
        ..with_scopes("mail.read mail.labels", "mail.read")
    };
    let grant = broker.mint(wanted).await.unwrap();
    assert_eq!(grant.value_for(ORIGIN, NOW).unwrap().expose_secret(), "minted-token-1");
    let seen = service.seen();
    assert_eq!(seen.len(), 1);
    let seen = &seen[0];
    assert!(seen.head.starts_with("POST /token HTTP/1.1"), "{}", seen.head);
    for (name, value) in [
        ("grant_type", "urn:ietf:params:oauth:grant-type:token-exchange"),
        ("subject_token", USER_TOKEN),
        ("subject_token_type", AT),
        ("actor_token", AGENT_TOKEN),
        ("actor_token_type", AT),
        ("requested_token_type", AT),
        ("audience", "urn:mail-api"),
        ("resource", "https://mail.example/api"),
        ("scope", "mail.labels mail.read"),
    ] {
        assert_eq!(seen.one(name), Some(value), "{name}");
    }
    assert_eq!(seen.form.len(), 9, "{:?}", seen.form.keys());
    let basic = STANDARD.encode("placet:the+s3cret+of+the+gateway");
    assert!(seen.head.contains(&format!("Basic {basic}")), "{}", seen.head);
    assert!(!seen.head.contains("c4nary") && !seen.head.contains(SECRET));
}

#[tokio::test]
async fn a_service_may_want_the_secret_in_the_form_and_no_requested_type() {
    let service = Service::answering(200, good()).await;
    let mut config = service.config();
    config.client_auth =
        serde_json::from_value(json!({ "method": "client_secret_post", "secret": "sts" })).unwrap();
    config.omit_requested_token_type = true;
    config.params = [("connection".to_owned(), "corp".to_owned())].into();
    let (broker, _) = service.broker_with(config);
    drop(broker.mint(request()).await.unwrap());
    let seen = &service.seen()[0];
    assert_eq!((seen.one("client_id"), seen.one("client_secret")), (Some("placet"), Some(SECRET)));
    assert_eq!(seen.one("connection"), Some("corp"));
    assert_eq!(seen.one("requested_token_type"), None);
    assert!(!seen.head.to_lowercase().contains("authorization:"));
}

#[tokio::test]
async fn where_the_connection_proves_who_we_are_no_secret_is_shown() {
    let service = Service::answering(200, good()).await;
    let mut config = service.config();
    config.client_auth = serde_json::from_value(json!({ "method": "tls_client_auth" })).unwrap();
    let refused = config.check().unwrap_err();
    assert_eq!(refused.key, "token_endpoint", "without TLS there is no certificate");
    config.token_endpoint = "https://sts.example/token".to_owned();
    assert_eq!((config.check(), config.client_auth.secret()), (Ok(()), None));
}

fn claims(token: &str) -> Value {
    let part = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn an_assertion_is_fresh_signed_and_for_the_service() {
    let service = Service::answering(200, good()).await;
    let key = SecretKey::random(&mut p256::elliptic_curve::rand_core::OsRng);
    let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    let mut config = service.config();
    config.client_auth = serde_json::from_value(
        json!({ "method": "private_key_jwt", "key": "key", "key_id": "k1", "audience": "issuer" }),
    )
    .unwrap();
    config.lenient = [crate::Leniency::Actor].into();
    let (broker, _) = service.broker_of(config, secrets(&[("key", pem.as_str())]));
    for _ in 0..2 {
        let own = GrantRequest {
            actor: ActorSource::Gateway,
            tokens: Some(CallTokens { actor: None, ..tokens() }),
            cache: CachePolicy::Never,
            ..request()
        };
        drop(broker.mint(own).await.unwrap());
    }
    let seen = service.seen();
    let mut ids = Vec::new();
    for name in ["client_assertion", "actor_token"] {
        for seen in &seen {
            let token = seen.one(name).unwrap();
            let (signed, signature) = token.rsplit_once('.').unwrap();
            let signature = URL_SAFE_NO_PAD.decode(signature).unwrap();
            let signature = Signature::from_slice(&signature).unwrap();
            let public = VerifyingKey::from(p256::ecdsa::SigningKey::from(&key));
            public.verify(signed.as_bytes(), &signature).unwrap();
            let claims = claims(token);
            assert_eq!(claims["aud"], "https://sts.example");
            assert_eq!((&claims["iss"], &claims["sub"]), (&json!("placet"), &json!("placet")));
            let lifetime =
                claims["exp"].as_i64().unwrap().checked_sub(claims["iat"].as_i64().unwrap());
            assert!(lifetime.is_some_and(|lifetime| (1..=60).contains(&lifetime)));
            ids.push(claims["jti"].as_str().unwrap().to_owned());
        }
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 4, "an assertion's id was used twice");
    assert_eq!(seen[0].one("actor_token_type"), Some("urn:ietf:params:oauth:token-type:jwt"));
}

#[tokio::test]
async fn a_call_without_a_user_shows_the_callers_own_token_and_names_no_agent() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    let alone = CallTokens { subject: tokens().actor.unwrap(), actor: None };
    let refused = broker.mint(GrantRequest { tokens: Some(alone.clone()), ..request() }).await;
    assert!(matches!(refused, Err(BrokerError::NoActor(_))), "{refused:?}");
    assert!(service.seen().is_empty());
    let nobody = GrantRequest { tokens: Some(alone), actor: ActorSource::Nobody, ..request() };
    drop(broker.mint(nobody).await.unwrap());
    let seen = &service.seen()[0];
    assert_eq!(seen.one("subject_token"), Some(AGENT_TOKEN));
    assert_eq!((seen.one("actor_token"), seen.one("actor_token_type")), (None, None));
}

#[tokio::test]
async fn actor_token_never_equals_subject_token() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    let user = tokens().subject;
    let another = super::support::token("another-token-of-alice", "alice", 600_000);
    for actor in [user.clone(), another] {
        let same = CallTokens { subject: user.clone(), actor: Some(actor) };
        let refused = broker.mint(GrantRequest { tokens: Some(same), ..request() }).await;
        assert!(matches!(refused, Err(BrokerError::NoActor(_))), "{refused:?}");
    }
    assert!(service.seen().is_empty(), "a token was shown");
}

#[tokio::test]
async fn whom_may_act_does_not_name_does_not_act() {
    let service = Service::answering(200, good()).await;
    let key = SecretKey::random(&mut p256::elliptic_curve::rand_core::OsRng);
    let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    let mut config = service.config();
    config.client_auth =
        serde_json::from_value(json!({ "method": "private_key_jwt", "key": "key" })).unwrap();
    config.lenient = [crate::Leniency::Actor].into();
    let (broker, _) = service.broker_of(config, secrets(&[("key", pem.as_str())]));
    let named = |subject: &str| ActorClaim {
        issuer: None,
        subject: Some(subject.to_owned()),
        client: None,
    };
    let shown =
        |may_act: &str| Some(CallTokens { subject: bound(named(may_act)), actor: tokens().actor });
    for (may_act, actor) in [
        ("agent-1", ActorSource::Gateway),
        ("agent-1", ActorSource::Nobody),
        ("agent-2", ActorSource::Agent),
        ("placet", ActorSource::Agent),
    ] {
        let tokens = shown(may_act);
        let refused = broker.mint(GrantRequest { tokens, actor, ..request() }).await;
        assert!(matches!(refused, Err(BrokerError::NoActor(_))), "{may_act}: {refused:?}");
    }
    assert!(service.seen().is_empty(), "a token was shown");
    for (may_act, actor) in [("agent-1", ActorSource::Agent), ("placet", ActorSource::Gateway)] {
        let tokens = shown(may_act);
        drop(broker.mint(GrantRequest { tokens, actor, ..request() }).await.unwrap());
    }
    assert_eq!(service.seen().len(), 2);
}

#[tokio::test]
async fn a_subject_that_is_nearly_over_is_the_callers_to_renew() {
    let service = Service::answering(200, super::support::good_but("expires_in", json!(15))).await;
    let (broker, _) = service.broker();
    let brief = CallTokens {
        subject: super::support::token(USER_TOKEN, "alice", 15_600),
        actor: tokens().actor,
    };
    // The agent's token, which also caps the lifetime, is the agent's to renew.
    let agents = CallTokens {
        actor: Some(super::support::token(AGENT_TOKEN, "agent-1", 15_600)),
        ..tokens()
    };
    for tokens in [brief, agents] {
        let refused = broker.mint(GrantRequest { tokens: Some(tokens), ..request() }).await;
        assert!(matches!(refused, Err(BrokerError::SubjectExpired)), "{refused:?}");
    }
    assert_eq!(service.seen().len(), 2, "each was asked for");
    // Where the subject's token has time left, a token that is about to expire is the service's fault.
    let refused = broker.mint(request()).await;
    assert!(matches!(refused, Err(BrokerError::AnswerUnusable(_))), "{refused:?}");
}

#[tokio::test]
async fn client_credentials_show_no_token_of_a_caller() {
    let service = Service::answering(200, good_without_type()).await;
    let (broker, _) = service.broker();
    let own = GrantRequest { kind: CredentialKind::ClientCredentials, ..request() };
    let grant = broker.mint(own).await.unwrap();
    let seen = &service.seen()[0];
    assert_eq!(seen.one("grant_type"), Some("client_credentials"));
    assert_eq!(seen.one("scope"), Some("mail.read"));
    assert!(!format!("{seen:?}").contains("c4nary"));
    assert_eq!(grant.used().subject.as_deref(), Some("placet"));
    assert_eq!(grant.used().actor, None);
}

fn good_without_type() -> Value {
    super::support::good_but("issued_token_type", Value::Null)
}

#[test]
fn a_section_that_could_do_harm_is_refused_at_load() {
    let base = json!({
        "name": "corp", "issuer": "https://sts.example", "token_endpoint": "https://sts.example/token",
        "client_id": "placet", "client_auth": { "method": "client_secret_basic", "secret": "sts" },
    });
    let check = |key: &str, value: Value| {
        let mut section = base.clone();
        section[key] = value;
        let config: StsConfig = serde_json::from_value(section).unwrap();
        config.check().err().map(|error| error.key)
    };
    assert_eq!(check("name", json!("corp")), None);
    for reserved in ["scope", "Audience", "client_secret", "subject_token", "grant_type"] {
        assert_eq!(check("params", json!({ reserved: "x" })), Some("params"), "{reserved}");
    }
    assert_eq!(check("token_endpoint", json!("http://sts.example/token")), Some("token_endpoint"));
    assert_eq!(check("token_endpoint", json!("https://u:p@sts.example/")), Some("token_endpoint"));
    assert_eq!(check("token_endpoint", json!("https://sts.example/#x")), Some("token_endpoint"));
    assert_eq!(check("token_endpoint", json!("not a url")), Some("token_endpoint"));
    assert_eq!(check("client_id", json!("")), Some("client_id"));
    assert_eq!(check("lifetime_ms_max", json!(3_600_000)), Some("lifetime_ms_max"));
    for method in [json!({ "method": "none" }), json!({ "method": "passthrough" }), Value::Null] {
        let mut section = base.clone();
        section["client_auth"] = method;
        assert!(serde_json::from_value::<StsConfig>(section).is_err());
    }
    let config: StsConfig = serde_json::from_value(base).unwrap();
    assert!(crate::check_all(&[config.clone(), config]).is_err(), "two of one name");
}

#[tokio::test]
async fn each_token_is_shown_as_what_it_is() {
    let svid = super::support::token("an-svid", "spiffe://prod.example/agent-1", 600_000);
    for (kind, actor, types) in [
        ("access_token", None, ("access_token", "access_token")),
        ("jwt", None, ("jwt", "jwt")),
        ("access_token", Some(svid.clone()), ("access_token", "jwt")),
    ] {
        let service = Service::answering(200, good()).await;
        let mut config = service.config();
        config.subject_token_type = serde_json::from_value(json!(kind)).unwrap();
        config.lenient = [crate::Leniency::Actor].into();
        let shown = CallTokens { actor: actor.or(tokens().actor), ..tokens() };
        let request = GrantRequest { tokens: Some(shown), ..request() };
        drop(service.broker_with(config).0.mint(request).await);
        let seen = service.seen();
        let uri = |kind: &str| format!("urn:ietf:params:oauth:token-type:{kind}");
        let said = |name: &str| seen[0].one(name).unwrap().to_owned();
        assert_eq!(
            (said("subject_token_type"), said("actor_token_type")),
            (uri(types.0), uri(types.1))
        );
    }
}
