//! What a token service was shown, and returns: no target gets it, no matter who it belongs to.

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD},
};
use p256::{
    SecretKey,
    pkcs8::{EncodePrivateKey as _, LineEnding},
};
use placet_types::contract::credential::{ActorSource, CachePolicy, CredentialKind};
use serde_json::json;

use super::support::{
    AGENT_TOKEN, Act, SECRET, Seen, Service, USER_TOKEN, good_but, jwt, request, secrets, token,
    tokens,
};
use crate::{Broker, BrokerError, CallTokens, GrantRequest, Leniency};

/// A service that returns what it reads in a request.
async fn echoing(what: impl Fn(&Seen) -> String + Send + Sync + 'static) -> Service {
    Service::start(move |_, seen| {
        Act::Answer(200, good_but("access_token", json!(what(seen))).to_string())
    })
    .await
}

async fn is_refused(broker: &Broker, request: GrantRequest) {
    let problem = "the token is one that it was shown";
    let refused = broker.mint(request).await.map(|grant| grant.used());
    assert_eq!(refused, Err(BrokerError::AnswerRefused(problem)));
    assert_eq!(broker.cached(), 0);
}

#[tokio::test]
async fn what_a_call_was_made_with_does_not_come_back_as_its_credential() {
    for cache in [CachePolicy::Short, CachePolicy::Never] {
        for field in ["subject_token", "actor_token"] {
            let service = echoing(move |seen| seen.one(field).unwrap().to_owned()).await;
            is_refused(&service.broker().0, GrantRequest { cache, ..request() }).await;
            // Nor with padding that a decoder ignores.
            let service = echoing(move |seen| format!("{}=", seen.one(field).unwrap())).await;
            is_refused(&service.broker().0, GrantRequest { cache, ..request() }).await;
        }
        // Nor where the service has it from somebody else.
        let service = echoing(|_| AGENT_TOKEN.to_owned()).await;
        let nobody = GrantRequest { actor: ActorSource::Nobody, cache, ..request() };
        is_refused(&service.broker().0, nobody).await;
        assert_eq!(service.seen()[0].one("actor_token"), None);
    }
}

#[tokio::test]
async fn a_token_that_says_everything_right_and_was_shown_is_refused() {
    // For Placet and the target, no more scopes, about the user, naming the agent: no claim gives it away.
    let claims = json!({ "aud": "urn:mail-api", "sub": "alice", "scope": "mail.read", "act": { "sub": "agent-1" } });
    let text = jwt(&claims);
    let service = echoing(|seen| seen.one("subject_token").unwrap().to_owned()).await;
    let shown = CallTokens { subject: token(&text, "alice", 600_000), ..tokens() };
    let mut config = service.config();
    config.lenient =
        [Leniency::Audience, Leniency::Subject, Leniency::Actor, Leniency::IssuedType].into();
    let request = GrantRequest { tokens: Some(shown), ..request() };
    is_refused(&service.broker_with(config.clone()).0, request.clone()).await;
    // Nor where the last character of its signature encodes the same bytes for a lenient decoder.
    let (unsigned, _) = text.rsplit_once('.').unwrap();
    let signed = format!("{unsigned}.{}", URL_SAFE_NO_PAD.encode([7; 64]));
    assert!(signed.ends_with('w'));
    let shown = CallTokens { subject: token(&signed, "alice", 600_000), ..tokens() };
    let service =
        echoing(|seen| seen.one("subject_token").unwrap().trim_end_matches('w').to_owned() + "x")
            .await;
    config.token_endpoint = service.config().token_endpoint;
    let request = GrantRequest { tokens: Some(shown), ..request };
    is_refused(&service.broker_with(config).0, request).await;
    // Another token that says the same is one that was issued.
    let service = Service::answering(200, good_but("access_token", json!(text))).await;
    assert_ne!(text, USER_TOKEN);
    assert!(service.broker().0.mint(super::support::request()).await.is_ok());
}

