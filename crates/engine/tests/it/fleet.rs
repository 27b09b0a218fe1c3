//! Several engines over one store: calls, approvals and policies are shared; the dead are taken over from, the paused are fenced.

use std::{sync::Arc, time::Duration};

use serde_json::json;

use placet_engine::{
    answer::Answer, engine::StartError, reload::ReloadError, settings::LedgerSettings,
};
use placet_ledger::{
    audit::AuditKind,
    store::{EffectQuery, Store, StoreError},
    testing::Fault,
};
use placet_policy::bundle::{BundleSource, PolicyFile};
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution},
};

use crate::fake::{Behaviour, Probing};
use crate::world::{Make, World, bundle, finished, held, plan, quick, refused, waits};

const A_WHILE: Duration = Duration::from_millis(400);

fn long(tool: &str) -> serde_json::Value {
    let mut call = plan(tool, "s1", "a");
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 600_000});
    call
}

/// The bundle with a rule more, that changes nothing for the tests' calls.
fn other_bundle() -> BundleSource {
    let mut source = bundle();
    source.files.push(PolicyFile {
        name: "99-pay.cedar".to_owned(),
        text: "@id(\"no-paying\") @approval(\"never\") @reason(\"Over.\")\nforbid (principal, action == Placet::Action::\"fake/pay\", resource);\n".to_owned(),
    });
    source
}

