//! The timeline of one call, from the audit chain of a store on disk.

use std::sync::Arc;

use placet_approvals::views::TimelineStep;
use placet_ledger::store::Store;
use placet_store::{embedded::EmbeddedStore, notary::Notary, seal::SealKey};
use placet_types::{approval::VoteChoice, error::ErrorCode};
use serde_json::json;

use crate::{
    embedded,
    world::{Make, World, finished, held, plan},
};

fn kinds(steps: &[TimelineStep]) -> Vec<&str> {
    steps.iter().map(|step| step.kind.as_str()).collect()
}

#[tokio::test]
async fn the_timeline_of_a_call_leads_from_the_hold_to_the_effect() {
    let folder = tempfile::tempdir().unwrap();
    let store = embedded::open(folder.path()).await;
    let name = "placet.example/test".parse().unwrap();
    let key = Arc::new(SealKey::from_seed("placet.example/key".parse().unwrap(), &[7; 32]));
    let notary =
        Notary::new(key, name, Arc::<EmbeddedStore>::clone(&store), folder.path().join("seals"));
    let kept_in: Arc<dyn Store> = Arc::<EmbeddedStore>::clone(&store);
    let world = World::with(Make {
        kept_in: Some(kept_in),
        notary: Some(Arc::new(notary)),
        ..Make::default()
    })
    .await;
    let other = held(world.call(plan("erase", "s0", "other")).await);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("cy", &other, VoteChoice::Deny).await.unwrap();
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    let timeline = async |person: &str| {
        world
            .engine
            .approvals()
            .timeline(&world.person(person).await, &asked.call_id)
            .await
            .map(|view| view.steps)
    };
    let steps = timeline("eve").await.unwrap();
    assert_eq!(kinds(&steps), ["held", "voted", "dispatched", "settled"], "{steps:?}");
    assert_eq!(steps[1].by.as_deref(), Some("ben"));
    assert!(steps.iter().all(|step| step.hash.starts_with("sha256:") && step.seq > 0));
    assert!(steps.windows(2).all(|pair| pair[0].seq < pair[1].seq));
    assert_eq!(timeline("leo").await.unwrap_err().code, ErrorCode::NotFound);
    // The agent sees its own call, and no words that could name a policy.
    let own = world
        .engine
        .approvals()
        .timeline(&world.agent().await, &asked.call_id)
        .await
        .unwrap()
        .steps;
    assert!(own.len() == steps.len() && own.iter().all(|step| step.note.is_none()));
    let other = world
        .engine
        .approvals()
        .timeline(&world.person("ben").await, &other.call_id)
        .await
        .unwrap()
        .steps;
    assert_eq!(kinds(&other), ["held", "voted"]);
}

#[tokio::test]
async fn an_agent_sees_its_request_without_policies_and_words_of_people() {
    let world = super::world(super::two_groups()).await;
    let asked = held(world.call(super::send("s1", "a")).await);
    world.vote("cy", &asked, VoteChoice::Approve).await.unwrap();
    world.edit("ben", &asked, json!({ "what": "a", "most": 1 })).await.unwrap();
    let approvals = world.engine.approvals();
    let own = approvals.approval(&world.agent().await, &asked.approval_id).await.unwrap();
    let listed = approvals.approvals(&world.agent().await, None, None, 9).await.unwrap();
    for shown in [json!(own), json!(listed)] {
        let text = shown.to_string();
        assert!(text.contains(asked.approval_id.as_str()), "{text}");
        for hidden in ["looked at it", "less is enough", "\"token_ref\"", "agent_urn", "\"policy\""]
        {
            assert!(!text.contains(hidden), "{hidden}: {text}");
        }
    }
}
