//! Where keys come from: what a set may hold, how it rotates, and how seldom it is fetched.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use placet_egress::{EgressClient, EgressPolicy, Limits};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::support::{
    ISSUER, NOW_S, Signer, claims, clock_at, config, issuer, key_set, verifier_of, verify,
};
use crate::{IdentityConfig, IdentityError, KeyError, KeySource, SetupError, Verifier};

fn set_up(keys: Value) -> Result<Verifier, SetupError> {
    Verifier::new(config(vec![issuer(KeySource::Inline(keys))]), clock_at(NOW_S), None)
}

/// Why a set is refused whole.
fn refusal_of(keys: Value) -> String {
    let refused = set_up(keys).unwrap_err();
    let SetupError::Issuer { problem, .. } = refused else { panic!("{refused:?}") };
    problem
}

fn changed(signer: &Signer, member: &str, value: Value) -> Value {
    let mut jwk = signer.jwk();
    jwk[member] = value;
    json!({ "keys": [jwk] })
}

#[test]
fn a_key_that_cannot_verify_is_left_out_and_an_empty_set_is_refused() {
    let (ec, ed) = (Signer::es256("k1"), Signer::ed25519("k1", 1));
    let rsa = Signer::rsa("k1", jsonwebtoken::Algorithm::RS256);
    for keys in [
        json!({ "keys": [] }),
        json!({ "keys": [{ "kty": "oct", "kid": "k1", "k": "c2VjcmV0" }] }),
        changed(&ec, "use", json!("enc")),
        changed(&ec, "key_ops", json!(["sign"])),
        changed(&ec, "alg", json!("HS256")),
        changed(&ec, "alg", json!("RS256")),
        changed(&ec, "kid", json!("")),
        changed(&ec, "kid", json!(7)),
        changed(&ec, "crv", json!("P-521")),
        changed(&ec, "x", json!("AAAA")),
        changed(&ec, "x", json!("A".repeat(43))),
        changed(&ed, "x", json!("AAAA")),
        changed(&ed, "crv", json!("Ed448")),
        changed(&rsa, "n", json!("AQAB")),
        changed(&rsa, "e", json!("A".repeat(400))),
    ] {
        assert_eq!(refusal_of(keys.clone()), KeyError::Empty.to_string(), "{keys}");
    }
}

#[test]
fn a_set_that_publishes_a_private_key_is_refused() {
    let keys = changed(&Signer::es256("k1"), "d", json!("c2VjcmV0"));
    assert!(refusal_of(keys).contains("the private part of key `k1`"));
}

#[test]
fn two_keys_of_one_name_and_type_are_refused() {
    let (one, two, other_type) =
        (Signer::es256("k1"), Signer::es256("k1"), Signer::ed25519("k1", 3));
    assert!(refusal_of(key_set(&[&one, &two])).contains("two keys `k1` of the same type"));
    assert!(set_up(key_set(&[&one, &other_type])).is_ok());
}

#[test]
fn a_set_of_another_form_or_size_is_refused() {
    for keys in [json!([]), json!({}), json!({ "keys": {} }), json!({ "keys": ["k"] })] {
        assert!(refusal_of(keys).contains("it is malformed"));
    }
    let many: Vec<Signer> = (0..101).map(|n| Signer::ed25519(&format!("k{n}"), n)).collect();
    let refused = refusal_of(key_set(&many.iter().collect::<Vec<_>>()));
    assert!(refused.contains("more than 100 keys"), "{refused}");
}

#[test]
fn a_file_of_keys_that_is_missing_or_not_sound_stops_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.json");
    let start = || {
        let issuers = vec![issuer(KeySource::File(path.clone()))];
        Verifier::new(config(issuers), clock_at(NOW_S), None).map(drop)
    };
    assert!(start().is_err());
    for text in ["", "{", r#"{"keys":[],"keys":[]}"#, &" ".repeat(300 * 1024)] {
        fs::write(&path, text).unwrap();
        assert!(start().is_err());
    }
    fs::write(&path, key_set(&[&Signer::es256("k1")]).to_string()).unwrap();
    assert!(start().is_ok());
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(start().is_err());
}

