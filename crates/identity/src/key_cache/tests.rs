//! A file that does not answer, or late, as on a mount that hangs.

use std::{collections::BTreeSet, fs};

use serde_json::json;

use super::*;
use crate::{
    config::KindRule,
    tests::support::{ISSUER, Signer, US, config, key_set, tenant},
};

struct World {
    file: tempfile::NamedTempFile,
    signer: Signer,
    cache: Arc<KeyCache>,
}

impl World {
    fn new() -> Self {
        Self::reading(read_file)
    }

    /// With a file that is read so after the start.
    fn reading(read: fn(&Path) -> Result<Vec<u8>, KeyError>) -> Self {
        let (file, signer) = (tempfile::NamedTempFile::new().unwrap(), Signer::es256("k1"));
        fs::write(file.path(), key_set(&[&signer]).to_string()).unwrap();
        let keys = KeySource::File(file.path().to_owned());
        let audiences = BTreeSet::from([US.to_owned()]);
        let kinds = KindRule::Claim(BTreeSet::new());
        let issuer = IssuerConfig::new(ISSUER, tenant(), audiences, keys, kinds);
        let made = KeyCache::new(&issuer, KeyUse::Signatures, &config(Vec::new()), None);
        let cache = KeyCache { read, ..made.unwrap() };
        Self { file, signer, cache: Arc::new(cache) }
    }

    async fn find(&self, kid: &str) -> Result<PublicKey, IdentityError> {
        self.cache.find(kid, Algorithm::Es256).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_file_that_hangs_shuts_nobody_out_for_an_hour_and_is_noted() {
    let world = World::new();
    assert!(!world.cache.is_failing());
    let hung = Arc::clone(&world.cache.reads).try_lock_owned().unwrap();
    tokio::time::advance(Duration::from_secs(FILE_REFRESH_S_MAX + 1)).await;
    let asked_at = Instant::now();
    for _ in 0..100 {
        assert!(world.find(&world.signer.kid).await.is_ok());
    }
    assert_eq!(asked_at.elapsed(), Duration::ZERO, "nobody waits for it");
    assert!(world.cache.is_failing());
    // A key that is not known may stand in the file.
    let unknown = world.find("k2").await;
    assert!(matches!(unknown, Err(IdentityError::KeysUnavailable { .. })), "{unknown:?}");
    tokio::time::advance(world.cache.stale_age).await;
    let over = world.find(&world.signer.kid).await;
    assert!(matches!(over, Err(IdentityError::KeysUnavailable { .. })), "{over:?}");
    // It answers again, with another set.
    drop(hung);
    let next = Signer::es256("k2");
    fs::write(world.file.path(), json!(key_set(&[&next])).to_string()).unwrap();
    tokio::time::advance(Duration::from_secs(FILE_RETRY_S)).await;
    assert!(world.find("k2").await.is_ok());
    assert!(!world.cache.is_failing());
}

#[tokio::test(start_paused = true)]
async fn a_reading_that_is_under_way_is_not_waited_for_while_keys_are_at_hand() {
    let world = World::new();
    let _reading = Arc::clone(&world.cache.begun).try_lock_owned().unwrap();
    tokio::time::advance(Duration::from_secs(FILE_REFRESH_S_MAX + 1)).await;
    let found = timeout(Duration::from_secs(60), world.find(&world.signer.kid)).await;
    assert!(found.is_ok_and(|found| found.is_ok()), "it waited");
}

/// Shut while a file does not answer.
static GATE: Mutex<()> = Mutex::const_new(());

fn read_when_open(path: &Path) -> Result<Vec<u8>, KeyError> {
    drop(GATE.blocking_lock());
    read_file(path)
}

#[tokio::test]
async fn a_reading_that_takes_longer_than_anybody_waits_is_used_when_it_ends() {
    let world = World::reading(read_when_open);
    for (written, outcome) in [(vec!["k2"], Ok(())), (vec![], Err(()))] {
        let shut = GATE.lock().await;
        let signers: Vec<Signer> = written.iter().map(|kid| Signer::es256(kid)).collect();
        let set = key_set(&signers.iter().collect::<Vec<_>>());
        fs::write(world.file.path(), set.to_string()).unwrap();
        let late = world.cache.refresh().await;
        assert!(matches!(late, Err(KeyError::TimedOut { .. })), "{late:?}");
        assert!(world.cache.is_failing(), "those at hand are used on");
        // Nobody else has to come by for it.
        let before = world.cache.current.load_full().unwrap();
        drop(shut);
        let taken_in = async {
            while world.cache.current.load_full().is_some_and(|now| Arc::ptr_eq(&now, &before)) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(60), taken_in).await.expect("it is not used");
        assert!(!world.cache.is_failing());
        assert_eq!(world.find("k2").await.map(drop).map_err(drop), outcome, "{written:?}");
    }
}
