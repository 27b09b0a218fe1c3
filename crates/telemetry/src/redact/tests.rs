//! What is masked, and what must stay readable.

use super::{MASK, compile, field, holds_secret, is_secret_name, text};

const CANARY: &str = "c4n4ry-7f3a9b2e";

#[test]
fn the_patterns_compile() {
    assert!(compile().is_ok());
}

#[test]
fn names_of_secrets_are_recognised_in_every_spelling() {
    for name in [
        "authorization",
        "http.request.header.Authorization",
        "access_token",
        "session_id",
        "Mcp-Session-Id",
        "accessToken",
        "clientSecret",
        "db.password",
        "api-key",
        "x-api-key",
        "apikey",
        "key",
        "idempotency_key",
        "Set-Cookie",
        "user.credentials",
        "subject_token",
    ] {
        assert!(is_secret_name(name), "{name}");
        assert_eq!(field(name, CANARY), MASK, "{name}");
    }
}

#[test]
fn our_own_attributes_and_ordinary_names_are_not_secret() {
    for name in [
        crate::names::attribute::MODE_EFFECTIVE,
        crate::names::attribute::POLICY_DECISION_ID,
        crate::names::attribute::TOOL_CALL_ID,
        crate::names::attribute::TENANT,
        crate::names::attribute::ERROR_CODE,
        "message",
        "monkey",
        "tokenizer",
        "key_id",
        "signing.public_key",
        "keyboard",
        "author",
    ] {
        assert!(!is_secret_name(name), "{name}");
    }
}

#[test]
fn secrets_inside_texts_are_masked() {
    let jwt = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJjNG40cnktN2YzYTliMmUifQ.c4n4ry-7f3a9b2e";
    for leak in [
        format!("Bearer {CANARY}"),
        format!("sent bearer   {CANARY} to the server"),
        format!("Bearer%20{CANARY}"),
        format!("DPoP {CANARY}"),
        format!("Basic {CANARY}="),
        format!("got {jwt} from the caller"),
        format!("Authorization: Custom {CANARY}\r\nhost: a"),
        format!("cookie: session={CANARY}; other={CANARY}"),
        format!("https://user:{CANARY}@example.com/"),
        format!("/callback?access_token={CANARY}&state=1"),
        format!("grant_type=x&client_secret={CANARY}"),
        format!(r#"{{"password": "two words {CANARY}"}}"#),
        format!(r#"{{"password":"quote \" {CANARY}"}}"#),
        format!(r#"{{\"refresh_token\":\"{CANARY}\"}}"#),
        format!(r#"Config {{ api_key: "{CANARY}" }}"#),
        format!(r#"Config {{ api_key: Some("{CANARY}") }}"#),
        format!("authorization=Bearer {CANARY}"),
        format!("-----BEGIN EC PRIVATE KEY-----\n{CANARY}\n-----END EC PRIVATE KEY-----"),
        format!("-----BEGIN PRIVATE KEY-----\n{CANARY}"),
        format!("ghp_{}{}", "c4n4ry7f3a9b2e", "0123456789"),
    ] {
        let masked = text(&leak);
        assert!(!masked.contains(CANARY) && !masked.contains("c4n4ry"), "{leak} became {masked}");
        assert!(masked.contains(MASK), "{leak} became {masked}");
        assert!(holds_secret(&leak), "{leak}");
    }
}

#[test]
fn a_token_that_was_cut_off_is_masked() {
    assert_eq!(text("eyJhbGciOiJFUzI1NiJ9.eyJzd"), MASK);
    assert_eq!(text("eyJhbGciOiJFUzI1"), MASK);
}

#[test]
fn ordinary_texts_stay_as_they_are() {
    for ordinary in [
        "",
        "the bearer token is expired",
        "invalid token: signature does not verify",
        "basic authentication is not supported",
        "files__read",
        "2026-01-01T00:00:00Z",
        "sha256:2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae",
        "listening on 127.0.0.1:7411",
        "https://example.com/a?b=c",
        "keys: 4, tokens: 12",
        "eye.catching.name",
    ] {
        assert_eq!(text(ordinary), ordinary);
        assert!(!holds_secret(ordinary), "{ordinary}");
    }
}

#[test]
fn what_stands_around_a_secret_stays_readable() {
    assert_eq!(
        text(&format!("POST /x?token={CANARY}&page=2 failed")),
        "POST /x?token=[redacted]&page=2 failed"
    );
}