#[tokio::test]
async fn what_proves_who_we_are_does_not_come_back_either() {
    let key = SecretKey::random(&mut p256::elliptic_curve::rand_core::OsRng);
    let pem = key.to_pkcs8_pem(LineEnding::LF).unwrap();
    for field in ["client_assertion", "actor_token"] {
        let service = echoing(move |seen| seen.one(field).unwrap().to_owned()).await;
        let mut config = service.config();
        config.client_auth =
            serde_json::from_value(json!({ "method": "private_key_jwt", "key": "key" })).unwrap();
        config.lenient = [Leniency::Audience, Leniency::Subject, Leniency::Actor].into();
        let (broker, _) = service.broker_of(config, secrets(&[("key", pem.as_str())]));
        is_refused(&broker, GrantRequest { actor: ActorSource::Gateway, ..request() }).await;
    }
    // Also where no token is exchanged, and where the secret is in a header. The plain secret is not a well-formed token anyway.
    let secret = "opaque+secret/of=the~gateway==";
    assert!(SECRET.contains(' '));
    for method in ["client_secret_basic", "client_secret_post"] {
        let service = echoing(move |_| secret.to_owned()).await;
        let mut config = service.config();
        config.client_auth =
            serde_json::from_value(json!({ "method": method, "secret": "sts" })).unwrap();
        let (broker, _) = service.broker_of(config, secrets(&[("sts", secret)]));
        let own = GrantRequest { kind: CredentialKind::ClientCredentials, ..request() };
        is_refused(&broker, own).await;
    }
}

/// What Placet proved itself with in the header.
fn basic(seen: &Seen) -> String {
    let value = seen.head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("authorization").then_some(value)
    });
    value.unwrap().strip_prefix("Basic ").unwrap().to_owned()
}

#[tokio::test]
async fn the_header_that_proves_who_we_are_does_not_come_back_in_any_encoding() {
    // One that the two alphabets write differently, and that is escaped in the header.
    let secret = "s3cret???>>>~~~ of the gateway";
    let own = || GrantRequest { kind: CredentialKind::ClientCredentials, ..request() };
    let is_refused_with = async |what: fn(&Seen) -> String| {
        let service = echoing(what).await;
        let (broker, _) = service.broker_of(service.config(), secrets(&[("sts", secret)]));
        is_refused(&broker, own()).await;
        is_refused(&broker, request()).await;
    };
    is_refused_with(basic).await;
    is_refused_with(|seen| basic(seen).trim_end_matches('=').to_owned()).await;
    is_refused_with(|seen| basic(seen) + "=").await;
    is_refused_with(|seen| URL_SAFE.encode(STANDARD.decode(basic(seen)).unwrap())).await;
    is_refused_with(|_| STANDARD.encode("placet:s3cret???>>>~~~ of the gateway")).await;
    is_refused_with(|_| URL_SAFE_NO_PAD.encode("placet:s3cret???>>>~~~ of the gateway")).await;
    is_refused_with(|_| URL_SAFE_NO_PAD.encode("s3cret???>>>~~~ of the gateway")).await;
    assert!(STANDARD.encode(secret).contains('/'), "the alphabets do not differ in it");
}

/// A user's token as an issuer signs it.
fn signed(claims: &serde_json::Value) -> String {
    let unsigned = jwt(claims);
    let (unsigned, _) = unsigned.rsplit_once('.').unwrap();
    format!("{unsigned}.{}", URL_SAFE_NO_PAD.encode([0xfb; 63]))
}