#[test]
fn a_configuration_that_is_not_sound_is_refused() {
    let signer = Signer::es256("k1");
    let sound = || issuer(KeySource::Inline(key_set(&[&signer])));
    let refused = |issuer| Verifier::new(config(vec![issuer]), clock_at(NOW_S), None).is_err();
    assert!(!refused(sound()));
    assert!(refused(crate::IssuerConfig { issuer: String::new(), ..sound() }));
    assert!(refused(crate::IssuerConfig { audiences: BTreeSet::new(), ..sound() }));
    assert!(refused(crate::IssuerConfig { audiences: BTreeSet::from([String::new()]), ..sound() }));
    assert!(refused(crate::IssuerConfig { algorithms: Vec::new(), ..sound() }));
    assert!(refused(crate::IssuerConfig { lifetime_s_max: 0, ..sound() }));
    assert!(refused(crate::IssuerConfig { lifetime_s_max: 86_401, ..sound() }));
    assert!(refused(crate::IssuerConfig { principal_prefix: " ".to_owned(), ..sound() }));
    assert!(refused(crate::IssuerConfig {
        kinds: crate::KindRule::Claim(BTreeSet::new()),
        ..sound()
    }));
    let url = KeySource::Url("https://idp.example/jwks".parse().unwrap());
    assert!(refused(issuer(url)), "a URL without a client");
    let limits = |config: IdentityConfig| config.check().is_err();
    assert!(limits(IdentityConfig { leeway_s: 6, ..IdentityConfig::default() }));
    assert!(limits(IdentityConfig { keys_retry_s_min: 0, ..IdentityConfig::default() }));
    assert!(limits(IdentityConfig { keys_stale_s_max: 1, ..IdentityConfig::default() }));
}

#[test]
fn two_issuers_of_a_tenant_cannot_name_the_same_principal_unnoticed() {
    let signer = Signer::es256("k1");
    let first = issuer(KeySource::Inline(key_set(&[&signer])));
    let mut second =
        crate::IssuerConfig { issuer: "https://two.example/".to_owned(), ..first.clone() };
    assert!(config(vec![first.clone(), first.clone()]).check().is_err());
    assert!(config(vec![first.clone(), second.clone()]).check().is_err());
    second.principal_prefix = "two:".to_owned();
    assert!(
        config(vec![first.clone(), second.clone()]).check().is_err(),
        "the first could say `two:ada`"
    );
    let one = crate::IssuerConfig { principal_prefix: "one:".to_owned(), ..first.clone() };
    assert!(config(vec![one, second.clone()]).check().is_ok());
    second.shared_principals = true;
    assert!(config(vec![first, second]).check().is_ok());
}

#[test]
fn the_configuration_file_has_defaults_and_no_unknown_or_symmetric_words() {
    let text = r#"{ "issuers": [{ "issuer": "i", "tenant": "t", "audiences": ["a"],
        "keys": { "file": "/keys.json" }, "kinds": { "fixed": "agent" }, "attests_workloads": true }] }"#;
    let read: IdentityConfig = serde_json::from_str(text).unwrap();
    assert_eq!((read.leeway_s, read.issuers[0].lifetime_s_max), (5, 3_600));
    assert!(!read.issuers[0].accept_typ_jwt && read.warnings().is_empty());
    let written = serde_json::to_string(&read).unwrap();
    assert_eq!(serde_json::from_str::<IdentityConfig>(&written).unwrap(), read);
    for bad in [
        text.replace("\"kinds\"", "\"passthrough\": true, \"kinds\""),
        text.replace("\"kinds\"", "\"algorithms\": [\"HS256\"], \"kinds\""),
        text.replace("\"kinds\"", "\"algorithms\": [\"none\"], \"kinds\""),
    ] {
        assert!(serde_json::from_str::<IdentityConfig>(&bad).is_err());
    }
    let lenient = text.replace("\"kinds\"", "\"accept_typ_jwt\": true, \"kinds\"");
    assert_eq!(serde_json::from_str::<IdentityConfig>(&lenient).unwrap().warnings().len(), 1);
}

