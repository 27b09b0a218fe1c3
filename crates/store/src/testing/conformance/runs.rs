//! Runs: what is fixed, what is used up, what is in their contexts.
//!
//! Owns this part of the suite.

use std::sync::Arc;

use placet_ledger::meter::{Meter, Metered, Window, WindowExhausted};
use placet_ledger::reservation::Reservation;
use placet_ledger::run::{RunRecord, RunTaint};
use placet_ledger::store::{Admission, Changes, Durability, Store, StoreError};
use placet_types::clock::Timestamp;
use placet_types::ids::SessionId;
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
    changes.taint = vec![brought(&opened, &[Taint::Pii])];
    store.commit(changes).await.unwrap();
    for taint in [&[Taint::Secret][..], &[Taint::Secret, Taint::Pii], &[]] {
        let mut changes = Changes::new(Durability::Written, Admission::Completion);
        changes.taint = vec![brought(&opened, taint)];
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
    changes.taint = vec![brought(&opened, &[Taint::ExternalEgress])];
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
    changes.taint = vec![brought(&stranger, &[Taint::Secret])];
    store.commit(changes).await.unwrap();
    assert_eq!(store.run(&stranger.key).await.unwrap(), None);
    // What is refused leaves nothing in it.
    let mut changes = synced();
    changes.taint = vec![brought(&seen, &[Taint::UntrustedContent])];
    changes.expect_policy = Some(77);
    assert_eq!(store.commit(changes).await, Err(StoreError::PolicyMoved));
    assert_eq!(store.run(&seen.key).await.unwrap(), Some(seen));
}

/// A dispatch in `run` that is counted in `meters`.
fn metered(run: &RunRecord, cents: u64, meters: &[&Meter]) -> Changes {
    let mut changes = Changes::new(Durability::Written, Admission::New);
    let meters = meters.iter().map(|meter| (*meter).clone()).collect();
    changes.reserve = Some(Reservation { meters, ..reservation(run, cents) });
    changes.audit.push(event("read"));
    changes
}

pub(crate) async fn a_window_holds_for_all_runs_until_it_ends(store: Arc<dyn Store>) {
    let (first, second) = (run("run_1", 100), run("run_2", 100));
    let mut changes = synced();
    changes.runs.extend([first.clone(), second.clone()]);
    store.commit(changes).await.unwrap();
    let since = Window::Minute.begins(Timestamp::from_ms(NOW_MS));
    let until = since.plus_ms(60_000);
    let (window, cents_max) = (Window::Minute, None);
    let rate = Meter { of: Metered::Agent, window, since, calls_max: 3, cents_max };
    let budget = Meter { window: Window::Day, calls_max: 9, cents_max: Some(40), ..rate.clone() };
    store.commit(metered(&first, 10, &[&rate, &budget])).await.unwrap();
    store.commit(metered(&second, 10, &[&rate, &budget])).await.unwrap();
    store.commit(metered(&second, 10, &[&rate, &budget])).await.unwrap();
    let refused = store.commit(metered(&first, 10, &[&budget, &rate])).await;
    assert_eq!(refused, Err(StoreError::WindowExhausted(WindowExhausted { window, until })));
    // What is refused leaves nothing behind, in no meter and in no run.
    let kept = store.run(&budget.key(&first.key)).await.unwrap().unwrap();
    assert_eq!((kept.calls_used, kept.cents_used), (3, 30));
    assert_eq!(store.run(&first.key).await.unwrap().unwrap().calls_used, 1);
    // What nothing came of goes back to the run alone.
    let mut changes = synced();
    changes.refund = Some(reservation(&first, 10));
    store.commit(changes).await.unwrap();
    assert_eq!(store.commit(metered(&first, 0, &[&rate])).await, refused);
    let next = Meter { since: until, ..rate.clone() };
    store.commit(metered(&first, 10, &[&next, &budget])).await.unwrap();
    let spent = store.commit(metered(&first, 1, &[&next, &budget])).await;
    assert!(matches!(
        spent,
        Err(StoreError::WindowExhausted(WindowExhausted { window: Window::Day, .. }))
    ));
    // A clock that is behind counts in the window that was begun.
    store.commit(metered(&first, 0, &[&rate])).await.unwrap();
    let kept = store.run(&next.key(&first.key)).await.unwrap().unwrap();
    assert_eq!((kept.opened_at, kept.calls_used), (until, 2));
}

pub(crate) async fn a_session_gets_what_its_runs_are_brought(store: Arc<dyn Store>) {
    let session = SessionId::new("chat_1").unwrap();
    let opened = run("run_1", 10);
    let shared = RunRecord { key: opened.key.of_session(&session), ..opened.clone() };
    let mut changes = synced();
    changes.runs.extend([opened.clone(), shared.clone()]);
    store.commit(changes).await.unwrap();
    let mut changes = Changes::new(Durability::Written, Admission::Completion);
    let session = Some(session);
    changes.taint = vec![RunTaint { session, ..brought(&opened, &[Taint::Secret]) }];
    changes.audit.push(event("settled"));
    store.commit(changes).await.unwrap();
    for key in [&opened.key, &shared.key] {
        let seen = store.run(key).await.unwrap().unwrap();
        assert_eq!(seen.taint, [Taint::Secret].into());
    }
}
