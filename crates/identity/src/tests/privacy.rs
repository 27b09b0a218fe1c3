//! The canary: no token and no secret appears in anything that can be printed.

use std::{collections::BTreeMap, fmt::Debug, fs};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_types::{error::ErrorCode, principal::PrincipalKind};
use secrecy::SecretString;
use serde_json::{Value, json};

use super::support::{
    NOW_S, Signer, US, claims, claims_with, clock_at, issuer, key_set, tenant, verifier, verify,
};
use crate::{
    DevKey, IdentityError, KeySource, MintRequest, SecretSource, Secrets, TokenRole, VerifiedCaller,
};

const CANARY: &str = "canary-7f3a9c";

/// Fails if any part of the token, as it was sent or decoded, is in the text.
fn assert_hidden(text: &str, token: &str) {
    for part in token.split('.').filter(|part| part.len() > 8) {
        assert!(!text.contains(part), "{text}");
        for piece in part.as_bytes().chunks(24).filter(|piece| piece.len() == 24) {
            assert!(!text.contains(std::str::from_utf8(piece).unwrap()), "{text}");
        }
    }
    assert!(!text.contains(CANARY), "{text}");
}

fn printed(value: &impl Debug) -> String {
    format!("{value:?} {value:#?}")
}

#[tokio::test]
async fn a_verified_token_does_not_show_the_token() {
    let signer = Signer::es256("k1");
    let verifier = verifier(&[&signer]);
    let mut agent = claims_with("placet_kind", json!("agent"));
    agent["sub"] = json!("bot");
    agent["client_id"] = json!("portal");
    let agent = signer.sign(&agent);
    let mut user = claims_with("jti", json!(CANARY));
    user["client_id"] = json!("portal");
    let user = signer.sign(&user);
    let actor = verifier.verify(&agent, TokenRole::Actor).await.unwrap();
    let delegation = verifier.verify(&user, TokenRole::Delegation).await.unwrap();
    for token in [&agent, &user] {
        assert_hidden(&printed(&actor), token);
        assert_hidden(&printed(&delegation), token);
        assert_hidden(&delegation.token_ref(), token);
        assert_hidden(&printed(&verifier), token);
    }
    let caller = VerifiedCaller::bind(actor, Some(delegation)).unwrap();
    assert_hidden(&printed(&caller), &agent);
    assert_hidden(&printed(&caller), &user);
}

#[tokio::test]
async fn no_refusal_shows_the_token_and_the_caller_learns_no_cause() {
    let (signer, stranger) = (Signer::es256("k1"), Signer::es256("k1"));
    let verifier = verifier(&[&signer]);
    let good = signer.sign(&claims_with("jti", json!(CANARY)));
    let mut tokens = vec![
        stranger.sign(&claims()),
        format!("{good}x"),
        format!("{good}.{good}"),
        good.replace('.', "-"),
        format!("{CANARY}.{CANARY}.{CANARY}"),
        URL_SAFE_NO_PAD.encode(CANARY),
    ];
    for claim in [
        "sub",
        "aud",
        "exp",
        "iat",
        "nbf",
        "groups",
        "scope",
        "jti",
        "azp",
        "act",
        "may_act",
        "placet_kind",
    ] {
        tokens.push(signer.sign(&claims_with(claim, json!({ CANARY: CANARY }))));
        tokens.push(signer.sign(&claims_with(claim, json!(7.5))));
    }
    for claim in ["aud", "exp", "iat", "nbf", "act", "may_act", "placet_kind"] {
        tokens.push(signer.sign(&claims_with(claim, json!(CANARY))));
    }
    for token in &tokens {
        let refused = verify(&verifier, token).await.unwrap_err();
        assert_hidden(
            &format!("{} {refused} {}", printed(&refused), printed(&refused.refusal())),
            token,
        );
        assert_eq!(refused.code(), ErrorCode::Unauthenticated, "{refused}");
        assert_eq!(refused.refusal().message, "the token is not valid for this service");
    }
}

#[tokio::test]
async fn a_name_from_a_token_cannot_fake_a_line_of_the_log() {
    let signer = Signer::es256("k1");
    let forged = signer.sign(&claims_with("iss", json!(format!("x\n{}", "y".repeat(500)))));
    let refused = verify(&verifier(&[&signer]), &forged).await.unwrap_err();
    assert!(
        matches!(&refused, IdentityError::UnknownIssuer(issuer) if issuer.chars().count() == 64)
    );
    assert!(!refused.to_string().contains('\n'));
}

#[test]
fn secrets_and_keys_are_not_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    fs::write(&path, CANARY).unwrap();
    let secrets = Secrets::new(BTreeMap::from([
        ("env".to_owned(), SecretSource::Env(SecretString::from(CANARY))),
        ("file".to_owned(), SecretSource::File(path.clone())),
    ]));
    assert!(secrets.check().is_ok());
    let mut text = printed(&secrets);
    for name in ["env", "file"] {
        text.push_str(&printed(&secrets.get(name).unwrap()));
    }
    // A secret that was never valid: after a valid one, the last version would stay in use.
    let broken = dir.path().join("broken");
    fs::write(&broken, format!("{CANARY}\0")).unwrap();
    let broken = BTreeMap::from([("file".to_owned(), SecretSource::File(broken))]);
    let refused = Secrets::new(broken).get("file").unwrap_err();
    text.push_str(&format!("{} {refused}", printed(&refused)));
    assert!(!text.contains(CANARY), "{text}");

    let key = DevKey::load_or_create(dir.path()).unwrap();
    let written: Value =
        serde_json::from_str(&fs::read_to_string(DevKey::path(dir.path())).unwrap()).unwrap();
    let private = written["d"].as_str().unwrap();
    assert_eq!(private.len(), 43);
    assert!(!printed(&key).contains(private));
    assert!(!key.key_set().to_string().contains(private));
    let id = "bot".parse().unwrap();
    let request = MintRequest::new(tenant(), PrincipalKind::Agent, id, US);
    let token = key.mint(&request, clock_at(NOW_S).as_ref()).unwrap();
    assert_hidden(&format!("{} {}", printed(&request), printed(&key)), &token);
}

#[test]
fn a_private_key_in_the_configuration_is_not_printed() {
    let signer = Signer::es256("k1");
    let mut keys = key_set(&[&signer]);
    keys["keys"][0]["d"] = json!(CANARY);
    let issuer = issuer(KeySource::Inline(keys.clone()));
    assert!(!printed(&issuer).contains(CANARY));
    let config = super::support::config(vec![issuer]);
    let refused = crate::Verifier::new(config, clock_at(NOW_S), None).unwrap_err();
    assert!(!format!("{refused} {}", printed(&refused)).contains(CANARY));
}
