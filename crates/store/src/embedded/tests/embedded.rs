//! What this store promises beyond the trait: over restarts, epochs and clocks.

use placet_ledger::outbox::{MessageKey, Outbox, OutboxChange, ReadTo, WaitingMessage};
use placet_ledger::store::{ClaimAnswer, Durability, EffectQuery, Store as _};
use placet_types::digest::Digest;
use placet_types::taint::Taint;
use tempfile::tempdir;

use super::*;
use crate::embedded::SyncObserver;
use crate::embedded::open::StateFate;

#[tokio::test]
async fn everything_is_there_after_a_restart_but_claims() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, report) = open(&config);
    assert_eq!((report.frames, report.epoch, report.state), (0, 1, StateFate::Kept));
    let done = make(&*store, "done", true).await;
    let sent = make(&*store, "sent", false).await;
    let claimed = claim(&*store, "held");
    let asked = approval(&claimed, "apr_1", NOW_MS);
    let waiting = hold(&*store, &claimed, &asked).await;
    let lost = claim(&*store, "claimed");
    store.claim(lost.clone()).await.unwrap();
    let opened = run("run_1", 3);
    let mut changes = synced();
    changes.runs.push(opened.clone());
    changes.reserve = Some(reservation(&opened, 5));
    changes.content.push((tenant("acme"), b"result".to_vec()));
    store.commit(changes).await.unwrap();
    let mut changes = synced();
    changes.taint = vec![brought(&opened, &[Taint::Secret])];
    store.commit(changes).await.unwrap();
    let opened = opened.tainted(&[Taint::Secret].into()).unwrap();

    drop(store);
    for orderly in [false, true, false] {
        let (store, report) = open(&config);
        assert_eq!(report.state, StateFate::Kept);
        assert_eq!(counted(&store), [3, 1, 1]);
        let counts: Vec<_> = report.open.into_iter().collect();
        assert_eq!(counts, [("dispatched", 1), ("pending_approval", 1)]);
        for record in [&done, &sent, &waiting] {
            assert_eq!(store.effect(record.record_id).await.unwrap().as_ref(), Some(record));
            let call = store.effect_of_call(&record.call_id).await.unwrap();
            assert_eq!(call.as_ref(), Some(record));
        }
        assert_eq!(store.effect(lost.record_id).await.unwrap(), None);
        assert_eq!(store.approval(&asked.approval_id).await.unwrap().as_ref(), Some(&asked));
        assert_eq!(store.run(&opened.key).await.unwrap(), opened.reserved(5));
        let digest = Digest::of(b"result");
        assert_eq!(store.content(&tenant("acme"), digest).await.unwrap(), b"result");
        let query = EffectQuery { open_only: true, limit: 9, ..EffectQuery::default() };
        assert_eq!(store.effects(&query).await.unwrap().len(), 2);
        if orderly {
            store.close().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_closed_store_can_be_opened_again_at_once() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let mut earlier = Vec::new();
    for epoch in 1..=3 {
        let (store, report) = EmbeddedStore::open(config.clone(), TestClock::at(NOW_MS)).unwrap();
        assert_eq!((report.epoch, report.replayed), (epoch, 0));
        assert_eq!(report.state, StateFate::Kept);
        make(&*store, &format!("key-{epoch}"), true).await;
        store.close().await.unwrap();
        // A handle of a closed store does not keep others from opening it.
        earlier.push(store);
    }
    let gone = earlier[0].effect(claim_of("acme", "key-1", 1).record_id).await;
    assert!(matches!(gone, Err(StoreError::Stopped(_))));
}

#[tokio::test]
async fn a_dispatch_or_a_claim_of_another_epoch_is_refused() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    open(&config).0.close().await.unwrap();
    let (store, _) = open(&config);
    let old = claim_of("acme", "key", store.epoch() - 1);
    assert_eq!(store.claim(old.clone()).await, Err(StoreError::Conflict));
    let claimed = claim(&*store, "key");
    assert_eq!(store.claim(succeeded(&claimed)).await, Err(StoreError::Conflict));
    store.claim(claimed.clone()).await.unwrap();
    for epoch in [store.epoch() - 1, store.epoch() + 1] {
        let state = EffectState::Dispatched(attempt(&claimed, epoch, Dedup::Opaque));
        let refused = put(&*store, &moved(&claimed, state)).await;
        assert_eq!(refused, Err(StoreError::Conflict));
    }
    put(&*store, &dispatched(&*store, &claimed)).await.unwrap();
}

