//! What may be configured of a vault, and what an entry's name can be.

use std::path::PathBuf;

use super::{VaultAuth, VaultConfig, VaultRef};

fn config(address: &str) -> VaultConfig {
    VaultConfig {
        address: address.parse().unwrap(),
        namespace: None,
        private_network: false,
        auth: VaultAuth::TokenFile { file: PathBuf::from("token") },
        refresh_ms: 30_000,
        stale_ms_max: 900_000,
    }
}

#[test]
fn a_reference_names_a_field_of_an_entry_and_leads_nowhere_else() {
    for (text, path, field) in [
        ("secret/data/tickets#key", "secret/data/tickets", "key"),
        ("database/creds/reader#password", "database/creds/reader", "password"),
        ("team a/kv/data/x#a field", "team a/kv/data/x", "a field"),
    ] {
        let at: VaultRef = text.parse().unwrap();
        assert_eq!((at.path(), at.field()), (path, field));
        assert_eq!(at.to_string(), text);
    }
    for text in [
        "",
        "secret",
        "secret/data/x",
        "secret#x",
        "secret/data/x#",
        "secret/data/x#a#b",
        "secret//x#a",
        "/secret/data/x#a",
        "secret/data/x/#a",
        "secret/../sys/raw#a",
        "secret/./x#a",
        "secret/data/x?version=1#a",
        "secret\\data/x#a",
        "secret/da\nta#a",
        "sys/raw/core#a",
        "auth/token/lookup-self#id",
    ] {
        text.parse::<VaultRef>().expect_err(text);
    }
    format!("secret/{}#a", "x".repeat(1_024)).parse::<VaultRef>().unwrap_err();
}

#[test]
fn plain_http_is_only_for_private_ranges_that_are_named() {
    config("https://vault.example:8200").check().unwrap();
    let plain = config("http://127.0.0.1:8200");
    assert!(plain.check().unwrap_err().contains("`address`"));
    VaultConfig { private_network: true, ..plain }.check().unwrap();
    assert!(config("https://user:pass@vault.example").check().is_err());
    assert!(config("https://vault.example/v1").check().unwrap_err().contains("alone"));
}

#[test]
fn what_cannot_be_meant_is_refused_at_start() {
    let with = |change: &dyn Fn(&mut VaultConfig)| {
        let mut config = config("https://vault.example");
        change(&mut config);
        config.check().unwrap_err()
    };
    for namespace in ["", "/", "a//b", "../b", "a b", "a\nb"] {
        let said = with(&|config| config.namespace = Some(namespace.to_owned()));
        assert!(said.contains("`namespace`"), "{namespace}: {said}");
    }
    assert!(with(&|config| config.refresh_ms = 10).contains("`refresh_ms`"));
    assert!(with(&|config| config.stale_ms_max = 10).contains("`stale_ms_max`"));
    let jwt = |role: &str, mount: &str| VaultAuth::Jwt {
        role: role.to_owned(),
        file: PathBuf::from("jwt"),
        mount: mount.to_owned(),
    };
    for (role, mount) in [("", "jwt"), ("placet", ""), ("placet", "a/../b")] {
        assert!(with(&|config| config.auth = jwt(role, mount)).contains("`auth`"));
    }
}

#[test]
fn the_form_of_the_file_has_defaults_and_refuses_what_it_does_not_know() {
    let read = |text: &str| serde_json::from_str::<VaultConfig>(text);
    let auth = r#""auth": { "method": "jwt", "role": "placet", "file": "f" }"#;
    let config = read(&format!(r#"{{ "address": "https://vault.example", {auth} }}"#)).unwrap();
    assert!(matches!(config.auth, VaultAuth::Jwt { ref mount, .. } if mount == "jwt"));
    assert_eq!((config.refresh_ms, config.stale_ms_max), (30_000, 900_000));
    read(&format!(r#"{{ "address": "https://vault.example", "token": "s", {auth} }}"#))
        .unwrap_err();
    read(r#"{ "address": "https://vault.example", "auth": { "method": "token", "token": "s" } }"#)
        .unwrap_err();
}
