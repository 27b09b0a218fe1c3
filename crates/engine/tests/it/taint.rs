//! What a run has in its context: declared by its calls or brought by results, it stays, and policies look at it.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use placet_engine::answer::{Answer, Held};
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    run::RunKey,
    store::{Store, StoreError},
    testing::Fault,
};
use placet_policy::bundle::BundleSource;
use placet_types::{approval::VoteChoice, error::ErrorCode, taint::Taint};

use crate::{
    fake::{Behaviour, Probing, Witness},
    world::{Make, World, bundle, finished, held, plan, refused},
};

/// The shipped policies, by which people are asked about `network` only where a secret is in the context.
fn autonomous() -> BundleSource {
    let mut source = bundle();
    let gate = r#"when { context.req.mode_effective == Placet::ApprovalMode::"network" }"#;
    for file in &mut source.files {
        if file.name == "20-gates.cedar" {
            assert!(file.text.contains(gate));
            let off = gate.replace(" }", " && context.req.frozen }");
            file.text = file.text.replace(gate, &off);
        }
    }
    source
}

async fn over(make: Make) -> World {
    let brings = ["look", "send", "book"].map(|tool| (tool, json!(["secret"]))).to_vec();
    World::with(Make { brings, bundle: autonomous(), ..make }).await
}

/// A world in which the results of `look`, `send` and `book` carry a secret.
async fn world() -> World {
    over(Make::default()).await
}

fn of(run: &str, tool: &str, step: &str) -> Value {
    let mut call = plan(tool, step, "a");
    call["run"]["run_id"] = json!(run);
    call["run"]["run_budget"] = json!({"tool_latency_ms_max": 5_000});
    call
}

/// A call with a key that calls of other runs have too.
fn keyed(run: &str, tool: &str) -> Value {
    let mut call = of(run, tool, "s1");
    call["idempotency_key"] = json!("the-same");
    call
}

fn declaring(mut call: Value, taint: &[&str]) -> Value {
    call["run"]["taint"] = json!(taint);
    call
}

fn asks_for_the_taint(held: &Held) -> bool {
    held.requirement.reasons.iter().any(|reason| reason.policy == "tainted-egress")
}

async fn taint_of(store: &dyn Store, run: &str) -> Vec<Taint> {
    let key = RunKey {
        tenant: "acme".parse().unwrap(),
        agent: "bot".parse().unwrap(),
        on_behalf_of: None,
        run_id: run.parse().unwrap(),
    };
    let run = store.run(&key).await.unwrap();
    run.into_iter().flat_map(|run| run.taint).collect()
}

/// Waits until the run has this, and nothing else, in its context.
async fn gets(world: &World, run: &str, taint: Taint) {
    let there = async {
        while taint_of(&*world.store, run).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), there).await.expect("it never comes there");
    assert_eq!(taint_of(&*world.store, run).await, [taint]);
}

fn events(world: &World, kind: AuditKind) -> Vec<AuditEvent> {
    world.store.audit().into_iter().filter(|event| event.kind == kind).collect()
}

#[tokio::test]
async fn what_a_result_brings_stays_in_the_run_after_a_restart_and_on_another_node() {
    let world = world().await;
    finished(world.call(of("r1", "fetch", "s1")).await);
    finished(world.call(of("r1", "look", "s2")).await);
    let asked = held(world.call(of("r1", "fetch", "s3")).await);
    assert!(asks_for_the_taint(&asked), "{asked:?}");
    // Another run has seen nothing.
    finished(world.call(of("r2", "fetch", "s1")).await);
    let node = over(world.beside()).await;
    assert!(asks_for_the_taint(&held(node.call(of("r1", "fetch", "s4")).await)));
    drop(node);
    let next = over(world.after()).await;
    assert!(asks_for_the_taint(&held(next.call(of("r1", "fetch", "s5")).await)));
    finished(next.call(of("r2", "fetch", "s2")).await);
    // Anyone who looked at what would leave lets it go.
    next.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(next.end_of(&asked).await);
}