#[tokio::test]
async fn a_record_is_not_put_over_the_claim_of_another_call() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let claimed = claim(&*store, "key");
    store.claim(claimed.clone()).await.unwrap();
    let other = EffectRecord { call_id: ToolCallId::new("call-other").unwrap(), ..claimed.clone() };
    let refused = put(&*store, &dispatched(&*store, &other)).await;
    assert_eq!(refused, Err(StoreError::Conflict));
    assert_eq!(store.effect(claimed.record_id).await.unwrap(), Some(claimed.clone()));
    put(&*store, &dispatched(&*store, &claimed)).await.unwrap();
}

#[tokio::test]
async fn what_a_record_is_about_never_changes() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let sent = make(&*store, "key", false).await;
    let done = succeeded(&sent);
    for changed in [
        EffectRecord { call_id: ToolCallId::new("call-other").unwrap(), ..done.clone() },
        EffectRecord { requested_digest: Digest::of(b"other"), ..done.clone() },
        EffectRecord { key: IdempotencyKey::new("other").unwrap(), ..done.clone() },
        EffectRecord { scope: claim_of("globex", "key", 1).scope, ..done.clone() },
    ] {
        assert_eq!(put(&*store, &changed).await, Err(StoreError::Conflict));
    }
    put(&*store, &done).await.unwrap();
}

#[tokio::test]
async fn an_approved_effect_goes_back_only_with_its_approval() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let claimed = claim(&*store, "held");
    let asked = approval(&claimed, "apr_1", NOW_MS);
    let waiting = hold(&*store, &claimed, &asked).await;
    let agreed = approved(&waiting, &asked);
    let yes = approval_moved(&asked, ApprovalState::Approved);
    let mut changes = puts(&[&agreed]);
    changes.approvals.push(yes.clone());
    store.commit(changes).await.unwrap();
    let back = pending(&agreed, &asked);
    let alone = put(&*store, &back).await;
    assert!(matches!(alone, Err(StoreError::Illegal(_))));
    let mut with_another = puts(&[&back]);
    with_another.approvals.push(approval(&claimed, "apr_2", NOW_MS));
    let refused = store.commit(with_another).await;
    assert!(matches!(refused, Err(StoreError::Illegal(_))));
    assert_eq!(store.effect(agreed.record_id).await.unwrap(), Some(agreed));
}

#[tokio::test]
async fn a_new_approval_begins_pending() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let asked = approval(&claim(&*store, "key"), "apr_1", NOW_MS);
    let mut changes = synced();
    changes.approvals.push(ApprovalRecord { state: ApprovalState::Approved, ..asked });
    assert_eq!(store.commit(changes).await, Err(StoreError::Conflict));
}

#[tokio::test]
async fn time_never_goes_back_over_a_restart() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    // It goes on by itself, too, as the monotonic clock does.
    let soon = NOW_MS + 5_000..NOW_MS + 65_000;
    let clock = TestClock::at(NOW_MS);
    let hand: Arc<dyn Clock> = Arc::<TestClock>::clone(&clock);
    let (store, _) = EmbeddedStore::open(config.clone(), hand).unwrap();
    clock.set(NOW_MS + 5_000);
    make(&*store, "key", true).await;
    clock.set(NOW_MS - 9_000);
    assert!(soon.contains(&store.now().as_ms()));
    store.close().await.unwrap();
    let (store, _) = EmbeddedStore::open(config, clock).unwrap();
    assert!(soon.contains(&store.now().as_ms()));
    let mut changes = synced();
    changes.audit.push(event("later"));
    assert!(soon.contains(&store.commit(changes).await.unwrap().at.as_ms()));
}

