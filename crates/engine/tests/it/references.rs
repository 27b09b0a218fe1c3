//! What a call refers to as evidence: found, frozen, shown to policies, and asked of delegated calls.

use placet_policy::bundle::PolicyFile;
use placet_types::{approval::VoteChoice, error::ErrorCode};
use serde_json::{Value, json};

use crate::world::{Make, World, bundle, finished, held, plan, refused, upon};

#[tokio::test]
async fn a_delegated_call_without_a_user_is_refused_before_policy() {
    let world = World::new().await;
    let looked = finished(world.call(plan("look", "s0", "a")).await);
    let refusal = refused(world.call(upon(plan("pay", "s1", "a"), &looked)).await);
    assert_eq!(refusal.code, ErrorCode::CredentialRefused);
    assert!(refusal.message.contains("Placet-Delegation"), "{}", refusal.message);
}

#[tokio::test]
async fn a_delegated_call_needs_evidence_that_is_found() {
    let world = World::new().await;
    let pay = |refs: Value| {
        let mut call = plan("pay", "s1", "a");
        call["evidence_refs"] = refs;
        call
    };
    let call = async |call: Value| world.call_as(world.agent_for("ana").await, call).await;
    let refusal = refused(call(plan("pay", "s1", "a")).await);
    assert_eq!(refusal.code, ErrorCode::ValidationError);
    assert_eq!(refusal.problems[0].pointer, "/evidence_refs");

    let looked = finished(call(plan("look", "s0", "a")).await).tool_call_id;
    // Of the agent alone, of another user, of another run, and of nobody.
    let alone = finished(world.call(plan("look", "s0", "a")).await).tool_call_id;
    let leo = world.agent_for("leo").await;
    let of_leo = finished(world.call_as(leo, plan("look", "s0", "a")).await).tool_call_id;
    let mut elsewhere = plan("look", "s9", "a");
    elsewhere["run"]["run_id"] = json!("other");
    let elsewhere = finished(call(elsewhere).await).tool_call_id;
    for foreign in [json!(alone), json!(of_leo), json!(elsewhere), json!("call_none"), json!("a b")]
    {
        let refusal = refused(call(pay(json!([looked, foreign]))).await);
        assert_eq!(refusal.code, ErrorCode::ValidationError, "{foreign}");
        let places: Vec<&str> = refusal.problems.iter().map(|one| one.pointer.as_str()).collect();
        assert_eq!(places, ["/evidence_refs/1"], "{foreign}");
    }
    // The refusals took no key.
    held(call(pay(json!([looked, looked]))).await);
}

#[tokio::test]
async fn what_a_held_call_refers_to_is_frozen_in_its_proposal() {
    let world = World::new().await;
    let agent = world.agent_for("ana").await;
    let looked = finished(world.call_as(agent.clone(), plan("look", "s0", "a")).await);
    let noted = finished(world.call_as(agent.clone(), plan("note", "s1", "a")).await);
    let mut pay = plan("pay", "s2", "a");
    pay["evidence_refs"] = json!([noted.tool_call_id, looked.tool_call_id]);
    let asked = held(world.call_as(agent.clone(), pay).await);
    let proposal = world
        .engine
        .approvals()
        .approval(&world.person("ben").await, &asked.approval_id)
        .await
        .unwrap()
        .proposal
        .unwrap();
    let digest = |output: &Value| placet_types::json::canonical_digest(output);
    for earlier in [&looked, &noted] {
        let item = proposal.evidence.refs.iter().find(|item| item.call_id == earlier.tool_call_id);
        let item = item.expect("it is in the proposal");
        assert_eq!(
            (Some(&item.capability_id), item.digest),
            (earlier.capability_id.as_ref(), digest(&earlier.output))
        );
    }
    // A repeated call without its references is the same call: they were found when it was first decided upon.
    let again = held(world.call_as(agent, plan("pay", "s2", "a")).await);
    assert_eq!(again.approval_id, asked.approval_id);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let mut ticket =
        world.engine.follow(&world.agent_for("ana").await, &asked.call_id).await.unwrap();
    while !ticket.current().is_final() {
        ticket.changed().await;
    }
    finished(ticket.current());
    assert_eq!(world.witness.effects("pay").len(), 1);
}

#[tokio::test]
async fn a_policy_can_ask_for_the_result_of_a_certain_tool() {
    let mut source = bundle();
    source.files.push(PolicyFile {
        name: "90-looked.cedar".to_owned(),
        text: r#"@id("looked-before") @approval("never") @reason("Look before you note.")
forbid (principal, action == Placet::Action::"fake/note", resource is Placet::Tool)
unless { context.req.evidence.tools.contains(Placet::Tool::"fake/look") };"#
            .to_owned(),
    });
    let world = World::with(Make { bundle: source, ..Make::default() }).await;
    assert_eq!(refused(world.call(plan("note", "s1", "a")).await).code, ErrorCode::PolicyDenied);
    let looked = finished(world.call(plan("look", "s0", "a")).await);
    finished(world.call(upon(plan("note", "s1", "a"), &looked)).await);
}
