//! Logs that are verified as a whole, and what was done to them behind the store's back.

use std::collections::BTreeMap;
use std::io;

use placet_ledger::log::{AuditLog, LogEntry};
use placet_types::digest::Digest;

use super::audit::fill;
use super::*;
use crate::postgres::{LogVerdict, LogVisitor, log_names, verify_logs};

/// Counts what it is shown.
#[derive(Default)]
struct Counting(BTreeMap<String, u64>, String);

impl LogVisitor for Counting {
    fn log(&mut self, log: &str) -> io::Result<bool> {
        self.1 = log.to_owned();
        Ok(true)
    }

    fn entry(&mut self, _entry: &LogEntry) -> io::Result<()> {
        *self.0.entry(self.1.clone()).or_default() += 1;
        Ok(())
    }
}

async fn verify(database: &Database, sizes: &[u64]) -> (Vec<LogVerdict>, Counting) {
    let sizes = BTreeMap::from([("epoch-1".to_owned(), sizes.to_vec())]);
    let mut counting = Counting::default();
    let verdicts = verify_logs(&database.config("auditor"), &sizes, &mut counting).await.unwrap();
    (verdicts, counting)
}

#[tokio::test]
async fn every_log_is_verified_beside_a_node_that_goes_on() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    fill(&store, 700).await;
    let size = store.heads().await.unwrap()[0].size;
    fill(&store, 600).await;
    let other = open(database.config("node-2")).await;
    make(&*other, "key", true).await;
    let idle = open(database.config("node-3")).await;
    let (verdicts, counted) = verify(&database, &[size]).await;
    assert!(verdicts.iter().all(|verdict| verdict.fault.is_none()), "{verdicts:?}");
    let heads = store.heads().await.unwrap();
    for (head, verdict) in heads.iter().zip(&verdicts) {
        assert_eq!(
            (&head.log, head.size, head.head),
            (&verdict.log, verdict.entries, verdict.head)
        );
        assert_eq!(counted.0[&head.log], head.size);
    }
    assert_eq!((verdicts.len(), verdicts[2].entries), (3, 0), "one has written nothing yet");
    assert_eq!(log_names(&database.config("auditor")).await.unwrap(), ["epoch-1", "epoch-2"]);
    // The root at the size that was asked for is the one that was signed then.
    let (root, _chain) = verdicts[0].seen[&size];
    let proof = store.consistency("epoch-1", size, heads[0].size).await.unwrap();
    let proof = placet_ledger::proof::Consistency {
        from: size,
        to: heads[0].size,
        path: proof.into_iter().map(Digest::from_bytes).collect(),
    };
    proof.verify(&root, &Digest::from_bytes(heads[0].root)).unwrap();
    idle.close().await.unwrap();
}

#[tokio::test]
async fn whatever_was_done_to_a_log_is_found_and_hides_nothing_of_the_others() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    fill(&store, 20).await;
    store.close().await.unwrap();
    let store = open(database.config("node-2")).await;
    fill(&store, 5).await;
    store.close().await.unwrap();
    let last = verify(&database, &[]).await.0[0].entries;
    drop(database.sql(
        "CREATE TABLE kept_entries AS TABLE placet.entries; CREATE TABLE kept_epochs AS TABLE placet.epochs",
    ).await);
    let cut = format!("DELETE FROM placet.entries WHERE epoch = 1 AND seq = {last}");
    let moved = format!(
        "{cut}; UPDATE placet.epochs SET head_seq = {0}, head_hash = (SELECT hash FROM placet.entries WHERE epoch = 1 AND seq = {0}) \
         WHERE epoch = 1",
        last - 1
    );
    for (change, wanted) in [
        (
            "UPDATE placet.entries SET payload = payload || ' '::bytea WHERE epoch = 1 AND seq = 2",
            "entry 2 is not what its hash says",
        ),
        (
            "UPDATE placet.entries SET at_ms = at_ms + 1 WHERE epoch = 1 AND seq = 2",
            "entry 2 is not what its hash says",
        ),
        ("DELETE FROM placet.entries WHERE epoch = 1 AND seq = 2", "where entry 2 is due"),
        (cut.as_str(), "and its end says"),
        (moved.as_str(), "the root that its end in the database says"),
        (
            "UPDATE placet.epochs SET head_hash = root WHERE epoch = 1",
            "the last chain hash that its end",
        ),
    ] {
        drop(database.sql(change).await);
        let (verdicts, _) = verify(&database, &[]).await;
        let fault = verdicts[0].fault.as_ref().map(ToString::to_string).unwrap_or_default();
        assert!(fault.contains(wanted), "{change}: {fault}");
        assert!(verdicts[1].fault.is_none() && verdicts[1].entries >= 1, "{verdicts:?}");
        drop(database.sql(
            "DELETE FROM placet.entries; DELETE FROM placet.epochs; INSERT INTO placet.entries TABLE kept_entries; \
             INSERT INTO placet.epochs TABLE kept_epochs",
        ).await);
    }
}
