//! What a token service that refuses, or cannot be asked, means for the call.

use std::time::Duration;

use http::StatusCode;
use placet_types::{
    contract::credential::CredentialKind,
    error::{ErrorCode, Execution},
};
use serde_json::json;
use tokio::{net::TcpListener, time::Instant};

use super::support::{Act, Service, good, request, token, tokens};
use crate::{BrokerError, CallTokens, GrantRequest, Remedy, answer};

const SAID: &str = "user alice@corp.example is locked, see https://idp.internal/debug?trace=77";

fn refusal(code: &str) -> String {
    json!({ "error": code, "error_description": SAID, "error_uri": SAID }).to_string()
}

#[tokio::test]
async fn every_error_code_has_its_meaning_and_is_asked_once() {
    use Remedy::{Caller, None, Operator};
    for (status, code, expected, remedy) in [
        (400, "invalid_request", ErrorCode::CredentialMisconfigured, Operator),
        (400, "unsupported_grant_type", ErrorCode::CredentialMisconfigured, None),
        (400, "invalid_client", ErrorCode::CredentialMisconfigured, Operator),
        (401, "invalid_client", ErrorCode::CredentialMisconfigured, Operator),
        (400, "invalid_grant", ErrorCode::CredentialExpired, Caller),
        (400, "invalid_target", ErrorCode::CredentialRefused, None),
        (400, "invalid_scope", ErrorCode::CredentialRefused, None),
        (403, "access_denied", ErrorCode::CredentialRefused, None),
        (400, "insufficient_user_authentication", ErrorCode::CredentialRefused, Caller),
        (400, "something_of_its_own", ErrorCode::CredentialMisconfigured, Operator),
        (400, "unauthorized_client", ErrorCode::CredentialMisconfigured, Operator),
        (401, "", ErrorCode::CredentialMisconfigured, Operator),
        (403, "", ErrorCode::CredentialMisconfigured, Operator),
        (404, "", ErrorCode::CredentialMisconfigured, Operator),
        (418, "", ErrorCode::CredentialMisconfigured, Operator),
    ] {
        let service = Service::answering(status, refusal(code)).await;
        let error = service.broker().0.mint(request()).await.unwrap_err();
        let refused = error.refusal();
        assert_eq!((refused.code, error.remedy()), (expected, remedy), "{status} {code}");
        assert_eq!(refused.execution, Execution::NotExecuted);
        assert_eq!(service.seen().len(), 1, "{status} {code}");
    }
}

#[tokio::test]
async fn what_one_subject_is_refused_does_not_close_the_service_to_others() {
    for (status, code, asked) in
        [(403, "", 2), (400, "unauthorized_client", 2), (401, "", 1), (401, "invalid_client", 1)]
    {
        let service = Service::answering(status, refusal(code)).await;
        let broker = service.broker().0;
        let other = GrantRequest {
            tokens: Some(CallTokens { subject: token("t2", "bea", 3_600_000), ..tokens() }),
            ..request()
        };
        broker.mint(request()).await.unwrap_err();
        broker.mint(other).await.unwrap_err();
        assert_eq!(service.seen().len(), asked, "{status} {code}");
    }
}

#[tokio::test]
async fn idp_error_text_never_reaches_the_caller() {
    for (status, body) in [
        (400, refusal("invalid_grant")),
        (400, refusal(SAID)),
        (401, SAID.to_owned()),
        (500, SAID.to_owned()),
        (200, json!({ "error": SAID }).to_string()),
        (200, SAID.to_owned()),
        (200, format!("{{\"access_token\":\"{SAID}\"}}")),
    ] {
        let service = Service::answering(status, body).await;
        let error = service.broker().0.mint(request()).await.unwrap_err();
        let refused = error.refusal();
        // Not in the log either: nobody can say what a service puts there.
        let shown = format!("{refused:?} {refused} {error} {error:?}");
        for word in ["alice", "idp.internal", "locked"] {
            assert!(!shown.contains(word), "{shown}");
        }
    }
}

#[tokio::test]
async fn sts_down_means_no_call_and_no_fallback() {
    // Nobody listens there any more.
    let service = Service::answering(200, good()).await;
    let mut config = service.config();
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    config.token_endpoint = format!("http://{port}/token");
    let (broker, _) = service.broker_with(config);
    let error = broker.mint(request()).await.unwrap_err();
    assert!(matches!(error, BrokerError::Unavailable(_)), "{error:?}");
    assert_eq!(error.refusal().code, ErrorCode::AdapterUnavailable);
    assert!(error.refusal().message.contains("credentials for the tool are unavailable"));
    for act in [
        Act::Answer(500, "{}".to_owned()),
        Act::Answer(503, good().to_string()),
        Act::Answer(429, "{}".to_owned()),
        Act::Answer(200, "no json".to_owned()),
        Act::Answer(200, "[]".to_owned()),
        Act::HangUp,
    ] {
        let scripted = act.clone();
        let service = Service::start(move |_, _| scripted.clone()).await;
        let (broker, _) = service.broker();
        let error = broker.mint(request()).await.unwrap_err();
        assert!(matches!(error, BrokerError::Unavailable(_)), "{act:?}: {error:?}");
        assert_eq!(service.seen().len(), 2, "{act:?}: once more, and not again");
        assert_eq!(broker.cached(), 0);
        // An outage is not remembered: the next call asks again.
        drop(broker.mint(request()).await.unwrap_err());
        assert_eq!(service.seen().len(), 4, "{act:?}");
    }
}

