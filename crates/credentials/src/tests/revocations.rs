//! Revocations: what is hit, what is thrown away, and what counts again.

use placet_types::contract::credential::{CachePolicy, CredentialKind};

use super::support::{Act, NOW, Service, dated, good, request, token, tokens};
use crate::{
    Bearer, Broker, BrokerError, CallTokens, GrantRequest, Revoked, SubjectName,
    revocation::AHEAD_MS,
};

fn revoked(subject: &str, ms: i64) -> Revoked {
    let name = SubjectName {
        tenant: "acme".parse().unwrap(),
        issuer: Some("https://idp.example".to_owned()),
        subject: subject.to_owned(),
    };
    Revoked { name, before: NOW.plus_ms(ms), only_undated: false }
}

fn bobs() -> GrantRequest {
    let tokens = CallTokens { subject: token("bobs", "bob", 600_000), ..tokens() };
    GrantRequest { tokens: Some(tokens), ..request() }
}

/// Alice's, with a token issued at this time.
fn since(issued_ms: Option<i64>) -> GrantRequest {
    let issued_at = issued_ms.map(|ms| NOW.plus_ms(ms));
    let subject = dated(&format!("of {issued_ms:?}"), "alice", issued_at, 600_000);
    GrantRequest { tokens: Some(CallTokens { subject, ..tokens() }), ..request() }
}

#[tokio::test]
async fn revoked_subject_purges_grants() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    drop(broker.mint(request()).await.unwrap());
    drop(broker.mint(bobs()).await.unwrap());
    assert_eq!(broker.enforce(vec![revoked("alice", 0)]), Some(1));
    assert_eq!((broker.cached(), broker.subjects_revoked()), (1, 1), "bob's is left");
    assert_eq!(broker.mint(request()).await.unwrap_err(), BrokerError::SubjectRevoked);
    assert!(broker.mint(bobs()).await.unwrap().used().reused);
    assert_eq!(service.seen().len(), 2);
    // The same revocation again changes nothing, and drops nothing minted since.
    assert_eq!(broker.enforce(vec![revoked("alice", 0)]), None);
    assert_eq!(broker.cached(), 1);
}

#[tokio::test]
async fn only_tokens_from_before_a_revocation_are_refused() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    broker.enforce(vec![revoked("alice", 5_000)]);
    // An issuer whose clock is ahead may date a token later than the revocation that came after it.
    for issued in [Some(0), Some(5_000), Some(5_001), Some(5_000 + AHEAD_MS), None] {
        let refused = broker.mint(since(issued)).await.unwrap_err();
        assert_eq!(refused, BrokerError::SubjectRevoked, "{issued:?}");
    }
    assert!(service.seen().is_empty());
    let after = since(Some(5_001 + AHEAD_MS));
    assert!(broker.mint(after).await.is_ok(), "a new sign-in works again");
    broker.enforce(Vec::new());
    assert!(broker.mint(since(Some(0))).await.is_ok(), "it was lifted");
}

#[tokio::test]
async fn a_token_without_a_date_is_still_refused_when_its_revocation_is_over_for_all_others() {
    let (broker, _) = Service::answering(200, good()).await.broker();
    let ended = || vec![Revoked { only_undated: true, ..revoked("bob", 0) }];
    broker.enforce(vec![revoked("bob", 0)]);
    assert!(broker.enforce(ended()).is_none(), "it is nothing new that it counts for fewer");
    let is_out = |issued_at| {
        let bearer = Bearer { issuer: "https://idp.example", subject: "bob", issued_at };
        broker.is_revoked(&"acme".parse().unwrap(), bearer)
    };
    assert!(is_out(None), "it may be from before");
    assert!(!is_out(Some(NOW.plus_ms(-1))) && !is_out(Some(NOW.plus_ms(1))));
    broker.enforce(Vec::new());
    assert!(!is_out(None), "it was lifted, or its longest time is over");
    assert!(broker.enforce(ended()).is_some());
    assert!(is_out(None), "also where a node never saw it in force");
}

#[tokio::test]
async fn a_revocation_is_of_one_issuer_or_of_all_and_of_one_tenant() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    let mut other = revoked("alice", 0);
    other.name.issuer = Some("https://another.example".to_owned());
    broker.enforce(vec![other.clone()]);
    assert!(broker.mint(request()).await.is_ok());
    other.name.issuer = None;
    broker.enforce(vec![other]);
    assert_eq!(broker.mint(request()).await.unwrap_err(), BrokerError::SubjectRevoked);
    let globex = GrantRequest { tenant: "globex".parse().unwrap(), ..request() };
    assert!(broker.mint(globex).await.is_ok());
}