#[tokio::test]
async fn what_a_call_declares_is_there_for_every_later_call_of_its_run() {
    let world = world().await;
    finished(world.call(of("r1", "fetch", "s1")).await);
    // A call that is refused has declared it all the same.
    let mut wrong = declaring(of("r1", "fetch", "s2"), &["secret"]);
    wrong["approval_mode_requested"] = json!("read_only");
    assert_eq!(refused(world.call(wrong).await).code, ErrorCode::ModeUpgraded);
    assert!(asks_for_the_taint(&held(world.call(of("r1", "fetch", "s3")).await)));
    // Declared by the first call of a run, it counts for that one too.
    let first = declaring(of("r2", "fetch", "s1"), &["pii", "secret"]);
    assert!(asks_for_the_taint(&held(world.call(first).await)));
    assert_eq!(taint_of(&*world.store, "r2").await, [Taint::Secret, Taint::Pii]);
    let next = over(world.after()).await;
    assert!(asks_for_the_taint(&held(next.call(of("r2", "fetch", "s2")).await)));
    let said = events(&world, AuditKind::RunTainted);
    assert_eq!(said.len(), 1, "what a run has already is not said again");
    assert_eq!((said[0].run_id.as_ref().unwrap().as_str(), said[0].taint.len()), ("r1", 1));
}

#[tokio::test]
async fn what_did_not_happen_brings_nothing_and_what_failed_with_words_does() {
    let world = world().await;
    world.witness.behave("look", Behaviour::NotExecuted);
    refused_or_failed(world.call(of("r1", "look", "s1")).await);
    assert!(taint_of(&*world.store, "r1").await.is_empty());
    finished(world.call(of("r1", "fetch", "s2")).await);
    world.witness.behave("look", Behaviour::Fails);
    refused_or_failed(world.call(of("r1", "look", "s3")).await);
    world.witness.behave_well();
    assert!(asks_for_the_taint(&held(world.call(of("r1", "fetch", "s4")).await)));
}

