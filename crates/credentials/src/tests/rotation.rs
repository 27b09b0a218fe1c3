//! The client's secret: rotated under load, here first or there first.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use parking_lot::Mutex;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use placet_identity::{SecretSource, Secrets};
use placet_types::contract::credential::CachePolicy;
use serde_json::json;

use super::support::{Act, Seen, Service, good, request};
use crate::{BrokerError, GrantRequest};

fn in_file(path: &Path) -> Secrets {
    Secrets::new(BTreeMap::from([("sts".to_owned(), SecretSource::File(path.to_owned()))]))
}

/// The secret that a request was made with.
fn shown(seen: &Seen) -> String {
    let line = seen.head.lines().find(|line| line.to_lowercase().starts_with("authorization:"));
    let basic = line.unwrap().rsplit(' ').next().unwrap();
    let pair = String::from_utf8(STANDARD.decode(basic).unwrap()).unwrap();
    pair.split_once(':').unwrap().1.to_owned()
}

/// A service that knows these secrets.
async fn knowing(known: Arc<Mutex<Vec<&'static str>>>) -> Service {
    Service::start(move |_, seen| {
        let secret = shown(seen);
        if known.lock().iter().any(|known| *known == secret) {
            Act::Answer(200, good().to_string())
        } else {
            Act::Answer(401, json!({ "error": "invalid_client" }).to_string())
        }
    })
    .await
}

fn never() -> GrantRequest {
    GrantRequest { cache: CachePolicy::Never, ..request() }
}

fn replace(path: &Path, value: &str) {
    let next = path.with_extension("next");
    fs::write(&next, value).unwrap();
    fs::rename(next, path).unwrap();
}

#[tokio::test]
async fn rotated_secret_needs_no_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sts");
    fs::write(&path, "first").unwrap();
    let known = Arc::new(Mutex::new(vec!["first"]));
    let service = knowing(Arc::clone(&known)).await;
    let (broker, _) = service.broker_of(service.config(), in_file(&path));
    let pause = std::time::Duration::from_millis(20);
    let calls = {
        let broker = broker.clone();
        tokio::spawn(async move {
            for _ in 0..150 {
                broker.mint(never()).await.expect("no call is lost");
                tokio::time::sleep(std::time::Duration::from_millis(2)).await;
            }
        })
    };
    // First the file, while the service knows only the old one; then the other way round. Both know both for a while.
    for (number, value) in ["second", "third"].into_iter().enumerate() {
        let begun = async {
            while service.seen().len() < 40 * (number + 1) {
                tokio::time::sleep(pause / 10).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), begun).await.expect("calls go on");
        if number == 0 {
            replace(&path, value);
            tokio::time::sleep(pause).await;
            known.lock().push(value);
        } else {
            known.lock().push(value);
            tokio::time::sleep(pause).await;
            replace(&path, value);
        }
        tokio::time::sleep(pause).await;
        *known.lock() = vec![value];
    }
    calls.await.unwrap();
    let seen = service.seen();
    let last: Vec<String> = seen.iter().rev().take(10).map(shown).collect();
    assert!(last.iter().all(|secret| secret == "third"), "{last:?}");
}

#[tokio::test]
async fn a_half_written_secret_is_not_shown_to_anybody() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sts");
    fs::write(&path, "a whole secret").unwrap();
    let service = knowing(Arc::new(Mutex::new(vec!["a+whole+secret"]))).await;
    let (broker, _) = service.broker_of(service.config(), in_file(&path));
    for half in ["a whole secret", "", "a who", "\n"] {
        fs::write(&path, half).unwrap();
        assert!(broker.mint(never()).await.is_ok(), "{half:?}");
    }
    fs::remove_file(&path).unwrap();
    let gone = broker.mint(never()).await.unwrap_err();
    assert!(matches!(gone, BrokerError::ClientSecret(_)), "{gone:?}");
    assert_eq!(service.seen().len(), 4);
}

#[tokio::test]
async fn a_client_that_is_refused_is_not_presented_again_until_its_secret_changes() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sts");
    fs::write(&path, "wrong").unwrap();
    let service = knowing(Arc::new(Mutex::new(vec!["right"]))).await;
    let (broker, clock) = service.broker_of(service.config(), in_file(&path));
    for _ in 0..5 {
        let error = broker.mint(never()).await.unwrap_err();
        assert!(matches!(error, BrokerError::ClientRefused(_)), "{error:?}");
    }
    assert_eq!(service.seen().len(), 1);
    replace(&path, "right");
    assert!(broker.mint(never()).await.is_ok());
    replace(&path, "wrong again");
    // The one before is still live, and known.
    assert!(broker.mint(never()).await.is_ok());
    replace(&path, "and again");
    assert!(broker.mint(never()).await.is_err());
    let asked = service.seen().len();
    assert!(broker.mint(never()).await.is_err());
    assert_eq!(service.seen().len(), asked);
    clock.advance(30_001);
    assert!(broker.mint(never()).await.is_err());
    assert!(service.seen().len() > asked, "it is tried again after a while");
}