#[tokio::test]
async fn a_large_record_survives_restart_and_rebuild() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let claimed = claim(&*store, "held");
    let asked = approval(&claimed, "apr_1", NOW_MS);
    hold(&*store, &claimed, &asked).await;
    let mut voted = approval_moved(&asked, ApprovalState::Pending);
    voted.votes = (0..40).map(|_| vote("because ".repeat(100))).collect();
    let mut agreed = approval_moved(&voted, ApprovalState::Approved);
    agreed.votes.push(vote("at last".to_owned()));
    for approval in [&voted, &agreed] {
        let mut changes = synced();
        changes.approvals.push(approval.clone());
        store.commit(changes).await.unwrap();
        let seen = store.approval(&asked.approval_id).await.unwrap();
        assert_eq!(seen.as_ref(), Some(approval));
    }
    let sent = make(&*store, "sent", false).await;
    let EffectState::Dispatched(attempt) = sent.state.clone() else { panic!() };
    let (reason, result) = ("unknown ".repeat(1_000), Digest::of(b"result"));
    let large = moved(&sent, EffectState::Indeterminate { attempt, reason, result, rearm: None });
    put(&*store, &large).await.unwrap();
    store.close().await.unwrap();
    for _ in 0..2 {
        let (store, _) = open(&config);
        let seen = store.approval(&asked.approval_id).await.unwrap();
        assert_eq!(seen.as_ref(), Some(&agreed));
        assert_eq!(store.effect(large.record_id).await.unwrap().as_ref(), Some(&large));
        store.close().await.unwrap();
        std::fs::remove_dir_all(folder.path().join("state")).unwrap();
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_and_the_store_goes_on() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let mut changes = synced();
    changes.audit.push(event(&"x".repeat(2 << 20)));
    assert!(matches!(store.commit(changes).await, Err(StoreError::TooLarge(_))));
    let mut changes = puts(&[&dispatched(&*store, &claim(&*store, "key"))]);
    changes.content.push((tenant("acme"), vec![0; 17 << 20]));
    assert!(matches!(store.commit(changes).await, Err(StoreError::TooLarge(_))));
    assert_eq!(store.effect(claim(&*store, "key").record_id).await.unwrap(), None);
    make(&*store, "key", true).await;
}

#[tokio::test]
async fn records_are_synced_though_only_writing_was_asked_for() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let claimed = claim(&*store, "key");
    store.claim(claimed.clone()).await.unwrap();
    let sent = dispatched(&*store, &claimed);
    let mut changes = puts(&[&sent]);
    changes.durability = Durability::Written;
    store.commit(changes).await.unwrap();
    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent));
}