#[tokio::test]
async fn a_revoked_agent_acts_for_nobody() {
    let service = Service::answering(200, good()).await;
    let (broker, _) = service.broker();
    drop(broker.mint(request()).await.unwrap());
    broker.enforce(vec![revoked("agent-1", 0)]);
    assert_eq!(broker.mint(request()).await.unwrap_err(), BrokerError::SubjectRevoked);
    let actor = Some(dated("newer", "agent-1", Some(NOW.plus_ms(1 + AHEAD_MS)), 600_000));
    let again = CallTokens { actor, ..tokens() };
    assert!(broker.mint(GrantRequest { tokens: Some(again), ..request() }).await.is_ok());
}

/// Starts minting, and tells when the service has been asked.
async fn under_way(
    service: &Service,
    broker: &Broker,
    request: GrantRequest,
) -> tokio::task::JoinHandle<Result<crate::Grant, BrokerError>> {
    let broker = broker.clone();
    let asking = tokio::spawn(async move { broker.mint(request).await });
    while service.seen().is_empty() {
        tokio::task::yield_now().await;
    }
    asking
}

#[tokio::test]
async fn what_is_on_its_way_does_not_outlive_a_revocation() {
    for cache in [CachePolicy::Short, CachePolicy::Never] {
        let service = Service::start(|_, _| Act::Late(200, good().to_string())).await;
        let (broker, _) = service.broker();
        let wanted = GrantRequest { cache, ..request() };
        let asking = under_way(&service, &broker, wanted).await;
        broker.enforce(vec![revoked("alice", 0)]);
        assert_eq!(asking.await.unwrap().unwrap_err(), BrokerError::SubjectRevoked, "{cache:?}");
        assert_eq!(broker.cached(), 0);
    }
}

#[tokio::test]
async fn what_is_minted_in_our_own_name_is_asked_for_again_after_a_revocation() {
    let service = Service::start(|_, _| Act::Late(200, good().to_string())).await;
    let (broker, clock) = service.broker();
    let own = || GrantRequest { kind: CredentialKind::ClientCredentials, ..request() };
    let mut us = revoked("placet", 10);
    us.name.issuer = Some("https://sts.example".to_owned());
    let asking = under_way(&service, &broker, own()).await;
    broker.enforce(vec![us]);
    let refused = asking.await.unwrap().unwrap_err();
    assert!(matches!(refused, BrokerError::Unavailable(_)), "{refused}");
    clock.advance(11);
    assert!(!broker.mint(own()).await.unwrap().used().reused);
    assert_eq!(service.seen().len(), 2);
}

#[test]
fn a_revocation_looks_as_far_ahead_as_tokens_are_taken_from() {
    assert_eq!(u64::try_from(AHEAD_MS), Ok(placet_identity::LEEWAY_S_MAX * 1_000));
}

#[tokio::test]
async fn nobody_joins_what_was_asked_for_before_a_revocation() {
    let own = || GrantRequest { kind: CredentialKind::ClientCredentials, ..request() };
    let us = || {
        let mut us = revoked("placet", 10);
        us.name.issuer = Some("https://sts.example".to_owned());
        vec![us]
    };
    // A call that comes after it asks again, although the earlier request is still in flight.
    let service = Service::start(|_, _| Act::Late(200, good().to_string())).await;
    let (broker, clock) = service.broker();
    let before = under_way(&service, &broker, own()).await;
    broker.enforce(us());
    clock.advance(11);
    let (one, other) = tokio::join!(broker.mint(own()), broker.mint(own()));
    one.unwrap();
    other.unwrap();
    before.await.unwrap().unwrap_err();
    assert_eq!(service.seen().len(), 2, "the two of them share one request");
    // Who joined it after the moment of the revocation, and before it was known here, gets nothing of it.
    let service = Service::start(|_, _| Act::Late(200, good().to_string())).await;
    let (broker, clock) = service.broker();
    let before = under_way(&service, &broker, own()).await;
    clock.advance(11);
    let joined = tokio::spawn({
        let broker = broker.clone();
        async move { broker.mint(own()).await }
    });
    tokio::task::yield_now().await;
    broker.enforce(us());
    for asked in [before, joined] {
        let refused = asked.await.unwrap().unwrap_err();
        assert!(matches!(refused, BrokerError::Unavailable(_)), "{refused}");
    }
    assert_eq!(service.seen().len(), 1);
}