async fn until(what: &str, mut fulfilled: impl FnMut() -> bool) {
    for _ in 0..1_000 {
        if fulfilled() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

#[tokio::test]
async fn one_key_on_three_nodes_at_once_has_one_effect_and_one_outcome() {
    let one = World::new().await;
    let (two, three) = (one.node().await, one.node().await);
    one.witness.behave("note", Behaviour::Slow(A_WHILE));
    let calls = (0..30).map(|number| {
        let world = [&one, &two, &three][number % 3];
        world.call(plan("note", "s1", "a"))
    });
    let results: Vec<_> =
        futures::future::join_all(calls).await.into_iter().map(finished).collect();
    assert_eq!(one.witness.effects("note").len(), 1);
    assert_eq!(results.iter().filter(|result| !result.replayed).count(), 1);
    assert!(results.iter().all(|result| result.tool_call_id == results[0].tool_call_id));
}

#[tokio::test]
async fn a_duplicate_on_another_node_waits_for_the_call_and_gets_its_result() {
    let one = World::new().await;
    let two = one.node().await;
    one.witness.behave("note", Behaviour::Slow(A_WHILE));
    let first = one.send(plan("note", "s1", "a")).await;
    one.reaches("dispatched").await;
    let asked = two.engine.call(&two.agent().await, first.call_id()).await.unwrap();
    assert!(matches!(asked, Answer::InProgress(_)));
    let mut followed = two.engine.follow(&two.agent().await, first.call_id()).await.unwrap();
    let duplicate = finished(two.call(plan("note", "s1", "a")).await);
    assert!(duplicate.replayed);
    assert_eq!(duplicate.tool_call_id, *first.call_id());
    finished(tokio::time::timeout(Duration::from_secs(5), followed.settled(0)).await.unwrap());
    assert_eq!(one.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_vote_on_any_node_executes_the_call_once_and_every_waiter_learns_of_it() {
    let one = World::new().await;
    let two = one.node().await;
    let asked = held(one.call(plan("erase", "s1", "a")).await);
    let mut there = two.engine.follow(&two.agent().await, &asked.call_id).await.unwrap();
    let mut here = one.engine.follow(&one.agent().await, &asked.call_id).await.unwrap();
    let same = held(two.call(plan("erase", "s1", "a")).await);
    assert_eq!(same.approval_id, asked.approval_id);
    two.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let ends = tokio::time::timeout(Duration::from_secs(10), async {
        (here.settled(10_000).await, there.settled(10_000).await)
    });
    let (here, there) = ends.await.unwrap();
    assert_eq!(finished(here).tool_call_id, finished(there).tool_call_id);
    // Long enough for the other node to have tried as well.
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(one.witness.effects("erase").len(), 1);
    finished(one.engine.call(&one.agent().await, &asked.call_id).await.unwrap());
}

#[tokio::test]
async fn an_agreement_is_carried_out_though_the_node_that_heard_it_dies() {
    let one = World::new().await;
    let asked = held(one.call(plan("erase", "s1", "a")).await);
    let two = World::with(Make { witness: Arc::default(), ..one.beside() }).await;
    // The node that hears of the vote comes no further than to a session for it.
    one.witness.begin_slowly(Duration::from_secs(3_600));
    one.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    one.store.fall_silent();
    finished(two.end_of(&asked).await);
    assert_eq!(one.witness.effects("erase").len(), 0);
    assert_eq!(two.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn an_approval_expires_once_however_many_nodes_watch_it() {
    let one = World::new().await;
    let (two, three) = (one.node().await, one.node().await);
    let asked = held(one.call(plan("erase", "s1", "a")).await);
    tokio::time::sleep(Duration::from_millis(200)).await;
    one.store.advance_ms(waits(&asked).expires_at.since_ms(one.now()).saturating_add(1));
    for world in [&one, &two, &three] {
        assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::ApprovalExpired);
    }
    let ended = one.store.audit().into_iter();
    let kind = placet_ledger::audit::AuditKind::ApprovalEnded;
    assert_eq!(ended.filter(|event| event.kind == kind).count(), 1);
}

#[tokio::test]
async fn a_node_that_dies_is_taken_over_from_by_class() {
    for (tool, state, effects) in [("note", "indeterminate", 1), ("send", "succeeded", 1)] {
        let one = World::new().await;
        let witness = Arc::new(crate::fake::Witness::default());
        let store = Arc::new(one.store.node());
        let two = World::with(Make { store, witness, ..Make::default() }).await;
        one.witness.behave(tool, Behaviour::Slow(Duration::from_secs(3_600)));
        drop(one.send(long(tool)).await);
        let before = one.reaches("dispatched").await;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(two.record().await.state.name(), "dispatched", "{tool}: nobody is dead yet");
        one.store.fall_silent();
        let after = two.reaches(state).await;
        assert_eq!(after.call_id, before.call_id);
        let token = before.state.attempt().unwrap().token.clone();
        let seen = two.witness.effects(tool);
        assert_eq!(seen.len(), if state == "succeeded" { effects } else { 0 });
        assert!(seen.iter().all(|seen| *seen == token));
        // The node that was silent ends, and does nothing more.
        let why = tokio::time::timeout(Duration::from_secs(5), one.engine.stopped()).await;
        assert!(why.unwrap().contains("silent"), "{tool}");
        assert!(!one.engine.readiness().ready);
        let mut another = long("note");
        another["step_id"] = json!("s9");
        assert_eq!(refused(one.call(another).await).code, ErrorCode::LedgerUnavailable);
    }
}

#[tokio::test]
async fn the_oldest_node_takes_over_from_one_that_started_after_it() {
    let one = World::new().await;
    let two = one.node().await;
    two.witness.behave("note", Behaviour::Slow(Duration::from_secs(3_600)));
    drop(two.send(long("note")).await);
    let before = one.reaches("dispatched").await;
    assert_eq!(before.state.attempt().unwrap().duty(), 2);
    two.store.fall_silent();
    let after = one.reaches("indeterminate").await;
    assert_eq!(after.state.attempt().unwrap().duty(), 1);
    assert_eq!(one.witness.effects("note").len(), 0);
}

#[tokio::test]
async fn what_was_taken_over_is_recovered_though_the_next_take_over_fails() {
    let one = World::new().await;
    let two = one.node().await;
    two.witness.behave("note", Behaviour::Slow(Duration::from_secs(3_600)));
    for step in ["s1", "s2", "s3"] {
        let mut call = long("note");
        call["step_id"] = json!(step);
        drop(two.send(call).await);
    }
    let of = async |state: &str| {
        let query =
            EffectQuery { state: Some(state.to_owned()), limit: 10, ..EffectQuery::default() };
        one.store.effects(&query).await.unwrap().len()
    };
    while of("dispatched").await < 3 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for error in [
        StoreError::Unreachable("a moment".to_owned()),
        StoreError::Damaged("one of them".to_owned()),
    ] {
        one.store.fail_once_on(AuditKind::Adopted, Fault::Refuse(error));
        two.store.fall_silent();
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for _ in 0..500 {
        if of("indeterminate").await == 3 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{} of 3 are recovered", of("indeterminate").await);
}

#[tokio::test]
async fn what_a_take_over_finds_out_is_recorded_though_the_ledger_is_away_for_a_moment() {
    for (tool, probing, state) in
        [("note", Probing::Unknown, "indeterminate"), ("book", Probing::Committed, "succeeded")]
    {
        let one = World::new().await;
        let two = one.node().await;
        *one.witness.probing.lock() = probing;
        two.witness.behave(tool, Behaviour::Slow(Duration::from_secs(3_600)));
        drop(two.send(long(tool)).await);
        one.reaches("dispatched").await;
        let away = StoreError::Unreachable("a moment".to_owned());
        one.store.fail_once_on(AuditKind::Settled, Fault::Refuse(away));
        two.store.fall_silent();
        one.reaches(state).await;
    }
}

#[tokio::test]
async fn a_call_that_was_taken_over_without_a_word_is_found_and_recovered() {
    let one = World::new().await;
    let two = one.node().await;
    two.witness.behave("note", Behaviour::Slow(Duration::from_secs(3_600)));
    drop(two.send(long("note")).await);
    one.reaches("dispatched").await;
    one.store.fail_once_on(AuditKind::Adopted, Fault::Unconfirmed);
    two.store.fall_silent();
    tokio::time::sleep(A_WHILE).await;
    let record = one.record().await;
    assert_eq!((record.state.name(), record.state.attempt().unwrap().duty()), ("dispatched", 1));
    one.store.advance_ms(700_000);
    one.reaches("indeterminate").await;
}

#[tokio::test]
async fn a_call_that_somebody_is_at_work_on_is_left_to_them_however_late_it_is() {
    let one = World::new().await;
    one.witness.behave("note", Behaviour::Slow(Duration::from_millis(1_500)));
    let mut call = one.send(long("note")).await;
    one.reaches("dispatched").await;
    one.store.advance_ms(700_000);
    finished(call.settled(0).await);
}

#[tokio::test]
async fn node_whose_lease_expired_is_not_ready() {
    let one = World::new().await;
    let _two = one.node().await;
    until("it is ready", || one.engine.readiness().ready).await;
    one.store.expire_lease(true);
    let says = || one.engine.readiness().notes.iter().any(|note| note.contains("lease"));
    until("it says so", || !one.engine.readiness().ready && says()).await;
    one.store.expire_lease(false);
    until("it is ready again", || one.engine.readiness().ready).await;
}

#[tokio::test]
async fn a_node_without_the_active_policies_decides_nothing_and_says_so() {
    let one = World::new().await;
    finished(one.call(plan("note", "s1", "a")).await);
    let store = Arc::new(one.store.node());
    let witness = Arc::clone(&one.witness);
    let two = World::with(Make { store, witness, bundle: other_bundle(), ..Make::default() }).await;
    let refusal = refused(one.call(plan("note", "s2", "a")).await);
    assert_eq!((refusal.code, refusal.execution), (ErrorCode::Overloaded, Execution::NotExecuted));
    assert_eq!(refused(one.call(plan("look", "s3", "a")).await).code, ErrorCode::Overloaded);
    let readiness = one.engine.readiness();
    assert!(!readiness.ready);
    assert!(readiness.notes.iter().any(|note| note.contains("policies")), "{readiness:?}");
    assert!(two.engine.readiness().ready);
    finished(two.call(plan("note", "s2", "a")).await);
    // What is recorded is told all the same.
    assert!(finished(one.call(plan("note", "s1", "a")).await).replayed);
    one.activate(other_bundle()).await.unwrap();
    assert!(one.engine.readiness().ready, "the same policies join the epoch");
    finished(one.call(plan("note", "s4", "a")).await);
    finished(two.call(plan("note", "s5", "a")).await);
    assert_eq!(one.witness.effects("note").len(), 4);
}

#[tokio::test]
async fn a_node_that_starts_with_replaced_policies_does_not_bring_them_back() {
    let one = World::new().await;
    let two = one.node().await;
    let old = two.store.policy().await.unwrap().unwrap();
    one.activate(other_bundle()).await.unwrap();
    let new = two.store.policy().await.unwrap().unwrap();
    // The second one is started again, and its files are the old ones.
    let again = |rolls_back| {
        let store = Arc::new(two.store.node());
        let ledger = LedgerSettings { rolls_back, ..quick() };
        World::started(Make { store, ledger, ..Make::default() })
    };
    for rolls_back in [None, Some(old.epoch), Some(new.epoch.saturating_add(1))] {
        let Err(StartError::Replaced(replaced)) = again(rolls_back).await else {
            panic!("{rolls_back:?}: it starts")
        };
        assert_eq!((replaced.digest, replaced.active), (old.digests.whole(), new));
        assert_eq!(replaced.replaced_by, new.digests.whole());
    }
    assert_eq!(two.store.policy().await.unwrap(), Some(new));
    finished(one.call(plan("note", "s1", "a")).await);
    let three = again(Some(new.epoch)).await.unwrap();
    let back = three.store.policy().await.unwrap().unwrap();
    assert_eq!(
        (back.epoch, back.digests.whole()),
        (new.epoch.saturating_add(1), old.digests.whole())
    );
    let audit = three.store.audit();
    let told = audit.iter().rfind(|event| event.kind == AuditKind::BundleActivated).unwrap();
    assert_eq!(told.digests["activated"], old.digests.whole());
    let note = told.note.as_deref().unwrap();
    assert!(
        note.starts_with("a roll-back") && note.contains(&new.digests.whole().to_string()),
        "{note}"
    );
    finished(three.call(plan("note", "s2", "a")).await);
    // It was for once: the same words do not bring them back from the next ones.
    let mut third = other_bundle();
    third.files[0].text.push_str("\n// once more\n");
    three.activate(third).await.unwrap();
    assert!(matches!(again(Some(new.epoch)).await, Err(StartError::Replaced(_))));
}

#[tokio::test]
async fn one_process_alone_starts_with_what_its_files_say() {
    let one = World::new().await;
    one.activate(other_bundle()).await.unwrap();
    let next = World::over(Arc::clone(&one.store), Arc::clone(&one.witness)).await;
    finished(next.call(plan("note", "s1", "a")).await);
}

#[tokio::test]
async fn a_promotion_that_the_ledger_does_not_confirm_is_not_called_made() {
    for fault in [Fault::Uncertain, Fault::Refuse(StoreError::Unreachable("a moment".to_owned()))] {
        let world = World::new().await;
        world.store.fail_once_on(AuditKind::BundleActivated, fault);
        let answer = world.activate(other_bundle()).await;
        assert!(matches!(answer, Err(ReloadError::NotKept(_))), "{answer:?}");
        let why = tokio::time::timeout(Duration::from_secs(5), world.engine.stopped()).await;
        assert!(why.unwrap().contains("promotion"));
    }
    let world = World::new().await;
    let mut broken = bundle();
    broken.files[0].text.push_str("permit (");
    let answer = world.activate(broken).await;
    assert!(matches!(answer, Err(ReloadError::Files(_))), "{answer:?}");
    finished(world.call(plan("note", "s1", "a")).await);
}

#[tokio::test]
async fn nodes_with_the_same_policies_share_an_epoch() {
    let one = World::new().await;
    let two = one.node().await;
    finished(one.call(plan("note", "s1", "a")).await);
    finished(two.call(plan("note", "s2", "a")).await);
    assert!(one.engine.readiness().ready && two.engine.readiness().ready);
    assert_eq!(one.store.policy().await.unwrap().unwrap().epoch, 1);
}

#[tokio::test]
async fn without_the_ledger_nothing_is_executed_and_the_node_is_not_ready() {
    let one = World::new().await;
    let two = one.node().await;
    two.store.cut_off(true);
    for tool in ["note", "look"] {
        let refusal = refused(two.call(plan(tool, "s1", "a")).await);
        assert_eq!(
            (refusal.code, refusal.execution),
            (ErrorCode::LedgerUnavailable, Execution::NotExecuted)
        );
        assert!(refusal.code.retryable());
    }
    let readiness = two.engine.readiness();
    assert!(!readiness.ready && readiness.notes.iter().any(|note| note.contains("ledger")));
    assert!(one.engine.readiness().ready);
    assert!(two.witness.effects("note").is_empty());
    two.store.cut_off(false);
    until("ready again", || two.engine.readiness().ready).await;
    finished(two.call(plan("note", "s1", "a")).await);
}

#[tokio::test]
async fn an_outcome_that_could_not_be_written_is_written_when_the_ledger_is_back() {
    let one = World::new().await;
    let two = one.node().await;
    two.witness.behave("note", Behaviour::Slow(A_WHILE));
    let mut call = two.send(plan("note", "s1", "a")).await;
    one.reaches("dispatched").await;
    two.store.cut_off(true);
    let refusal = refused(call.settled(0).await);
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::LedgerUnavailable, Execution::Unknown)
    );
    two.store.cut_off(false);
    one.reaches("succeeded").await;
    assert!(finished(two.call(plan("note", "s1", "a")).await).replayed);
    assert_eq!(two.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_failed_try_on_one_node_is_repeated_once_by_anyone_who_comes_first() {
    let one = World::new().await;
    let two = one.node().await;
    one.witness.behave("note", Behaviour::NotExecuted);
    refused(one.call(plan("note", "s1", "a")).await);
    one.witness.behave("note", Behaviour::Slow(A_WHILE));
    let retries = (0..10).map(|number| {
        let world = if number % 2 == 0 { &one } else { &two };
        world.call(plan("note", "s1", "a"))
    });
    let results: Vec<_> =
        futures::future::join_all(retries).await.into_iter().map(finished).collect();
    assert_eq!(results.iter().filter(|result| !result.replayed).count(), 1);
    assert_eq!(one.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_duplicate_waits_for_a_call_that_this_node_could_not_send_and_another_one_did() {
    let one = World::touchy(1).await;
    let two = World::with(Make { breaker_failures: 1, ..one.beside() }).await;
    one.witness.behave("note", Behaviour::Unknown);
    // From here on this node leaves the adapter alone for seconds.
    refused(one.call(plan("note", "s1", "a")).await);
    one.witness.behave("note", Behaviour::Slow(A_WHILE));
    one.rearm("ben").await.unwrap();
    one.rearm("dora").await.unwrap();
    one.reaches("dispatched").await;
    let duplicate = one.call(plan("note", "s1", "a"));
    let answer = tokio::time::timeout(Duration::from_secs(10), duplicate).await.unwrap();
    assert!(finished(answer).replayed);
    assert_eq!(two.witness.effects("note").len(), 2, "one for each arm");
}

#[tokio::test]
async fn what_is_in_force_is_waited_for_no_longer_than_a_call_has() {
    let one = World::new().await;
    let two = std::sync::Arc::new(one.node().await);
    finished(two.call(plan("note", "s1", "a")).await);
    two.store.hold_directives(true);
    tokio::time::sleep(A_WHILE).await;
    let (began, reads) = (tokio::time::Instant::now(), two.store.directive_reads());
    let calls = (0..20).map(|number| {
        let two = std::sync::Arc::clone(&two);
        let mut call = plan("note", &format!("h{number}"), "a");
        call["run"]["run_id"] = serde_json::json!("hasty");
        call["run"]["run_budget"] = serde_json::json!({ "tool_latency_ms_max": 400 });
        tokio::spawn(async move { refused(two.call(call).await) })
    });
    for call in calls.collect::<Vec<_>>() {
        let refusal = call.await.unwrap();
        assert_eq!(
            (refusal.code, refusal.execution),
            (ErrorCode::LedgerUnavailable, Execution::NotExecuted)
        );
    }
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    assert_eq!(two.store.directive_reads(), reads, "nobody reads beside the one who does");
    two.store.hold_directives(false);
    finished(two.call(plan("note", "s2", "a")).await);
}

#[tokio::test]
async fn a_node_that_cannot_read_what_is_in_force_decides_nothing() {
    let one = World::new().await;
    let two = one.node().await;
    finished(two.call(plan("note", "s1", "a")).await);
    two.store.hide_directives(true);
    tokio::time::sleep(A_WHILE).await;
    let refusal = refused(two.call(plan("note", "s2", "a")).await);
    assert_eq!(
        (refusal.code, refusal.execution),
        (ErrorCode::LedgerUnavailable, Execution::NotExecuted)
    );
    assert!(refusal.retry_after_ms.is_some());
    finished(one.call(plan("note", "s3", "a")).await);
    two.store.hide_directives(false);
    finished(two.call(plan("note", "s2", "a")).await);
}
