//! The logs, their proofs, and what was altered in the database.

use placet_ledger::log::AuditLog;
use placet_ledger::proof::{self, Consistency, Inclusion};
use placet_types::digest::Digest;

use super::*;
use crate::seal::entry_hash;

pub(super) async fn fill(store: &PostgresStore, entries: usize) {
    let mut left = entries;
    while left > 0 {
        let together = left.min(100);
        let commits = (0..together).map(|number| {
            let mut changes = synced();
            changes.audit.push(event(&format!("{left}-{number}")));
            store.commit(changes)
        });
        for kept in futures_in_order(commits).await {
            kept.unwrap();
        }
        left -= together;
    }
}

/// Polls all of them at once; their answers in order.
async fn futures_in_order<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.map(|future| Some(Box::pin(future))).collect();
    let mut answers: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (place, slot) in waiting.iter_mut().enumerate() {
            if let Some(future) = slot
                && let std::task::Poll::Ready(answer) = future.as_mut().poll(context)
            {
                answers[place] = Some(answer);
                *slot = None;
            }
        }
        if waiting.iter().all(Option::is_none) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_is_a_chain_and_every_entry_and_prefix_of_it_can_be_proven() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    fill(&store, 700).await;
    let heads = store.heads().await.unwrap();
    assert_eq!(heads.len(), 1);
    let head = &heads[0];
    assert_eq!((head.size, head.log.as_str()), (700, "epoch-1"));
    let mut entries = Vec::new();
    while entries.len() < 700 {
        let from = u64::try_from(entries.len()).unwrap() + 1;
        entries.extend(store.entries("epoch-1", from, 300).await.unwrap());
    }
    let mut frontier = proof::Frontier::new();
    let (mut prev, mut roots) = ([0; 32], vec![proof::empty_root()]);
    for (seq, entry) in (1..).zip(&entries) {
        assert_eq!((entry.seq, entry.epoch, entry.prev), (seq, 1, prev));
        assert_eq!(entry_hash(entry), entry.hash);
        prev = entry.hash;
        frontier.append(&entry.hash, &mut |_, _| {});
        roots.push(frontier.root());
    }
    assert_eq!((head.head, Digest::from_bytes(head.root)), (prev, frontier.root()));
    let hashes = |path: Vec<[u8; 32]>| path.into_iter().map(Digest::from_bytes).collect::<Vec<_>>();
    for (seq, size) in [(1, 700), (256, 256), (257, 700), (700, 700), (300, 513), (512, 512)] {
        let path = hashes(store.inclusion("epoch-1", seq, size).await.unwrap());
        let proof = Inclusion { seq, size, path };
        let place = usize::try_from(seq - 1).unwrap();
        let root = roots[usize::try_from(size).unwrap()];
        proof.verify(&entries[place].hash, &root).unwrap();
    }
    for (from, to) in [(1, 700), (255, 257), (256, 700), (512, 600), (700, 700)] {
        let path = hashes(store.consistency("epoch-1", from, to).await.unwrap());
        let proof = Consistency { from, to, path };
        let root = |size: u64| roots[usize::try_from(size).unwrap()];
        proof.verify(&root(from), &root(to)).unwrap();
    }
    for (seq, size) in [(0, 700), (701, 701), (5, 4)] {
        assert!(store.inclusion("epoch-1", seq, size).await.is_err(), "{seq} of {size}");
    }
    for name in ["epoch-2", "epoch-01", "epoch-+1", "journal", "epoch-"] {
        assert!(store.consistency(name, 1, 2).await.is_err(), "{name}");
    }
}