fn refused_or_failed(answer: Answer) {
    match answer {
        Answer::Refused(_) => {}
        Answer::Finished(result) => assert!(result.error.is_some(), "{result:?}"),
        other @ (Answer::InProgress(_) | Answer::Held(_)) => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_call_whose_end_a_later_process_finds_out_brings_what_it_would_have_brought() {
    let world = world().await;
    world.witness.behave("book", Behaviour::Slow(Duration::from_secs(3_600)));
    drop(world.send(of("r1", "book", "s1")).await);
    world.reaches("dispatched").await;
    assert!(taint_of(&*world.store, "r1").await.is_empty(), "nobody has seen anything yet");
    let witness = Arc::new(Witness::default());
    *witness.probing.lock() = Probing::Committed;
    let next = over(Make { witness, ..world.after() }).await;
    next.reaches("succeeded").await;
    assert_eq!(taint_of(&*next.store, "r1").await, [Taint::Secret]);
    assert!(asks_for_the_taint(&held(next.call(of("r1", "fetch", "s2")).await)));
}

#[tokio::test]
async fn a_keyed_call_that_another_process_sends_again_brings_it_too() {
    let world = world().await;
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    drop(world.send(of("r1", "send", "s1")).await);
    world.reaches("dispatched").await;
    let next = over(Make { witness: Arc::default(), ..world.after() }).await;
    next.reaches("succeeded").await;
    assert_eq!(taint_of(&*next.store, "r1").await, [Taint::Secret]);
}

#[tokio::test]
async fn a_run_that_is_given_the_result_of_another_one_has_what_that_brings() {
    let world = world().await;
    let keyed = |run: &str| keyed(run, "send");
    finished(world.call(keyed("r1")).await);
    assert!(finished(world.call(keyed("r2")).await).replayed);
    assert_eq!(taint_of(&*world.store, "r2").await, [Taint::Secret]);
    assert!(asks_for_the_taint(&held(world.call(of("r2", "fetch", "s2")).await)));
    assert_eq!(world.witness.effects("send").len(), 1);
}

#[tokio::test]
async fn a_result_whose_taint_cannot_be_kept_is_not_told_to_another_run() {
    let world = world().await;
    let keyed = |run: &str| keyed(run, "send");
    finished(world.call(keyed("r1")).await);
    finished(world.call(of("r2", "fetch", "s0")).await);
    let away = StoreError::Unreachable("gone".to_owned());
    world.store.fail_once_on(AuditKind::RunTainted, Fault::Refuse(away));
    let refusal = refused(world.call(keyed("r2")).await);
    assert_eq!(refusal.code, ErrorCode::LedgerUnavailable);
    assert!(finished(world.call(keyed("r2")).await).replayed, "told once it is kept");
    assert_eq!(taint_of(&*world.store, "r2").await, [Taint::Secret]);
}

#[tokio::test]
async fn approvers_and_the_audit_chain_are_told_what_the_run_had_in_its_context() {
    let world = world().await;
    finished(world.call(declaring(of("r1", "look", "s1"), &["untrusted_content"])).await);
    let asked = held(world.call(of("r1", "fetch", "s2")).await);
    let both = [Taint::UntrustedContent, Taint::Secret];
    let detail = world
        .engine
        .approvals()
        .approval(&world.person("ben").await, &asked.approval_id)
        .await
        .unwrap();
    let evidence = detail.proposal.unwrap().evidence;
    assert_eq!(evidence.taint, both.into());
    let stored = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
    assert_eq!(stored.proposal, detail.approval.digest, "it is in what the digest covers");
    assert_eq!(events(&world, AuditKind::Held)[0].taint, both.into());
    assert_eq!(events(&world, AuditKind::ReadDispatched)[0].taint, [both[0]].into());
    assert_eq!(events(&world, AuditKind::ReadSettled)[0].taint, [both[1]].into());
    // What came into the run after people were asked is not in what they were shown.
    finished(world.call(declaring(of("r1", "look", "s3"), &["pii"])).await);
    let again =
        world.engine.approvals().approval(&world.person("ben").await, &asked.approval_id).await;
    assert_eq!(again.unwrap().proposal.unwrap().evidence.taint, both.into());
}

#[tokio::test]
async fn an_agreement_from_before_the_secret_came_does_not_let_the_call_go() {
    // As shipped: the gate and the rule for secrets ask the same people.
    let brings = vec![("look", json!(["secret"]))];
    let world = World::with(Make { brings, ..Make::default() }).await;
    let asked = held(world.call(of("r1", "fetch", "s1")).await);
    assert!(!asks_for_the_taint(&asked));
    let ben = world.person("ben").await;
    let before = world.engine.approvals().approval(&ben, &asked.approval_id).await.unwrap();
    assert!(before.proposal.unwrap().evidence.taint.is_empty());
    finished(world.call(of("r1", "look", "s2")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let reopened = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let now = world.store.approval(&asked.approval_id).await.unwrap().unwrap();
            if now.reopened > 0 {
                return now;
            }
            assert!(world.witness.effects("fetch").is_empty(), "sent by an agreement to less");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let reopened = reopened.await.expect("it is never put back to people");
    assert_eq!((reopened.state.name(), reopened.votes.len()), ("pending", 1));
    assert_eq!(reopened.lapsed, [0].into(), "who did not know does not count");
    let shown = world.engine.approvals().approval(&ben, &asked.approval_id).await.unwrap();
    assert_ne!(shown.approval.digest, before.approval.digest, "it is something else to decide on");
    assert_eq!(shown.proposal.unwrap().evidence.taint, [Taint::Secret].into());
    assert!(world.witness.effects("fetch").is_empty());
    // Anyone who knows of it may agree, and that counts.
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("fetch").len(), 1);
}

#[tokio::test]
async fn the_words_in_which_a_tool_refuses_a_call_come_into_the_run() {
    let world = world().await;
    for tool in ["look", "send"] {
        world.witness.behave(tool, Behaviour::Refuses);
        refused_or_failed(world.call(of(tool, tool, "s1")).await);
        assert_eq!(taint_of(&*world.store, tool).await, [Taint::Secret], "{tool}");
    }
}

#[tokio::test]
async fn a_run_that_is_told_of_a_try_of_another_run_has_what_its_result_brings() {
    let world = world().await;
    let keyed = |run: &str| keyed(run, "send");
    world.witness.behave("send", Behaviour::NotExecuted);
    refused_or_failed(world.call(keyed("r1")).await);
    world.witness.behave("send", Behaviour::Slow(Duration::from_secs(3_600)));
    drop(world.send(keyed("r2")).await);
    world.reaches("dispatched").await;
    let own = world.send(keyed("r2")).await;
    let other = world.send(keyed("r1")).await;
    gets(&world, "r1", Taint::Secret).await;
    assert!(taint_of(&*world.store, "r2").await.is_empty(), "its own try is under way still");
    let said = events(&world, AuditKind::RunTainted);
    assert!(said[0].call_id.is_some() && said[0].chain.is_some(), "{said:?}");
    drop((own, other));
}

#[tokio::test]
async fn anyone_who_asks_after_its_own_call_that_waits_for_people_is_told_nothing_yet() {
    let brings = vec![("erase", json!(["pii"]))];
    let world = World::with(Make { brings, ..Make::default() }).await;
    let keyed = |run: &str| keyed(run, "erase");
    let asked = held(world.call(keyed("r1")).await);
    let own = world.send(keyed("r1")).await;
    let other = world.send(keyed("r2")).await;
    gets(&world, "r2", Taint::Pii).await;
    assert!(taint_of(&*world.store, "r1").await.is_empty());
    drop((own, other));
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_told_elsewhere_how_another_ones_try_ended_has_what_that_brings() {
    let world = world().await;
    let node = over(world.beside()).await;
    let keyed = |run: &str| keyed(run, "send");
    world.witness.behave("send", Behaviour::NotExecuted);
    refused_or_failed(world.call(keyed("r0")).await);
    // The next try is of the run that waits for it on the other node too, and comes to nothing.
    world.witness.behave("send", Behaviour::NothingAfter(Duration::from_secs(4)));
    let first = world.send(keyed("r2")).await;
    world.reaches("dispatched").await;
    let mut waiting = keyed("r2");
    waiting["wait_ms"] = json!(60_000);
    let mut waiting = node.send(waiting).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(taint_of(&*world.store, "r2").await.is_empty(), "its own try is under way still");
    node.store.cut_off(true);
    tokio::time::sleep(Duration::from_secs(4)).await;
    world.reaches("failed_retriable").await;
    world.witness.behave_well();
    finished(world.call(keyed("r1")).await);
    assert!(taint_of(&*world.store, "r2").await.is_empty(), "it was told nothing yet");
    node.store.cut_off(false);
    assert!(finished(waiting.settled(0).await).replayed);
    assert_eq!(taint_of(&*world.store, "r2").await, [Taint::Secret]);
    assert!(asks_for_the_taint(&held(node.call(of("r2", "fetch", "s2")).await)));
    drop(first);
}

/// A call of `r2`, of a record of `r1`, of which nobody knows the outcome, ended by an operator.
async fn ended_by_an_operator(world: &World, outcome: &str) {
    world.witness.behave("send", Behaviour::NotExecuted);
    refused_or_failed(world.call(keyed("r1", "send")).await);
    world.witness.behave("send", Behaviour::Unknown);
    refused_or_failed(world.call(keyed("r2", "send")).await);
    world.witness.behave_well();
    let record = world.reaches("indeterminate").await;
    assert!(taint_of(&*world.store, "r2").await.is_empty());
    let request = json!({"outcome": outcome, "evidence": "looked", "output": {"by": "hand"}});
    let request = serde_json::from_value(request).unwrap();
    let dora = world.person("dora").await;
    world.engine.resolve(&dora, record.record_id, request).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_result_that_an_operator_hands_in_comes_into_every_run_that_may_ask_for_it() {
    let world = world().await;
    ended_by_an_operator(&world, "happened").await;
    for run in ["r2", "r1"] {
        assert_eq!(taint_of(&*world.store, run).await, [Taint::Secret], "{run}");
    }
    finished(world.call(keyed("r1", "send")).await);
}

#[tokio::test(start_paused = true)]
async fn what_an_operator_found_not_to_have_happened_brings_nothing_anyone_who_asks() {
    let world = world().await;
    ended_by_an_operator(&world, "did_not_happen").await;
    for run in ["r1", "r2", "r3"] {
        let refusal = refused(world.call(keyed(run, "send")).await);
        assert_eq!(refusal.code, ErrorCode::AdapterFailed);
        assert!(taint_of(&*world.store, run).await.is_empty(), "{run}");
    }
    assert_eq!(events(&world, AuditKind::RunTainted), []);
}
