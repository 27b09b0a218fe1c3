//! Which calls the registry polls, and how it runs tasks.

use std::{collections::BTreeSet, sync::Arc};

use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{RecordId, ToolCallId},
    principal::PrincipalKind,
};
use serde_json::Value;

use super::{KEPT_BYTES_MAX, Owner, Registry};
use crate::{answer::Answer, result::Subject};

fn under_way(call_id: &ToolCallId) -> Answer {
    let subject = Subject {
        call_id: call_id.clone(),
        run_id: None,
        trace_id: String::new(),
        session_id: None,
        capability: None,
        key: None,
        decision_id: None,
        approval_id: None,
        traceparent: None,
        accepted_at: Timestamp::from_ms(0),
        edited: None,
    };
    subject.in_progress()
}

fn owner() -> Owner {
    Owner {
        tenant: "acme".parse().unwrap(),
        kind: PrincipalKind::Agent,
        actor: "scribe".parse().unwrap(),
        on_behalf_of: None,
    }
}

#[test]
fn answers_are_forgotten_beyond_a_number_of_bytes_the_oldest_first() {
    let registry = Registry::new(60_000, 1_000);
    let end = |number: usize| {
        let call_id = ToolCallId::new(format!("call_{number}")).unwrap();
        drop(registry.enter(&call_id, owner(), under_way(&call_id)));
        let mut result = under_way(&call_id).envelope().clone();
        result.output = Value::from("x".repeat(KEPT_BYTES_MAX / 4));
        registry.publish(&call_id, Answer::Finished(Arc::new(result)));
        call_id
    };
    let ended: Vec<ToolCallId> = (0..5).map(end).collect();
    let kept = ended.iter().map(|call_id| registry.follow(call_id, &owner()).is_some());
    assert_eq!(kept.collect::<Vec<_>>(), [false, false, true, true, true]);
}

#[test]
fn however_many_calls_are_watched_each_has_its_turn() {
    let registry = Registry::new(1_000, 100);
    let mut waiters = Vec::new();
    for number in 0..600 {
        let call_id = ToolCallId::new(format!("call_{number}")).unwrap();
        let record_id: RecordId =
            Digest::of(call_id.as_str().as_bytes()).to_string().parse().unwrap();
        waiters.push(registry.watch(&call_id, owner(), record_id, under_way(&call_id)));
    }
    let round = || -> BTreeSet<ToolCallId> {
        registry.watched(500).into_iter().map(|call| call.call_id).collect()
    };
    let (first, second) = (round(), round());
    assert_eq!((first.len(), second.len()), (500, 500));
    assert_eq!(first.union(&second).count(), 600);
    // No waiters are left.
    drop(waiters);
    assert!(round().is_empty());
}

#[tokio::test]
async fn a_task_that_need_not_wait_runs_at_once_and_one_that_waits_goes_on() {
    let registry = Registry::new(1_000, 100);
    let (done, mut seen) = tokio::sync::mpsc::channel(2);
    let (open, gate) = tokio::sync::oneshot::channel::<()>();
    let first = done.clone();
    registry.run(async move { first.try_send("at once").unwrap() });
    assert_eq!(seen.try_recv().unwrap(), "at once");
    registry.run(async move {
        gate.await.unwrap();
        done.try_send("later").unwrap();
    });
    assert!(seen.try_recv().is_err());
    open.send(()).unwrap();
    assert_eq!(seen.recv().await.unwrap(), "later");
}

#[tokio::test]
async fn a_panic_before_the_first_wait_ends_the_task_alone() {
    let registry = Registry::new(1_000, 100);
    registry.run(async { std::panic::panic_any("a stage has a bug") });
    assert!(registry.drain(std::time::Duration::from_secs(1)).await);
}
