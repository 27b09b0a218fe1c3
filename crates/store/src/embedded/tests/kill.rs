//! `kill -9` at any moment, recovery included: what was acknowledged is there.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tempfile::tempdir;

use super::*;

const FOLDER: &str = "PLACET_STORE_KILL_TEST_FOLDER";
const ROUND: &str = "PLACET_STORE_KILL_TEST_ROUND";
const ROUNDS: u64 = 20;

/// The process that is killed: makes records as fast as it can and says so after each acknowledgement.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn the_process_that_is_killed() {
    let folder = std::env::var(FOLDER).unwrap();
    let round = std::env::var(ROUND).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = EmbeddedConfig {
            medium: Arc::new(crate::journal::medium::Disk),
            ..config(folder.as_ref())
        };
        let (store, _) = open(&config);
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..8 {
            let (store, round) = (Arc::clone(&store), round.clone());
            tasks.spawn(async move {
                for number in 0..100_000 {
                    let key = format!("key-{round}-{task}-{number}");
                    let sent = make(&*store, &key, false).await;
                    writeln!(std::io::stdout(), "ack {key} {}", sent.rev).unwrap();
                    let done = succeeded(&sent);
                    put(&*store, &done).await.unwrap();
                    writeln!(std::io::stdout(), "ack {key} {}", done.rev).unwrap();
                }
            });
        }
        tasks.join_all().await;
    });
}

/// Lets it run until it has acknowledged so much and for a while, kills it, and answers what it was told was durable.
#[expect(clippy::disallowed_methods, reason = "the test kills a process of its own making")]
fn killed(
    folder: &std::path::Path,
    round: u64,
    (acknowledgements, wait): (u64, Duration),
) -> HashMap<String, u64> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "embedded::tests::kill::the_process_that_is_killed"])
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
        let when = if round % 3 == 2 { (0, 10 + round * 2) } else { (20, (round * 67) % 150) };
        let when = (when.0, Duration::from_millis(when.1));
        let told = killed(folder.path(), round, when);
        acknowledged.extend(told);
        let (store, _) = open(&config(folder.path()));
        for (key, rev) in &acknowledged {
            let record_id = claim_of("acme", key, 1).record_id;
            let found = store.effect(record_id).await.unwrap();
            assert!(found.is_some_and(|found| found.rev >= *rev), "round {round} lost {key} {rev}");
        }
        if round % 2 == 0 {
            store.close().await.unwrap();
        }
    }
    assert!(acknowledged.len() > 100, "only {} records were made", acknowledged.len());
}
