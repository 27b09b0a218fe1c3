//! A Placet for one machine: who can use its development key, and who cannot though they can reach its port.
//!
//! Owns the configurations that would open it to others.

use serde_json::{Value, json};

use crate::harness::{client::text, setup::Setup};

#[tokio::test]
async fn the_development_key_is_refused_where_others_reach_the_service() {
    for (section, value, key) in [
        ("console", json!({ "public_url": "https://placet.example" }), "console.public_url"),
        ("http", json!({ "allowed_hosts": ["placet.example"] }), "http.allowed_hosts"),
        ("http", json!({ "allowed_origins": ["https://t.example"] }), "http.allowed_origins"),
        ("audience", json!("https://placet.example"), "audience"),
    ] {
        let setup = Setup::new().with(section, value);
        setup.refuses().await.says(&["refused to accept development tokens", key, "`issuers:`"]);
        let doctor = setup.configured(&["doctor", "--json"]).await;
        assert_eq!(doctor.code, Some(1), "{doctor:?}");
        let checks: Value = serde_json::from_str(&doctor.out).unwrap();
        let failed = checks.as_array().unwrap().iter().find(|check| check["level"] == "fail");
        let found = text(failed.unwrap(), "found");
        assert!(found.contains(key) && found.contains("development tokens"), "{found}");
    }
    let setup = Setup::new().with("http", json!({ "allowed_hosts": ["localhost"] }));
    setup.start().await.stop().await;
}