#[tokio::test]
async fn a_token_that_was_shown_is_known_in_any_encoding() {
    let text = signed(&json!({ "sub": "alice", "x": "???>>>" }));
    let [head, claims, signature] = text.split('.').collect::<Vec<_>>()[..] else { panic!() };
    for echo in [
        format!("{head}=.{claims}.{signature}"),
        format!("{head}.{claims}=.{signature}=="),
        text.replace('-', "+").replace('_', "/"),
        format!("{head}.{claims}.~{signature}"),
        format!(".{text}."),
        // Other words around the signature, which is of no other token.
        format!("v1.{text}"),
        format!("e30.{claims}.{signature}"),
    ] {
        assert_ne!(echo, text);
        let service = Service::answering(200, good_but("access_token", json!(echo))).await;
        let mut config = service.config();
        config.lenient = [Leniency::Audience, Leniency::Subject, Leniency::Actor].into();
        for actor in [ActorSource::Agent, ActorSource::Nobody] {
            // The user's, and the agent's, whether it is shown or not.
            for tokens in [
                CallTokens { subject: token(&text, "alice", 600_000), ..tokens() },
                CallTokens { actor: Some(token(&text, "agent-1", 600_000)), ..tokens() },
            ] {
                let request = GrantRequest { tokens: Some(tokens), actor, ..request() };
                is_refused(&service.broker_with(config.clone()).0, request).await;
            }
        }
    }
}

#[tokio::test]
async fn a_token_that_holds_what_was_shown_is_refused() {
    let text = signed(&json!({ "sub": "alice" }));
    let secret = "opaque+secret/of=the~gateway==";
    let basic = STANDARD.encode(format!("placet:{secret}"));
    let right = json!({ "aud": "urn:mail-api", "sub": "alice", "act": { "sub": "agent-1" } });
    let with = |held: serde_json::Value| {
        let mut claims = right.clone();
        claims["x"] = held;
        good_but("access_token", json!(jwt(&claims)))
    };
    let asked = async |answer: serde_json::Value| {
        let service = Service::answering(200, answer).await;
        let (broker, _) = service.broker_of(service.config(), secrets(&[("sts", secret)]));
        let subject = token(&text, "alice", 600_000);
        let tokens = Some(CallTokens { subject, ..tokens() });
        broker.mint(GrantRequest { tokens, ..request() }).await.map(|grant| grant.used())
    };
    let head = json!({ "alg": "ES256", "x": text }).to_string();
    let (_, rest) = jwt(&right).split_once('.').map(|(_, rest)| ((), rest.to_owned())).unwrap();
    let in_head = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(head));
    for answer in [
        with(json!(text)),
        with(json!(format!("Bearer {text}"))),
        with(json!([{ "deep": [text.replace('.', "=.")] }])),
        with(json!({ text.clone(): true })),
        with(json!(AGENT_TOKEN)),
        with(json!(secret)),
        with(json!(format!("placet:{secret}"))),
        with(json!(format!("Basic {basic}"))),
        with(json!(format!("v1.{secret}.x"))),
        good_but("access_token", json!(in_head)),
    ] {
        // Base64 within Base64 may be found before the token is read.
        let refused = asked(answer.clone()).await;
        assert!(matches!(refused, Err(BrokerError::AnswerRefused(_))), "{answer}: {refused:?}");
    }
    // What is in a request, and may recur in a token.
    for held in [json!("placet"), json!("urn:mail-api"), json!("mail.read"), json!("grant_type")] {
        asked(with(held)).await.unwrap();
    }
}

#[tokio::test]
async fn a_clients_secret_is_known_within_a_word_too() {
    let secret = "the-secret-of-the-gateway";
    for held in [format!("v1.{secret}.x"), format!("key={secret}"), format!("/k/{secret}/x")] {
        let mut claims =
            json!({ "aud": "urn:mail-api", "sub": "alice", "act": { "sub": "agent-1" } });
        claims["x"] = json!(held);
        let answer = good_but("access_token", json!(jwt(&claims)));
        let service = Service::answering(200, answer).await;
        let (broker, _) = service.broker_of(service.config(), secrets(&[("sts", secret)]));
        let refused = broker.mint(request()).await.map(|grant| grant.used());
        let problem = "the token holds what it was shown";
        assert_eq!(refused, Err(BrokerError::AnswerRefused(problem)), "{held}");
    }
}