#[test]
fn an_issuer_of_people_that_does_not_say_which_clients_they_use_is_warned_of() {
    let text = |kinds: &str, more: &str| {
        let issuer = format!(
            r#"{{ "issuer": "corp", "tenant": "t", "audiences": ["a"], "keys": {{ "file": "/keys.json" }}, "kinds": {kinds}{more} }}"#
        );
        format!(r#"{{ "issuers": [{issuer}] }}"#)
    };
    for (kinds, more, warned) in [
        (r#"{ "claim": ["user", "agent"] }"#, "", true),
        (r#"{ "claim": ["user"] }"#, "", true),
        (r#"{ "fixed": "user" }"#, "", true),
        (r#"{ "fixed": "user" }"#, r#", "act": {}"#, true),
        (r#"{ "claim": ["user", "agent"] }"#, r#", "person_clients": ["cli"]"#, false),
        (r#"{ "claim": ["agent", "service"] }"#, "", false),
        (r#"{ "fixed": "agent" }"#, "", false),
    ] {
        let read: IdentityConfig = serde_json::from_str(&text(kinds, more)).unwrap();
        let warnings = read.warnings().concat();
        assert_eq!(warnings.contains("`person_clients`"), warned, "{kinds}{more}: {warnings}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rotated_file_is_noticed_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.json");
    let (old, new) = (Signer::es256("old"), Signer::es256("new"));
    fs::write(&path, key_set(&[&old]).to_string()).unwrap();
    let verifier = verifier_of(vec![issuer(KeySource::File(path.clone()))]);
    assert!(verify(&verifier, &old.sign(&claims())).await.is_ok());
    fs::write(&path, key_set(&[&old, &new]).to_string()).unwrap();
    assert!(verify(&verifier, &new.sign(&claims())).await.is_ok(), "an unknown key makes it look");
    // Half a file, as a writer that was interrupted leaves it, replaces nothing.
    fs::write(&path, r#"{"keys":[{"kty"#).unwrap();
    assert_eq!(verifier.refresh().await.len(), 1);
    assert!(verify(&verifier, &old.sign(&claims())).await.is_ok());
    fs::write(&path, key_set(&[&new]).to_string()).unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    let refused = verify(&verifier, &old.sign(&claims())).await.unwrap_err();
    assert!(
        matches!(refused, IdentityError::UnknownKey { .. }),
        "a withdrawn key ends without a restart"
    );
    assert!(verify(&verifier, &new.sign(&claims())).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn keys_that_cannot_be_loaded_any_more_are_used_for_a_bounded_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("keys.json");
    let signer = Signer::es256("k1");
    fs::write(&path, key_set(&[&signer]).to_string()).unwrap();
    let verifier = verifier_of(vec![issuer(KeySource::File(path.clone()))]);
    fs::remove_file(&path).unwrap();
    tokio::time::advance(Duration::from_secs(3_599)).await;
    assert!(verify(&verifier, &signer.sign(&claims())).await.is_ok());
    tokio::time::advance(Duration::from_secs(2)).await;
    let refused = verify(&verifier, &signer.sign(&claims())).await.unwrap_err();
    assert_eq!(refused, IdentityError::KeysUnavailable(ISSUER.to_owned()));
    assert_eq!(verifier.issuers_without_keys(), [ISSUER]);
    fs::write(&path, key_set(&[&signer]).to_string()).unwrap();
    assert!(verifier.refresh().await.is_empty());
    assert!(verify(&verifier, &signer.sign(&claims())).await.is_ok());
}

/// The value that makes the server hang.
const HANGS: &str = "hangs";

/// Put before an answer that takes longer than the shortest time between two fetches.
const SLOW: &str = "slow:";

/// An HTTP server on loopback that answers every request alike, and counts.
struct KeyServer {
    url: url::Url,
    requests: Arc<AtomicUsize>,
    answer: Arc<Mutex<String>>,
}

impl KeyServer {
    async fn start(answer: String) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap()).parse().unwrap();
        let (requests, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(answer)));
        let (counter, current) = (Arc::clone(&requests), Arc::clone(&answer));
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                let (counter, current) = (Arc::clone(&counter), Arc::clone(&current));
                tokio::spawn(async move {
                    let mut head = vec![0; 4_096];
                    let _read = socket.read(&mut head).await.unwrap();
                    counter.fetch_add(1, Ordering::SeqCst);
                    let answer = current.lock().clone();
                    if let Some(slow) = answer.strip_prefix(SLOW) {
                        tokio::time::sleep(Duration::from_millis(1_200)).await;
                        return socket.write_all(slow.as_bytes()).await.unwrap();
                    }
                    if answer == HANGS {
                        std::future::pending::<()>().await;
                    }
                    socket.write_all(answer.as_bytes()).await.unwrap();
                });
            }
        });
        Self { url, requests, answer }
    }

    fn say(&self, answer: String) {
        *self.answer.lock() = answer;
    }

    fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    fn verifier(&self, change: impl FnOnce(&mut IdentityConfig)) -> Verifier {
        let mut issuer = issuer(KeySource::Url(self.url.clone()));
        issuer.keys_private_network = true;
        let mut config = config(vec![issuer]);
        change(&mut config);
        let policy = EgressPolicy::new(config.key_destinations().unwrap());
        let client = EgressClient::new(policy, Limits::default()).unwrap();
        Verifier::new(config, clock_at(NOW_S), Some(client)).unwrap()
    }
}

fn answer(status: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    )
}

#[tokio::test]
async fn keys_behind_a_url_are_fetched_once_and_used_for_every_token() {
    let signer = Signer::es256("k1");
    let server = KeyServer::start(answer("200 OK", &key_set(&[&signer]).to_string())).await;
    let verifier = server.verifier(|_| {});
    assert_eq!(verifier.issuers_without_keys(), [ISSUER]);
    for _ in 0..5 {
        assert!(verify(&verifier, &signer.sign(&claims())).await.is_ok());
    }
    assert_eq!(server.requests(), 1);
    assert!(verifier.issuers_without_keys().is_empty());
}

#[tokio::test]
async fn ten_thousand_unknown_keys_cause_one_fetch() {
    let (signer, stranger) = (Signer::es256("k1"), Signer::ed25519("x", 9));
    let server = KeyServer::start(answer("200 OK", &key_set(&[&signer]).to_string())).await;
    let verifier = server.verifier(|config| {
        (config.keys_refresh_s, config.keys_retry_s_min) = (600, 600);
    });
    assert!(verifier.refresh().await.is_empty());
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..10_000 {
        let forged = Signer {
            key: stranger.key.clone(),
            algorithm: stranger.algorithm,
            kid: format!("kid-{n}"),
        };
        let (verifier, token) = (verifier.clone(), forged.sign(&claims()));
        tasks.spawn(async move { verify(&verifier, &token).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        assert!(matches!(outcome.unwrap().unwrap_err(), IdentityError::UnknownKey { .. }));
    }
    assert_eq!(server.requests(), 1, "the refresh was just now, so none of them is due another");
    assert!(verify(&verifier, &signer.sign(&claims())).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_says_it_has_no_keys_withdraws_the_known_ones_and_half_an_answer_does_not() {
    let signer = Signer::es256("k1");
    let full = key_set(&[&signer]).to_string();
    let server = KeyServer::start(answer("200 OK", &full)).await;
    let verifier = server.verifier(|_| {});
    let token = signer.sign(&claims());
    verify(&verifier, &token).await.unwrap();
    for half in ["", "{\"keys\":[", "{}", full.strip_suffix('}').unwrap()] {
        server.say(answer("200 OK", half));
        assert_eq!(verifier.refresh().await.len(), 1, "`{half}`");
        verify(&verifier, &token).await.expect("an outage does not end what is known");
    }
    for none in [json!({ "keys": [] }), json!({ "keys": [{ "kty": "oct", "kid": "k1" }] })] {
        server.say(answer("200 OK", &none.to_string()));
        assert_eq!(verifier.refresh().await.len(), 1);
        let refused = verify(&verifier, &token).await.unwrap_err();
        assert!(matches!(refused, IdentityError::KeysUnavailable(_)), "{refused}");
        server.say(answer("200 OK", &full));
        assert!(verifier.refresh().await.is_empty());
        verify(&verifier, &token).await.unwrap();
    }
}

#[tokio::test]
async fn a_new_key_behind_a_url_is_found_by_one_more_fetch() {
    let (old, new) = (Signer::es256("old"), Signer::es256("new"));
    let server = KeyServer::start(answer("200 OK", &key_set(&[&old]).to_string())).await;
    let verifier = server.verifier(|config| config.keys_retry_s_min = 1);
    assert!(verify(&verifier, &old.sign(&claims())).await.is_ok());
    server.say(answer("200 OK", &key_set(&[&old, &new]).to_string()));
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    let tokens: Vec<String> = (0..50).map(|_| new.sign(&claims())).collect();
    let mut tasks = tokio::task::JoinSet::new();
    for token in tokens {
        let verifier = verifier.clone();
        tasks.spawn(async move { verify(&verifier, &token).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        assert!(outcome.unwrap().is_ok());
    }
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn tokens_that_wait_for_a_slow_fetch_share_it() {
    let signer = Signer::es256("k1");
    let slow = format!("{SLOW}{}", answer("200 OK", &key_set(&[&signer]).to_string()));
    let server = KeyServer::start(slow).await;
    let verifier = server.verifier(|config| config.keys_retry_s_min = 1);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (verifier, token) = (verifier.clone(), signer.sign(&claims()));
        tasks.spawn(async move { verify(&verifier, &token).await });
    }
    while let Some(outcome) = tasks.join_next().await {
        assert!(outcome.unwrap().is_ok());
    }
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn an_issuer_that_hangs_holds_up_no_token_whose_key_is_known() {
    let signer = Signer::es256("k1");
    let server = KeyServer::start(answer("200 OK", &key_set(&[&signer]).to_string())).await;
    let verifier =
        server.verifier(|config| (config.keys_retry_s_min, config.keys_refresh_s) = (1, 1));
    assert!(verify(&verifier, &signer.sign(&claims())).await.is_ok());
    server.say(HANGS.to_owned());
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for _ in 0..20 {
        let token = signer.sign(&claims());
        let verified =
            tokio::time::timeout(Duration::from_secs(2), verify(&verifier, &token)).await;
        assert!(verified.unwrap().is_ok());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(server.requests(), 2, "one fetch hangs, no second one is begun beside it");
}

#[tokio::test]
async fn an_address_that_answers_badly_gives_no_keys_and_keeps_the_old_ones() {
    let signer = Signer::es256("k1");
    let good = answer("200 OK", &key_set(&[&signer]).to_string());
    let server = KeyServer::start(answer("503 Service Unavailable", "")).await;
    let verifier = server.verifier(|_| {});
    let refused = verify(&verifier, &signer.sign(&claims())).await.unwrap_err();
    assert_eq!(refused, IdentityError::KeysUnavailable(ISSUER.to_owned()));
    server.say(good);
    assert!(verifier.refresh().await.is_empty());
    let huge = format!("{{\"keys\":[],\"x\":\"{}\"}}", "x".repeat(300 * 1024));
    for bad in [
        answer("500 Internal Server Error", "keys"),
        answer("302 Found", ""),
        answer("200 OK", "<html>"),
        answer("200 OK", &huge),
        "not http".to_owned(),
    ] {
        server.say(bad);
        assert_eq!(verifier.refresh().await.len(), 1);
        assert!(verify(&verifier, &signer.sign(&claims())).await.is_ok());
    }
}

#[test]
fn plain_http_is_no_destination_unless_private_networks_are_named() {
    let mut issuer = issuer(KeySource::Url("http://127.0.0.1:9/jwks".parse().unwrap()));
    assert!(config(vec![issuer.clone()]).key_destinations().is_err());
    issuer.keys_private_network = true;
    assert_eq!(config(vec![issuer]).key_destinations().unwrap().len(), 1);
}

#[test]
fn an_issuer_of_workloads_that_does_not_attest_is_warned_of() {
    let text = |rest: &str| {
        let issuer = format!(
            r#"{{ "issuer": "corp", "tenant": "t", "audiences": ["a"], "keys": {{ "file": "/keys.json" }}, "person_clients": ["cli"], {rest} }}"#
        );
        format!(r#"{{ "issuers": [{issuer}] }}"#)
    };
    for (rest, warned) in [
        (r#""kinds": { "claim": ["user", "agent"] }"#, true),
        (r#""kinds": { "fixed": "service" }"#, true),
        (r#""kinds": { "fixed": "user" }, "act": {}"#, true),
        (r#""kinds": { "fixed": "user" }"#, false),
        (r#""kinds": { "fixed": "agent" }, "attests_workloads": true"#, false),
    ] {
        let read: IdentityConfig = serde_json::from_str(&text(rest)).unwrap();
        let warnings = read.warnings().concat();
        assert_eq!(warnings.contains("`attests_workloads: true`"), warned, "{rest}: {warnings}");
    }
}