#[tokio::test]
async fn each_start_has_a_log_of_its_own_and_a_record_names_its_entry() {
    let database = database().await;
    let first = open(database.config("node-1")).await;
    let second = open(database.config("node-2")).await;
    let sent = make(&*first, "key", false).await;
    make(&*second, "other", true).await;
    let done = succeeded(&sent);
    put(&*first, &done).await.unwrap();
    let heads = second.heads().await.unwrap();
    let sizes: Vec<_> = heads.iter().map(|head| (head.log.as_str(), head.size)).collect();
    assert_eq!(sizes, vec![("epoch-1", 2), ("epoch-2", 2)]);
    let place = second.entry_of(sent.record_id).await.unwrap();
    assert_eq!(place, Some(("epoch-1".to_owned(), 2)));
    let entry = &second.entries("epoch-1", 2, 1).await.unwrap()[0];
    let text = String::from_utf8(entry.payload.clone()).unwrap();
    assert!(text.contains("succeeded") && text.contains(&sent.record_id.to_string()), "{text}");
    assert_eq!(second.entry_of(claim(&*first, "absent").record_id).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_proven_from_a_log_that_was_altered() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    fill(&store, 600).await;
    assert!(store.inclusion("epoch-1", 300, 600).await.is_ok());
    for (alter, restore) in [
        ("UPDATE placet.entries SET hash = sha256(hash) WHERE seq = 299", None),
        ("DELETE FROM placet.entries WHERE seq = 599", None),
        (
            "CREATE TABLE kept AS SELECT * FROM placet.tiles; DELETE FROM placet.tiles",
            Some("INSERT INTO placet.tiles SELECT * FROM kept"),
        ),
        ("UPDATE placet.epochs SET root = sha256(root)", None),
    ] {
        drop(database.sql(alter).await);
        let refused = store.inclusion("epoch-1", 300, 600).await;
        assert!(matches!(refused, Err(StoreError::Damaged(_))), "{alter}: {refused:?}");
        if let Some(restore) = restore {
            drop(database.sql(restore).await);
        }
    }
}

#[tokio::test]
async fn what_was_altered_or_comes_from_a_later_build_is_not_believed() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    let sent = make(&*store, "key", false).await;
    let acme = tenant("acme");
    let mut changes = synced();
    changes.content = vec![(acme.clone(), b"result".to_vec())];
    changes.audit.push(event("content"));
    store.commit(changes).await.unwrap();
    drop(database.sql("UPDATE placet.content SET bytes = 'resulT'").await);
    let digest = Digest::of(b"result");
    assert_eq!(store.content(&acme, digest).await, Err(StoreError::ContentAltered(digest)));

    let mut changes = synced();
    changes.forget_content.push((acme.clone(), digest));
    store.commit(changes).await.unwrap();
    assert_eq!(store.content(&acme, digest).await, Err(StoreError::ContentMissing(digest)));

    for change in
        [r#"'"version":1', '"version":2'"#, r#"'"state":"dispatched"', '"state":"unheard_of"'"#]
    {
        let before = database.sql("SELECT record FROM placet.effects").await;
        let before: String = sqlx::Row::get(&before[0], 0);
        drop(
            database
                .sql(&format!("UPDATE placet.effects SET record = replace(record, {change})"))
                .await,
        );
        let refused = store.effect(sent.record_id).await;
        assert!(matches!(refused, Err(StoreError::Damaged(_))), "{change}: {refused:?}");
        // Nothing is written over it either.
        let refused = put(&*store, &succeeded(&sent)).await;
        assert!(matches!(refused, Err(StoreError::Damaged(_))), "{change}: {refused:?}");
        let quoted = before.replace('\'', "''");
        drop(database.sql(&format!("UPDATE placet.effects SET record = '{quoted}'")).await);
    }
    put(&*store, &succeeded(&sent)).await.unwrap();
}

#[tokio::test]
async fn entries_are_found_by_what_they_are_about() {
    let database = database().await;
    let store = open(database.config("node-1")).await;
    let about = events_of_a_call(&*store).await;
    assert!(are_found(&*store, &about).await);
    // Another node finds them too.
    let other = open(database.config("node-2")).await;
    assert!(are_found(&*other, &about).await);
}
