//! A file that hangs, or answers late, as on a hanging mount.

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
        let (file, signer) = (tempfile::NamedTempFile::new().unwrap(), Signer::es256("k1"));
        fs::write(file.path(), key_set(&[&signer]).to_string()).unwrap();
        let keys = KeySource::File(file.path().to_owned());
        let audiences = BTreeSet::from([US.to_owned()]);
        let kinds = KindRule::Claim(BTreeSet::new());
        let issuer = IssuerConfig::new(ISSUER, tenant(), audiences, keys, kinds);
        let made = KeyCache::new(&issuer, KeyUse::Signatures, &config(Vec::new()), None);
        Self { file, signer, cache: Arc::new(made.unwrap()) }
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
    // An unknown key may be in the file.
    let unknown = world.find("k2").await;
    assert!(matches!(unknown, Err(IdentityError::KeysUnavailable(_))), "{unknown:?}");
    tokio::time::advance(world.cache.stale_age).await;
    let over = world.find(&world.signer.kid).await;
    assert!(matches!(over, Err(IdentityError::KeysUnavailable(_))), "{over:?}");
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
