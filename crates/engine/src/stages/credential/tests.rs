//! What a call is sent with, and when it expires.

use placet_adapter::outcome::AdapterError;
use serde_json::json;

use super::*;
use crate::adapters::errors::{fault_of, unavailable, unreached};

fn set(words: &str) -> BTreeSet<String> {
    words.split_whitespace().map(str::to_owned).collect()
}

fn asked(
    planned: &str,
    needed: &str,
    granted: Option<&str>,
) -> Result<BTreeSet<String>, BrokerError> {
    let scopes = set(planned).into_iter().collect();
    let plan = CredentialPlan { scopes, ..CredentialPlan::default() };
    let granted = granted.map(set);
    within(&plan, &set(needed), granted.as_ref())
}

#[test]
fn anyone_who_comes_back_with_fewer_scopes_gets_no_more_than_those() {
    assert_eq!(asked("read send", "read", Some("read other")), Ok(set("read")));
    assert_eq!(asked("read send", "read", Some("read send")), Ok(set("read send")));
}

#[test]
fn anyone_who_comes_back_with_more_scopes_gets_no_more_than_was_agreed_to() {
    assert_eq!(asked("read", "read", Some("read send")), Ok(set("read")));
}

#[test]
fn a_scope_that_is_needed_and_that_the_new_token_lacks_is_said_and_nothing_is_asked_for() {
    let refused = asked("read send", "read send", Some("read")).unwrap_err();
    let wanted = BrokerError::ScopeMissing {
        missing: vec!["send".to_owned()],
        needed: vec!["read".to_owned(), "send".to_owned()],
    };
    assert_eq!(refused, wanted);
}

#[test]
fn where_nothing_of_what_was_planned_is_left_a_service_is_not_asked_for_everything() {
    let refused = asked("labels", "", Some("other")).unwrap_err();
    let all = vec!["labels".to_owned()];
    assert_eq!(refused, BrokerError::ScopeMissing { missing: all.clone(), needed: all });
    assert_eq!(
        asked("", "", Some("other")),
        Ok(set("")),
        "where none was planned, as the contract says"
    );
}

#[test]
fn where_the_contract_does_not_say_so_the_callers_scopes_do_not_matter() {
    assert_eq!(asked("read send", "read", None), Ok(set("read send")));
}

#[test]
fn the_end_of_a_lease_is_told_by_the_clock_of_the_records_and_without_one_nothing_is_made_up() {
    let (at, moment) = (Timestamp::from_ms(1_800_000_000_000), Instant::now());
    let leased = |ends| LiveVersion { value: SecretString::from("one"), ends };
    let later = moment + Duration::from_secs(90);
    assert_eq!(end_of(&leased(Some(later)), (at, moment)), Some(at.plus_ms(90_000)));
    assert_eq!(end_of(&leased(Some(moment)), (at, later)), Some(at), "over by then");
    assert_eq!(end_of(&leased(None), (at, moment)), None);
}

#[test]
fn an_operator_is_told_whether_a_target_does_not_know_a_credential_or_does_not_allow_the_call() {
    let because = |error: AdapterError| {
        let fault = fault_of(&error);
        let before_it_was_sent = Unready::from(unreached(error));
        assert_eq!(before_it_was_sent.fault, fault, "{before_it_was_sent:?}");
        let cause = if fault.is_some() { Cause::Credential(Remedy::Operator) } else { Cause::Code };
        assert_eq!(before_it_was_sent.cause, cause, "{before_it_was_sent:?}");
        fault
    };
    assert_eq!(because(AdapterError::CredentialRefused("401".to_owned())), Some(NOT_TAKEN));
    assert_eq!(because(AdapterError::Forbidden("403".to_owned())), Some(NOT_ALLOWED));
    assert_eq!(because(AdapterError::Unavailable("503".to_owned())), None);
    assert_eq!(because(AdapterError::Refused("no".to_owned())), None);
    assert_ne!(NOT_TAKEN, NOT_ALLOWED, "one does not hide the other");
}

#[test]
fn the_code_says_whether_an_operator_has_to_repair_it_or_the_caller_is_refused() {
    let unknown = || AdapterError::CredentialRefused("401".to_owned());
    let forbidden = || AdapterError::Forbidden("403".to_owned());
    let code = |error: AdapterError, kind| unavailable(&error, kind).code;
    for kind in [CredentialKind::StaticSecret, CredentialKind::ClientCredentials] {
        assert_eq!(code(unknown(), kind), ErrorCode::CredentialMisconfigured, "{kind:?}");
        // The call may ask for more than the credential permits.
        assert_eq!(code(forbidden(), kind), ErrorCode::CredentialRefused, "{kind:?}");
    }
    let exchanged = CredentialKind::TokenExchange;
    assert_eq!(code(unknown(), exchanged), ErrorCode::CredentialRefused);
    assert_eq!(code(forbidden(), exchanged), ErrorCode::CredentialRefused);
    // Before there is a call, no caller is involved.
    for error in [unknown(), forbidden()] {
        assert_eq!(unreached(error).code, ErrorCode::CredentialMisconfigured);
    }
}

#[test]
fn what_no_header_can_hold_is_not_sent_and_the_version_before_it_may_be() {
    let version = |text: &str| LiveVersion { value: SecretString::from(text), ends: None };
    let live = |newest, previous: Option<&str>| LiveSecret {
        newest: version(newest),
        previous: previous.map(version),
    };
    let http = json!({ "type": "mcp_http", "url": "https://mail.example/mcp" });
    let child = json!({ "type": "mcp_stdio", "command": "/bin/mail" });
    let sent = |live, transport: &serde_json::Value| {
        let transport = serde_json::from_value(transport.clone()).unwrap();
        let versions = sendable(live, &transport).map(LiveSecret::into_values);
        versions.map(|(newest, previous)| {
            let text = |value: SecretString| value.expose_secret().to_owned();
            (text(newest), previous.map(text))
        })
    };
    let of = |newest: &str, previous: Option<&str>| {
        Some((newest.to_owned(), previous.map(str::to_owned)))
    };
    let long = "x".repeat(HEADER_BYTES_MAX + 1);
    for odd in ["two\nlines", "a\rb", "nul\0", "del\u{7f}", "schlüssel", long.as_str()] {
        assert_eq!(sent(live(odd, None), &http), None, "{odd:?}");
        assert_eq!(sent(live(odd, Some("before")), &http), of("before", None), "{odd:?}");
        assert_eq!(sent(live("now", Some(odd)), &http), of("now", None), "{odd:?}");
        assert_eq!(sent(live(odd, Some(odd)), &http), None, "{odd:?}");
        // A child may have it as an environment variable.
        assert_eq!(sent(live(odd, Some("before")), &child), of(odd, Some("before")), "{odd:?}");
    }
    assert_eq!(sent(live("a key\t~!", Some("b")), &http), of("a key\t~!", Some("b")));
}
