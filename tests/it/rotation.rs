//! Secrets in a mounted volume that is swapped under load, as a container platform does it: no call is lost (TM-19).
//!
//! Owns the swaps. What a call was made with is what the server was shown.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use tokio::time::sleep;

use crate::{
    harness::{search::plain_canary, setup::Setup},
    vault::{fingerprint, load, look, with_server},
};

/// A mounted volume: `key` leads through `..data` to the version that counts.
struct Volume(PathBuf);

impl Volume {
    fn new(folder: &Path, first: &str) -> Self {
        let volume = Self(folder.to_owned());
        fs::create_dir_all(&volume.0).unwrap();
        volume.swap(first);
        symlink("..data/key", volume.0.join("key")).unwrap();
        volume
    }

    /// Another version takes its place in one step, and the one before is removed.
    fn swap(&self, secret: &str) {
        let data = self.0.join("..data");
        let before = fs::read_link(&data).ok();
        let version = format!("..{}", fingerprint(secret));
        fs::create_dir(self.0.join(&version)).unwrap();
        fs::write(self.0.join(&version).join("key"), secret).unwrap();
        symlink(&version, self.0.join("..data_tmp")).unwrap();
        fs::rename(self.0.join("..data_tmp"), data).unwrap();
        if let Some(before) = before {
            fs::remove_dir_all(self.0.join(before)).unwrap();
        }
    }
}

#[tokio::test]
async fn a_mounted_volume_that_is_swapped_under_load_loses_no_call() {
    let secrets: Vec<String> = (0..6).map(|n| plain_canary(&format!("version{n}"))).collect();
    let setup = Setup::new().with("secrets", json!({ "key": { "file": "volume/key" } }));
    let volume = Volume::new(&setup.path("volume"), &secrets[0]);
    let (setup, server) = with_server(setup).await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    look(&agent, "before").await.succeeded();
    let swaps = async {
        for secret in &secrets[1..] {
            sleep(Duration::from_millis(600)).await;
            volume.swap(secret);
        }
    };
    let (calls, ()) = tokio::join!(load(&agent), swaps);
    look(&agent, "after").await.succeeded();
    let shown = server.shown();
    assert_eq!(shown.len(), calls.saturating_add(2), "each call reached its server once");
    assert_eq!(shown.last(), Some(&fingerprint(&secrets[5])));
    // Each was used, and a call that had read the one before is at most one for each caller.
    for (newer, older) in secrets[1..].iter().zip(&secrets) {
        let (newer, older) = (fingerprint(newer), fingerprint(older));
        let turned = shown.iter().position(|one| *one == newer).expect("every version was used");
        let late = shown[turned..].iter().filter(|one| **one == older).count();
        assert!(late <= 10, "{late} calls went back to the version before");
    }
    let log = placet.stop().await;
    for secret in &secrets {
        assert!(!log.contains(secret), "a secret is in the log");
    }
}
