//! The development key: its file, its reach and its tokens.

use std::{collections::BTreeSet, fs, net::IpAddr, os::unix::fs::PermissionsExt as _};

use placet_types::{
    ids::{GroupId, PrincipalId, TenantId},
    principal::PrincipalKind,
};

use super::support::{NOW_S, US, clock_at, config, tenant};
use crate::{
    DEV_LIFETIME_S_MAX, DevKey, IdentityError, MintRequest, SetupError, TokenRole, VerifiedCaller,
    Verifier,
};

const LOOPBACK: &str = "127.0.0.1";

fn verifier(key: &DevKey) -> Verifier {
    let audiences = BTreeSet::from([US.to_owned()]);
    let issuer = key.issuer_config(LOOPBACK.parse().unwrap(), tenant(), audiences).unwrap();
    Verifier::new(config(vec![issuer]), clock_at(NOW_S), None).unwrap()
}

fn request(kind: PrincipalKind, id: &str) -> MintRequest {
    MintRequest::new(tenant(), kind, PrincipalId::new(id).unwrap(), US)
}

fn mint(key: &DevKey, request: &MintRequest) -> Result<String, SetupError> {
    key.mint(request, clock_at(NOW_S).as_ref())
}

#[test]
fn the_key_is_made_once_and_only_its_owner_can_read_it() {
    let dir = tempfile::tempdir().unwrap();
    let made = DevKey::load_or_create(dir.path()).unwrap();
    let path = DevKey::path(dir.path());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(DevKey::load_or_create(dir.path()).unwrap().kid, made.kid);
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no draft stays behind");
    assert_ne!(DevKey::generate().unwrap().kid, made.kid);
}

#[test]
fn a_key_file_that_others_can_read_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(DevKey::load_or_create(dir.path()).unwrap());
    let path = DevKey::path(dir.path());
    for mode in [0o644, 0o640, 0o604, 0o620] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let refused = DevKey::load_or_create(dir.path()).unwrap_err();
        assert!(matches!(refused, SetupError::DevKeyFile { .. }), "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    assert!(DevKey::load_or_create(dir.path()).is_ok());
}

#[test]
fn a_broken_key_file_is_an_error_and_is_never_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = DevKey::path(dir.path());
    for text in [
        "",
        "{}",
        r#"{"kty":"RSA","crv":"P-256","d":"AAAA"}"#,
        r#"{"kty":"EC","crv":"P-256","d":"AAAA"}"#,
        r#"{"kty":"EC","crv":"P-256","d":"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"}"#,
    ] {
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(DevKey::load_or_create(dir.path()).is_err(), "{text}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert!(DevKey::load_or_create(&dir.path().join("absent")).is_err());
}

#[test]
fn processes_that_make_the_key_at_the_same_time_end_with_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let kids: BTreeSet<String> = std::thread::scope(|scope| {
        let make = || DevKey::load_or_create(dir.path()).unwrap().kid.clone();
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(make)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(kids.len(), 1);
}

#[test]
fn only_a_loopback_listener_accepts_development_tokens() {
    let key = DevKey::generate().unwrap();
    for (address, accepted) in [
        ("127.0.0.1", true),
        ("127.9.9.9", true),
        ("::1", true),
        ("::ffff:127.0.0.1", true),
        ("0.0.0.0", false),
        ("::", false),
        ("10.0.0.1", false),
        ("192.168.1.1", false),
        ("::ffff:10.0.0.1", false),
        ("203.0.113.1", false),
    ] {
        let address: IpAddr = address.parse().unwrap();
        assert_eq!(crate::refuse_off_loopback(address).is_ok(), accepted, "{address}");
        let issuer = key.issuer_config(address, tenant(), BTreeSet::from([US.to_owned()]));
        assert_eq!(issuer.is_ok(), accepted, "{address}");
    }
}

#[tokio::test]
async fn a_minted_token_verifies_with_everything_that_was_asked_for() {
    let key = DevKey::generate().unwrap();
    let mut request = request(PrincipalKind::User, "ada");
    request.groups = BTreeSet::from([GroupId::new("ops").unwrap()]);
    request.scopes = BTreeSet::from(["calls:write".to_owned()]);
    request.lifetime_s = DEV_LIFETIME_S_MAX;
    request.display = Some("Ada".to_owned());
    let token =
        verifier(&key).verify(&mint(&key, &request).unwrap(), TokenRole::Actor).await.unwrap();
    assert_eq!((token.principal().id.as_str(), token.kind()), ("ada", PrincipalKind::User));
    assert_eq!((token.groups(), token.scopes()), (&request.groups, &request.scopes));
    assert_eq!(token.expires_at().since_ms(token.issued_at), 43_200_000);
    assert_eq!(token.principal().display.as_deref(), Some("Ada"));
    assert_eq!(token.issuer(), "placet-dev/acme");
}

#[tokio::test]
async fn a_minted_delegation_is_for_the_actor_it_names() {
    let key = DevKey::generate().unwrap();
    let verifier = verifier(&key);
    let mut delegation = request(PrincipalKind::User, "ada");
    delegation.act = Some(PrincipalId::new("bot").unwrap());
    let user =
        verifier.verify(&mint(&key, &delegation).unwrap(), TokenRole::Delegation).await.unwrap();
    for (id, bound) in [("bot", true), ("other", false)] {
        let token = mint(&key, &request(PrincipalKind::Agent, id)).unwrap();
        let actor = verifier.verify(&token, TokenRole::Actor).await.unwrap();
        assert_eq!(VerifiedCaller::bind(actor, Some(user.clone())).is_ok(), bound, "{id}");
    }
}

#[tokio::test]
async fn a_token_of_another_key_or_tenant_is_refused() {
    let (key, other) = (DevKey::generate().unwrap(), DevKey::generate().unwrap());
    let verifier = verifier(&key);
    let stranger = mint(&other, &request(PrincipalKind::Agent, "bot")).unwrap();
    assert!(verifier.verify(&stranger, TokenRole::Actor).await.is_err());
    let mut elsewhere = request(PrincipalKind::Agent, "bot");
    elsewhere.tenant = TenantId::new("globex").unwrap();
    let refused =
        verifier.verify(&mint(&key, &elsewhere).unwrap(), TokenRole::Actor).await.unwrap_err();
    assert!(matches!(refused, IdentityError::UnknownIssuer(_)));
}

#[test]
fn a_token_that_would_not_be_accepted_is_not_made() {
    let key = DevKey::generate().unwrap();
    let good = request(PrincipalKind::Agent, "bot");
    assert!(mint(&key, &good).is_ok());
    for bad in [
        MintRequest { lifetime_s: 0, ..good.clone() },
        MintRequest { lifetime_s: DEV_LIFETIME_S_MAX + 1, ..good.clone() },
        MintRequest { audience: String::new(), ..good.clone() },
        MintRequest { scopes: BTreeSet::from(["two words".to_owned()]), ..good.clone() },
        MintRequest { act: Some(PrincipalId::new("x").unwrap()), ..good.clone() },
    ] {
        assert!(matches!(mint(&key, &bad).unwrap_err(), SetupError::Mint(_)));
    }
}
