//! Runs: what is fixed, what is used up, what is in their contexts.
//!
//! Owns this part of the suite.

use std::sync::Arc;

use placet_ledger::run::RunRecord;
use placet_ledger::store::{Admission, Changes, Durability, Store, StoreError};
use placet_types::taint::Taint;

use crate::testing::*;

pub(crate) async fn a_run_is_opened_once_and_never_overdrawn(store: Arc<dyn Store>) {
    let (first, second) = (run("run_1", 2), run("run_1", 1_000));
    for run in [&first, &second] {
        let mut changes = synced();
        changes.runs.push(run.clone());
        store.commit(changes).await.unwrap();
    }
    assert_eq!(store.run(&first.key).await.unwrap(), Some(first.clone()));
    let reserve = |run: &RunRecord, cents| {
        let mut changes = synced();
        changes.reserve = Some(reservation(run, cents));
        changes
    };
    let stranger = run("run_2", 5);
    let refused = store.commit(reserve(&stranger, 0)).await;
    assert_eq!(refused, Err(StoreError::BudgetExhausted));
    store.commit(reserve(&first, 60)).await.unwrap();
    assert_eq!(store.commit(reserve(&first, 41)).await, Err(StoreError::BudgetExhausted));
    store.commit(reserve(&first, 40)).await.unwrap();
    assert_eq!(store.commit(reserve(&first, 0)).await, Err(StoreError::BudgetExhausted));
    let used = store.run(&first.key).await.unwrap().unwrap();
    assert_eq!((used.calls_used, used.cents_used), (2, 100));
}

pub(crate) async fn a_run_that_is_only_written_is_seen_at_once(store: Arc<dyn Store>) {
    let opened = run("run_1", 500);
    for number in 0..50 {
        let mut changes = Changes::new(Durability::Written, Admission::New);
        changes.runs.push(run("run_1", number + 500));
        changes.reserve = Some(reservation(&opened, 1));
        changes.audit.push(event("read"));
        store.commit(changes).await.unwrap();
        let seen = store.run(&opened.key).await.unwrap().unwrap();
        assert_eq!((seen.budget.calls_max, seen.calls_used), (500, number + 1));
    }
}

pub(crate) async fn a_run_keeps_whatever_came_into_its_context(store: Arc<dyn Store>) {
    let opened = run("run_1", 10);
    let mut changes = synced();
    changes.runs.push(opened.clone());
    // Opened and tainted in one commit.
    changes.taint = Some(brought(&opened, &[Taint::Pii]));
    store.commit(changes).await.unwrap();
    for taint in [&[Taint::Secret][..], &[Taint::Secret, Taint::Pii], &[]] {
        let mut changes = Changes::new(Durability::Written, Admission::Completion);
        changes.taint = Some(brought(&opened, taint));
        changes.audit.push(event("settled"));
        store.commit(changes).await.unwrap();
        let seen = store.run(&opened.key).await.unwrap().unwrap();
        assert_eq!(seen.taint, [Taint::Secret, Taint::Pii].into(), "seen at once");
    }
    let mut changes = synced();
    changes.reserve = Some(reservation(&opened, 10));
    store.commit(changes).await.unwrap();
    let mut changes = synced();
    changes.refund = Some(reservation(&opened, 10));
    changes.taint = Some(brought(&opened, &[Taint::ExternalEgress]));
    store.commit(changes).await.unwrap();
    // It is opened once, with whatever is in its context by now.
    let mut changes = synced();
    changes.runs.push(opened.clone());
    store.commit(changes).await.unwrap();
    let seen = store.run(&opened.key).await.unwrap().unwrap();
    let all = [Taint::Secret, Taint::Pii, Taint::ExternalEgress];
    assert_eq!(seen, RunRecord { taint: all.into(), ..opened });
    // A run that is not open has no context, and gets none by this.
    let stranger = run("run_2", 5);
    let mut changes = synced();
    changes.taint = Some(brought(&stranger, &[Taint::Secret]));
    store.commit(changes).await.unwrap();
    assert_eq!(store.run(&stranger.key).await.unwrap(), None);
    // What is refused leaves nothing in it.
    let mut changes = synced();
    changes.taint = Some(brought(&seen, &[Taint::UntrustedContent]));
    changes.expect_policy = Some(77);
    assert_eq!(store.commit(changes).await, Err(StoreError::PolicyMoved));
    assert_eq!(store.run(&seen.key).await.unwrap(), Some(seen));
}