#[tokio::test]
async fn a_stale_credential_is_no_fallback_either() {
    let service = Service::start(|number, _| {
        if number == 0 {
            Act::Answer(200, good().to_string())
        } else {
            Act::Answer(503, String::new())
        }
    })
    .await;
    let (broker, clock) = service.broker();
    drop(broker.mint(request()).await.unwrap());
    clock.advance(105_000);
    assert!(broker.mint(request()).await.is_err());
}

#[tokio::test]
async fn a_service_that_recovers_is_asked_once_more_within_the_same_call() {
    let service = Service::start(|number, _| {
        if number == 0 {
            Act::Answer(502, String::new())
        } else {
            Act::Answer(200, good().to_string())
        }
    })
    .await;
    assert!(service.broker().0.mint(request()).await.is_ok());
    assert_eq!(service.seen().len(), 2);
}

#[tokio::test]
async fn sts_redirect_is_not_followed() {
    let elsewhere = Service::answering(200, good()).await;
    for status in [301, 302, 303, 307, 308] {
        let target = format!("http://{}/token", elsewhere.address);
        let service =
            Service::start(move |_, _| Act::With(status, "location", target.clone())).await;
        let error = service.broker().0.mint(request()).await.unwrap_err();
        assert!(matches!(error, BrokerError::Puzzling(_)), "{status}: {error:?}");
        assert_eq!(service.seen().len(), 1);
    }
    assert!(elsewhere.seen().is_empty(), "the caller's token went elsewhere");
}

#[tokio::test]
async fn an_answer_that_is_too_large_is_refused() {
    let mut large = good();
    large["padding"] = json!("x".repeat(70_000));
    let service = Service::answering(200, large).await;
    let error = service.broker().0.mint(request()).await.unwrap_err();
    assert!(matches!(error, BrokerError::Puzzling(_)), "{error:?}");
    assert_eq!(error.remedy(), Remedy::Operator);
}

#[tokio::test]
async fn nobody_waits_longer_than_the_call_has_time() {
    let service = Service::start(|_, _| Act::Late(800, good().to_string())).await;
    let (broker, _) = service.broker();
    let deadline = Instant::now() + Duration::from_millis(100);
    let error = broker.mint(GrantRequest { deadline, ..request() }).await.unwrap_err();
    assert_eq!(error, BrokerError::OutOfTime);
    assert_eq!(error.refusal().code, ErrorCode::DeadlineExceeded);
    // Another call that has more time gets what was asked for then.
    let grant = broker.mint(request()).await.unwrap();
    assert!(grant.used().reused);
    assert_eq!(service.seen().len(), 1);
}

#[tokio::test]
async fn a_destination_that_is_not_allowed_is_not_dialled() {
    let service = Service::answering(200, good()).await;
    let mut other = service.config();
    other.token_endpoint = "https://sts.example/token".to_owned();
    let clock = service.broker().1;
    let policy = placet_egress::EgressPolicy::new(vec![other.destination().unwrap()]);
    let egress = placet_egress::EgressClient::new(policy, crate::egress_limits()).unwrap();
    let secrets = super::support::secrets(&[("sts", "s")]);
    let broker = crate::Broker::new(vec![service.config()], secrets, Some(egress), clock).unwrap();
    assert!(matches!(broker.mint(request()).await, Err(BrokerError::Unavailable(_))));
    assert!(service.seen().is_empty());
}

#[tokio::test]
async fn what_the_status_says_of_us_goes_before_what_the_body_says_of_the_request() {
    const CODES: [&str; 11] = [
        "invalid_request",
        "unsupported_grant_type",
        "invalid_client",
        "unauthorized_client",
        "invalid_grant",
        "invalid_target",
        "invalid_scope",
        "access_denied",
        "insufficient_user_authentication",
        "something_of_its_own",
        "",
    ];
    for code in CODES {
        let exchange = CredentialKind::TokenExchange;
        let error = |status| answer::refusal(status, refusal(code).as_bytes(), exchange);
        let refused = error(StatusCode::UNAUTHORIZED);
        assert!(matches!(refused, BrokerError::ClientRefused(_)), "401 {code}: {refused:?}");
        assert!(refused.remedy() == Remedy::Operator && refused.for_operators().is_some());
        for status in [429, 500, 502, 503, 504] {
            let refused = error(StatusCode::from_u16(status).unwrap());
            let passing = matches!(refused, BrokerError::Unavailable(_));
            assert!(passing && refused.remedy() == Remedy::Time, "{status} {code}: {refused:?}");
        }
    }
    let bad =
        |code: &str, kind| answer::refusal(StatusCode::BAD_REQUEST, refusal(code).as_bytes(), kind);
    let unentitled = bad("unauthorized_client", CredentialKind::TokenExchange);
    assert!(unentitled.for_operators().is_some(), "{unentitled:?}");
    // Of an exchange it may be about the tokens that are shown; where none is shown, it is about the form.
    let exchange = bad("invalid_request", CredentialKind::TokenExchange);
    assert!(exchange.remedy() == Remedy::Operator && exchange.for_operators().is_some());
    assert_eq!(bad("invalid_request", CredentialKind::ClientCredentials).remedy(), Remedy::None);
}

#[tokio::test]
async fn a_refusal_that_names_one_callers_grant_does_not_close_the_service_to_others() {
    for (code, asked) in [("invalid_grant", 2), ("access_denied", 2), ("unauthorized_client", 1)] {
        let service = Service::answering(401, refusal(code)).await;
        let broker = service.broker().0;
        let other = GrantRequest {
            tokens: Some(CallTokens { subject: token("t2", "bea", 3_600_000), ..tokens() }),
            ..request()
        };
        broker.mint(request()).await.unwrap_err();
        broker.mint(other).await.unwrap_err();
        assert_eq!(service.seen().len(), asked, "401 {code}");
    }
}
