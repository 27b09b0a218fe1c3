//! Secrets in a mounted volume that is swapped under load, as a container platform does it: no call is lost (TM-19).
//!
//! Owns the swaps. What a call was made with is what the server was shown and has taken: it takes one version only, and changes over before
//! or after us.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::json;
use tokio::time::sleep;

use crate::harness::{
    client::{Reply, text},
    npm,
    search::plain_canary,
    secret_server::{Server, fingerprint, load, look, with_server},
    setup::{Setup, plan},
    until,
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

/// Two versions in a mounted volume, of which the server takes the first.
async fn two_versions() -> (Setup, Volume, Server, [String; 2]) {
    let secrets = [plain_canary("older"), plain_canary("newer")];
    let setup = Setup::new().with("secrets", json!({ "key": { "file": "volume/key" } }));
    let volume = Volume::new(&setup.path("volume"), &secrets[0]);
    let (setup, server) = with_server(setup).await;
    let mut contract = setup.read_contract("remote");
    let note = &mut contract["capabilities"]["note"];
    note["mode"] = json!("local_write");
    note["effect"] = json!("write");
    note["dedup"] = json!({ "class": "opaque" });
    let setup = setup.contract("remote", &contract);
    server.takes_only(&secrets[0]);
    (setup, volume, server, secrets)
}

/// Each call was taken once, and what was turned away is what the other side did not know at that moment.
fn each_was_taken_once(server: &Server, calls: usize, secrets: &[String; 2]) {
    let [older, newer] = secrets.each_ref().map(|secret| fingerprint(secret));
    let taken = server.shown();
    assert_eq!(taken.len(), calls, "each call was done once");
    let turned = taken.iter().position(|one| *one == newer).expect("the newer one was used");
    assert!(turned > 0 && taken[turned..].iter().all(|one| *one != older), "{turned}");
}

#[tokio::test]
async fn a_server_that_changes_over_after_us_loses_no_call() {
    let (setup, volume, server, secrets) = two_versions().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    look(&agent, "before").await.succeeded();
    let change = async {
        sleep(Duration::from_millis(500)).await;
        volume.swap(&secrets[1]);
        sleep(Duration::from_millis(500)).await;
        // A write as well: the same attempt, done once.
        let note = plan("remote__note", "write", json!({ "what": "x" }));
        agent.call(&note).await.succeeded();
        sleep(Duration::from_millis(1_000)).await;
        server.takes_only(&secrets[1]);
    };
    let (calls, ()) = tokio::join!(load(&agent), change);
    look(&agent, "after").await.succeeded();
    each_was_taken_once(&server, calls.saturating_add(3), &secrets);
    let turned_away = server.turned_away();
    let newer = fingerprint(&secrets[1]);
    let tried = turned_away.iter().filter(|one| **one == newer).count();
    assert!((1..=30).contains(&tried), "the newest is tried, and not by every call: {tried}");
    // Where neither is taken there is one further try and a clear refusal.
    server.takes_only("another one");
    look(&agent, "neither").await.refused(502, "CREDENTIAL_MISCONFIGURED");
    assert_eq!(
        server.turned_away().len(),
        turned_away.len().saturating_add(2),
        "two tries, no third"
    );
    let log = placet.stop().await;
    assert!(log.contains("is sent again with another one"), "an operator can see it: {log}");
    assert!(secrets.iter().all(|secret| !log.contains(secret)), "a secret is in the log");
}

#[tokio::test]
async fn a_server_that_changes_over_while_a_call_is_on_its_way_loses_no_call() {
    let (setup, volume, server, secrets) = two_versions().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    look(&agent, "before").await.succeeded();
    let change = async {
        sleep(Duration::from_secs(1)).await;
        // What was sent before comes to be checked after.
        volume.swap(&secrets[1]);
        server.takes_only(&secrets[1]);
    };
    let (calls, ()) = tokio::join!(load(&agent), change);
    each_was_taken_once(&server, calls.saturating_add(1), &secrets);
    let older = fingerprint(&secrets[0]);
    let late = server.turned_away().iter().filter(|one| **one == older).count();
    assert!(late > 0, "none was on its way");
    placet.stop().await;
}

#[tokio::test]
async fn lists_of_tools_are_had_with_the_version_that_the_server_knows() {
    let (setup, volume, server, secrets) = two_versions().await;
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    look(&agent, "before").await.succeeded();
    volume.swap(&secrets[1]);
    // What is no call has the same two tries: lists of tools are asked for over and over.
    for step in 0..3 {
        look(&agent, &format!("s{step}")).await.succeeded();
        sleep(Duration::from_millis(400)).await;
    }
    server.takes_only(&secrets[1]);
    look(&agent, "after").await.succeeded();
    placet.stop().await;
}

/// What a child says that its key is.
fn key_of(reply: &Reply) -> String {
    let told = text(&reply.succeeded()["output"]["content"][0], "text");
    text(&serde_json::from_str(&told).unwrap(), "key")
}

#[tokio::test]
async fn a_secret_in_the_environment_of_a_child_is_rotated_and_a_running_call_ends_with_the_child_it_began_with()
 {
    let [older, newer] = [plain_canary("older"), plain_canary("newer")];
    let setup = Setup::new()
        .with("secrets", json!({ "key": { "file": "volume/key" } }))
        .with("contracts", json!("contracts"));
    let volume = Volume::new(&setup.path("volume"), &older);
    let import = ["adapters", "import", "--mode-default", "local_write", "--name", "child"];
    let (node, script) = (npm::node(), npm::stub());
    let command = ["--env-secret", "STUB_KEY=key", "--stdio", "--", &node, &script, "late-calls"];
    setup.configured(&[&import[..], &command].concat()).await.ok();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let note = |step: &str| {
        let call = plan("child__note", step, json!({ "what": "x" }));
        let agent = agent.clone();
        async move { agent.call(&call).await }
    };
    let digest = |secret: &str| {
        let digest = placet_types::digest::Digest::of(secret.as_bytes()).to_string();
        digest.trim_start_matches("sha256:").to_owned()
    };
    assert_eq!(key_of(&note("s1").await), digest(&older));
    // Answers come after 2.5 s: the child is replaced while this one is under way.
    let running = tokio::spawn(note("s2"));
    sleep(Duration::from_millis(200)).await;
    volume.swap(&newer);
    sleep(Duration::from_millis(2_000)).await;
    assert!(!running.is_finished());
    let after = note("s3").await;
    assert_eq!(key_of(&running.await.unwrap()), digest(&older));
    assert_eq!(key_of(&after), digest(&newer), "the new child is there before the old one ends");
    // Once it is withdrawn, no child has it, until it is back.
    let key = setup.path("volume/key");
    fs::remove_file(&key).unwrap();
    until("the child is ended", || async { placet.log().contains("was withdrawn") }).await;
    note("s4").await.refused(503, "ADAPTER_UNAVAILABLE");
    symlink("..data/key", &key).unwrap();
    until("a child is there again", || async { note("s5").await.status == 200 }).await;
    let log = placet.stop().await;
    assert!(log.contains("another one is started"), "{log}");
    assert!(!log.contains(&older) && !log.contains(&newer));
}
