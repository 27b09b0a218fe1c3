//! A load of calls, and the comparison of what was acknowledged with what is kept.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use sqlx::Row as _;

use super::*;

/// What a load has seen: the records that it was told are kept, and how many commits it was told are.
#[derive(Debug, Default)]
pub(super) struct Seen {
    kept: std::sync::Mutex<Vec<EffectRecord>>,
    commits: AtomicUsize,
    refused: AtomicUsize,
    pub(super) stop: AtomicBool,
}

impl Seen {
    /// Commits until it is kept; what is refused for the moment was not kept, so that it is safe to try again.
    async fn commit(&self, store: &PostgresStore, record: &EffectRecord) -> bool {
        loop {
            match put(store, record).await {
                Ok(_) => {
                    self.commits.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                Err(StoreError::Unreachable(_)) => {
                    self.refused.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Err(StoreError::Stopped(_)) => return false,
                Err(other) => panic!("{other}"),
            }
        }
    }

    /// Calls, one after the other, until it is told to stop.
    async fn calls(&self, store: &PostgresStore, name: &str) {
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            number += 1;
            let claimed = claim(store, &format!("{name}-{number}"));
            loop {
                match store.claim(claimed.clone()).await {
                    Ok(answer) => break assert_eq!(answer, ClaimAnswer::Claimed),
                    Err(StoreError::Unreachable(_)) => {
                        tokio::time::sleep(Duration::from_millis(20)).await
                    }
                    Err(_) => return,
                }
            }
            let sent = dispatched(store, &claimed);
            let done = succeeded(&sent);
            if !self.commit(store, &sent).await || !self.commit(store, &done).await {
                return;
            }
            self.kept.lock().unwrap().push(done);
        }
    }

    pub(super) fn kept(&self) -> usize {
        self.kept.lock().unwrap().len()
    }
}

pub(super) fn load(
    store: &Arc<PostgresStore>,
    callers: usize,
) -> (Arc<Seen>, tokio::task::JoinSet<()>) {
    let seen = Arc::new(Seen::default());
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..callers {
        let (seen, store) = (Arc::clone(&seen), Arc::clone(store));
        tasks.spawn(async move { seen.calls(&store, &format!("caller-{number}")).await });
    }
    (seen, tasks)
}

/// Everything that was acknowledged is there, once: each entry of the log was told to somebody, and the log is whole.
pub(super) async fn check(server: &Server, database: &str, seen: &Seen) {
    let rows = server
        .sql(database, "SELECT epoch, seq, prev, hash FROM placet.entries ORDER BY epoch, seq")
        .await;
    let (mut last, mut log) = (Vec::new(), 0_i64);
    for row in &rows {
        let (epoch, seq): (i64, i64) = (row.get("epoch"), row.get("seq"));
        let (prev, hash): (Vec<u8>, Vec<u8>) = (row.get("prev"), row.get("hash"));
        if epoch != log {
            (log, last) = (epoch, vec![0; 32]);
            assert_eq!(seq, 1);
        }
        assert_eq!(prev, last);
        last = hash;
    }
    assert_eq!(rows.len(), seen.commits.load(Ordering::Relaxed), "entries and acknowledgements");
    let kept = seen.kept.lock().unwrap().clone();
    let stored = server.sql(database, "SELECT record FROM placet.effects").await;
    let stored: std::collections::HashMap<_, EffectRecord> = stored
        .iter()
        .map(|row| serde_json::from_str::<EffectRecord>(row.get("record")).unwrap())
        .map(|record| (record.record_id, record))
        .collect();
    for record in &kept {
        assert_eq!(stored.get(&record.record_id), Some(record));
    }
}
