//! `kill -9` at any moment, recovery included: what was acknowledged is there.
//!
//! A program of its own: between fork and exec a child holds the locks of its parent, which other tests would meet.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "the whole program is a test, its helpers too"
)]

#[path = "support/records.rs"]
mod records;

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use placet_ledger::record::{EffectRecord, EffectState};
use placet_ledger::store::{Admission, Changes, ClaimAnswer, Durability, EffectChange, Store as _};
use placet_store::embedded::{EmbeddedConfig, EmbeddedStore, OpenError, verify};
use placet_store::journal::JournalError;
use placet_testkit::clock::TestClock;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use tempfile::tempdir;

use records::{NOW, attempt, claim};

const FOLDER: &str = "PLACET_STORE_KILL_TEST_FOLDER";
const ROUND: &str = "PLACET_STORE_KILL_TEST_ROUND";
const ROUNDS: u64 = 20;

fn config(folder: &Path) -> EmbeddedConfig {
    EmbeddedConfig { segment_bytes: 64 << 10, ..EmbeddedConfig::new(folder) }
}

/// Opens; where an earlier store was dropped without being closed, its writer may still be at its end.
fn open(folder: &Path) -> Arc<EmbeddedStore> {
    let config = config(folder);
    for _ in 0..500 {
        match EmbeddedStore::open(config.clone(), TestClock::at(NOW.as_ms())) {
            Err(OpenError::Journal(JournalError::Locked { .. })) => {
                std::thread::park_timeout(Duration::from_millis(10));
            }
            opened => return opened.unwrap().0,
        }
    }
    panic!("the lock was never given back")
}

fn content_of(key: &str) -> Vec<u8> {
    format!("the content of {key}").into_bytes()
}

/// Moves a record on, durably, and says so.
async fn acknowledged(
    store: &EmbeddedStore,
    record: &EffectRecord,
    state: EffectState,
) -> EffectRecord {
    let next = record.moved(state, NOW).unwrap();
    let mut changes = Changes::new(Durability::Synced, Admission::New);
    changes.effects.push(EffectChange::Put(Box::new(next.clone())));
    // What a record names comes with its first form and goes with its last.
    let tenant = next.scope.tenant.clone();
    if next.rev == 1 {
        changes.content.push((tenant, content_of(next.key.as_str())));
    } else {
        changes.forget_content.push((tenant, Digest::of(&content_of(next.key.as_str()))));
    }
    store.commit(changes).await.unwrap();
    let line = format!("ack {} {}\n", next.key.as_str(), next.rev);
    std::io::stdout().write_all(line.as_bytes()).unwrap();
    next
}

/// The process that is killed: makes records as fast as it can and says so after each acknowledgement.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn the_process_that_is_killed() {
    let folder = std::env::var(FOLDER).unwrap();
    let round = std::env::var(ROUND).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let store = open(folder.as_ref());
        // Every record here names these two.
        let mut named = Changes::new(Durability::Synced, Admission::New);
        let acme = TenantId::new("acme").unwrap();
        named.content = ["parked", "result"].map(|name| (acme.clone(), name.into())).to_vec();
        store.commit(named).await.unwrap();
        let mut tasks = tokio::task::JoinSet::new();
        // Snapshots are made all the time.
        let keeping = Arc::clone(&store);
        tasks.spawn(async move {
            for _ in 0..100_000_u32 {
                keeping.snapshot().await.unwrap();
                tokio::time::sleep(Duration::from_millis(3)).await;
            }
        });
        for task in 0..8 {
            let (store, round) = (Arc::clone(&store), round.clone());
            tasks.spawn(async move {
                for number in 0..100_000 {
                    let claimed =
                        claim(&format!("key-{round}-{task}-{number}"), b"parked", store.epoch());
                    let answer = store.claim(claimed.clone()).await.unwrap();
                    assert_eq!(answer, ClaimAnswer::Claimed);
                    let sent = EffectState::Dispatched(attempt(&claimed, store.epoch()));
                    let sent = acknowledged(&store, &claimed, sent).await;
                    let done =
                        EffectState::Succeeded { result: Digest::of(b"result"), resolved_by: None };
                    acknowledged(&store, &sent, done).await;
                }
            });
        }
        tasks.join_all().await;
    });
}

/// Lets it run until it has acknowledged so much and for a while, kills it, and answers what it was told was durable.
#[expect(clippy::disallowed_methods, reason = "the test kills a process of its own making")]
fn killed(
    folder: &Path,
    round: u64,
    acknowledgements: u64,
    wait: Duration,
) -> HashMap<String, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_is_killed"])
        .args(["--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(ROUND, round.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let stdout = child.stdout.take().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&count);
    let reader = std::thread::spawn(move || {
        let mut acknowledged = HashMap::new();
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            let words: Vec<&str> = line.split(' ').collect();
            if let ["ack", key, rev] = words[..] {
                acknowledged.insert(key.to_owned(), rev.parse().unwrap());
                counter.fetch_add(1, Ordering::SeqCst);
            }
        }
        acknowledged
    });
    for _ in 0..6_000 {
        if count.load(Ordering::SeqCst) >= acknowledgements {
            break;
        }
        std::thread::park_timeout(Duration::from_millis(5));
    }
    std::thread::park_timeout(wait);
    child.kill().unwrap();
    child.wait().unwrap();
    reader.join().unwrap()
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_kill_at_any_moment() {
    let folder = tempdir().unwrap();
    let mut acknowledged: HashMap<String, u64> = HashMap::new();
    for round in 0..ROUNDS {
        // Every third is killed while it is still starting.
        let is_starting = round % 3 == 2;
        let (acknowledgements, wait_ms) = if is_starting {
            (0, round.saturating_mul(2))
        } else {
            (20, round.saturating_mul(67) % 150)
        };
        let wait = Duration::from_millis(wait_ms);
        acknowledged.extend(killed(folder.path(), round, acknowledgements, wait));
        if round % 4 == 1 {
            let report = verify(&EmbeddedConfig::new(folder.path())).unwrap();
            assert!(report.is_sound() && report.is_whole(), "round {round}: {report:?}");
        }
        let store = open(folder.path());
        for (key, rev) in &acknowledged {
            let record_id = claim(key, b"parked", 1).record_id;
            let found = store.effect(record_id).await.unwrap();
            let found = found.filter(|found| found.rev >= *rev);
            let Some(found) = found else { panic!("round {round} lost {key} {rev}") };
            let content = content_of(key);
            let read = store.content(&found.scope.tenant, Digest::of(&content)).await;
            assert_eq!(read.ok(), (found.rev == 1).then_some(content), "round {round} {key}");
        }
        if round % 2 == 0 {
            store.close().await.unwrap();
        }
    }
    assert!(acknowledged.len() > 100, "only {} records were made", acknowledged.len());
}