#[tokio::test]
async fn every_sync_is_told_to_the_observer() {
    let folder = tempdir().unwrap();
    let told = Arc::new(AtomicI64::new(0));
    let telling = Arc::clone(&told);
    let observer = SyncObserver::new(move |entries, _took| {
        telling.fetch_add(i64::from(entries), Ordering::SeqCst);
    });
    let config = EmbeddedConfig { on_sync: Some(observer), ..config(folder.path()) };
    let (store, _) = open(&config);
    make(&*store, "key", true).await;
    assert_eq!(told.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_second_opening_is_refused_with_the_holders_process_number() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let refused = EmbeddedStore::open(config, TestClock::at(NOW_MS)).unwrap_err();
    let pid = format!("by process {}", std::process::id());
    assert!(refused.to_string().ends_with(&pid), "{refused}");
    make(&*store, "key", true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn claims_that_ride_are_seen_as_claimed_until_they_are_durable() {
    let folder = tempdir().unwrap();
    let (store, _) = open(&config(folder.path()));
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..200 {
        let store = Arc::clone(&store);
        tasks.spawn(async move {
            let claimed = claim(&*store, &format!("key-{}", number % 40));
            match store.claim(claimed.clone()).await.unwrap() {
                ClaimAnswer::Claimed => {
                    let sent = dispatched(&*store, &claimed);
                    put(&*store, &sent).await.unwrap();
                    assert_eq!(store.effect(sent.record_id).await.unwrap(), Some(sent));
                    1
                }
                ClaimAnswer::Taken(found) => {
                    assert!(["claimed", "dispatched"].contains(&found.state.name()));
                    0
                }
            }
        });
    }
    let made: i32 = tasks.join_all().await.into_iter().sum();
    assert_eq!(made, 40);
}

#[tokio::test]
async fn entries_are_found_by_what_they_are_about_over_restarts_and_rebuilds() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let about = events_of_a_call(&*store).await;
    assert!(are_found(&*store, &about).await);
    store.close().await.unwrap();
    crate::embedded::rebuild(&config).unwrap();
    assert!(are_found(&*open(&config).0, &about).await);
}

#[tokio::test]
async fn messages_that_wait_outlive_restarts_and_rebuilds() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    let (store, _) = open(&config);
    let key = |of: &str| MessageKey { channel: "ops".parse().unwrap(), of: of.to_owned() };
    let message = |of| WaitingMessage { key: key(of), body: serde_json::json!({ "of": of }) };
    let (places, as_of) = ([("journal".to_owned(), 3)].into(), store.now());
    let read_to = Some(ReadTo { places, as_of });
    let (put, done) = (vec![message("one"), message("two")], [key("one")].into());
    for change in [
        OutboxChange { read_to: read_to.clone(), put, ..OutboxChange::default() },
        OutboxChange { done, ..OutboxChange::default() },
    ] {
        let mut changes = Changes::new(Durability::Written, Admission::Completion);
        changes.outbox = Some(Box::new(change));
        store.commit(changes).await.unwrap();
    }
    let kept = Outbox { read_to, waiting: vec![message("two")] };
    store.close().await.unwrap();
    let (store, _) = open(&config);
    assert_eq!(store.outbox().await.unwrap(), kept);
    store.close().await.unwrap();
    let report = crate::embedded::verify(&config).unwrap();
    assert_eq!(report.state, crate::embedded::StateVerdict::Agrees);
    assert_eq!(crate::embedded::stats(&config).unwrap().messages, 1);
    // They are of this ledger alone.
    let exported = crate::embedded::export(&config, Vec::new()).unwrap();
    assert_eq!(exported.records, 0);
    crate::embedded::rebuild(&config).unwrap();
    assert_eq!(open(&config).0.outbox().await.unwrap(), kept);
}

#[tokio::test]
async fn what_is_there_is_counted_once_nobody_serves_it() {
    let folder = tempdir().unwrap();
    let config = config(folder.path());
    assert!(crate::embedded::stats(&config).is_err(), "there is no store");
    let (store, _) = open(&config);
    make(&*store, "one", true).await;
    make(&*store, "two", true).await;
    make(&*store, "three", false).await;
    assert!(crate::embedded::stats(&config).is_err(), "it is in use");
    store.close().await.unwrap();
    let counted = crate::embedded::stats(&config).unwrap();
    let records = [("succeeded".to_owned(), 2), ("dispatched".to_owned(), 1)];
    assert_eq!(counted.records, records.into());
    assert_eq!((counted.contents, counted.approvals.len()), (0, 0));
    assert!(counted.bytes["journal"] > 0 && counted.bytes["state"] > 0, "{counted:?}");
    let state = folder.path().join("state");
    std::fs::remove_dir_all(&state).unwrap();
    std::fs::create_dir(&state).unwrap();
    let refused = crate::embedded::stats(&config).unwrap_err().to_string();
    assert!(refused.contains("it is empty, and the journal goes to entry"), "{refused}");
}
