//! Content that is kept again while it is deleted.

use placet_types::digest::Digest;
use tokio::task::JoinHandle;

use super::*;
use crate::postgres::writer::QUEUE_MAX;

const BYTES: &[u8] = b"the very same bytes";

type Committing = JoinHandle<Result<(), StoreError>>;

fn commit(store: &Arc<PostgresStore>, keeps: bool) -> Committing {
    let (store, mut changes) = (Arc::clone(store), synced());
    if keeps {
        changes.content.push((tenant("acme"), BYTES.to_vec()));
    } else {
        changes.forget_content.push((tenant("acme"), Digest::of(BYTES)));
    }
    changes.audit.push(event(if keeps { "kept" } else { "deleted" }));
    tokio::spawn(async move { store.commit(changes).await.map(drop) })
}

async fn found(store: &PostgresStore) -> Result<Vec<u8>, StoreError> {
    store.content(&tenant("acme"), Digest::of(BYTES)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_again_behind_its_deletion_stays_in_the_same_batch_too() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    for (first, is_there) in [(false, true), (true, false)] {
        commit(&store, true).await.unwrap().unwrap();
        store.state.hold.send_replace(true);
        // It is taken up by itself, and what comes behind it waits for it together.
        let held = commit(&store, true);
        let queued = |commits: usize| store.orders.capacity() == QUEUE_MAX - commits;
        tokio::time::sleep(Duration::from_millis(200)).await;
        until("the first is taken up", async || queued(0)).await;
        let earlier = commit(&store, first);
        until("the earlier one waits", async || queued(1)).await;
        let later = commit(&store, !first);
        until("the later one waits", async || queued(2)).await;
        store.state.hold.send_replace(false);
        for committing in [held, earlier, later] {
            committing.await.unwrap().unwrap();
        }
        assert_eq!(found(&store).await.is_ok(), is_there, "kept first: {first}");
    }
}

/// What waits for a lock, or holds some and says nothing.
async fn becomes(database: &Database, state: &str) {
    let sessions = format!(
        "SELECT 1 FROM pg_stat_activity WHERE {state} AND datname = current_database() AND application_name = 'placet'"
    );
    until(state, async || !database.sql(&sessions).await.is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_keeps_again_while_another_deletes_it_stays() {
    let database = database().await;
    let (one, two) = (open(database.config("one")).await, open(database.config("two")).await);
    // Whichever of the two came first.
    for keeps_first in [true, false] {
        commit(&one, true).await.unwrap().unwrap();
        one.state.hold_commit.send_replace(true);
        let first = commit(&one, keeps_first);
        becomes(&database, "state = 'idle in transaction'").await;
        let second = commit(&two, !keeps_first);
        becomes(&database, "wait_event_type = 'Lock'").await;
        one.state.hold_commit.send_replace(false);
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        assert_eq!(found(&two).await.as_deref(), Ok(BYTES), "kept first: {keeps_first}");
    }
    // And what nobody keeps meanwhile goes.
    commit(&two, false).await.unwrap().unwrap();
    assert_eq!(found(&one).await, Err(StoreError::ContentMissing(Digest::of(BYTES))));
}
