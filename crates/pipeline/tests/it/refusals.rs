//! Calls that are refused: by their target after an effect, or on the way to it. What is told is true of every attempt.

use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution},
};

use crate::fake::Behaviour;
use crate::world::{World, finished, held, plan, refused};

#[tokio::test]
async fn an_error_answer_after_an_effect_is_unknown_from_any_adapter() {
    for tool in ["note", "erase"] {
        let world = World::new().await;
        world.witness.behave(tool, Behaviour::Rejects(-32_602));
        let call = || plan(tool, "s1", "a");
        let first = match world.call(call()).await {
            placet_pipeline::answer::Answer::Held(asked) => {
                world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
                world.end_of(&asked).await
            }
            answer => answer,
        };
        assert_eq!(refused(first).code, ErrorCode::OutcomeUnknown);
        for _retry in 0..5 {
            let told = refused(world.call(call()).await);
            assert_eq!(
                (told.code, told.execution),
                (ErrorCode::OutcomeUnknown, Execution::Unknown)
            );
        }
        assert_eq!(world.witness.effects(tool).len(), 1, "{tool} was sent again");
        assert_eq!(world.record().await.state.name(), "indeterminate");
    }
}

#[tokio::test]
async fn a_refusal_in_words_of_the_target_needs_a_new_approval() {
    let world = World::new().await;
    world.witness.behave("erase", Behaviour::Refuses);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::AdapterFailed);
    world.witness.behave_well();
    let again = held(world.call(plan("erase", "s1", "a")).await);
    assert_ne!(again.approval_id, asked.approval_id);
    assert!(world.witness.effects("erase").is_empty());
    world.vote("ben", &again, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&again).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_refused_connection_is_tried_again_under_the_same_approval() {
    let world = World::new().await;
    world.witness.behave("erase", Behaviour::NothingHappened);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::AdapterUnavailable);
    world.witness.behave_well();
    let result = finished(world.call(plan("erase", "s1", "a")).await);
    assert_eq!(result.approval_id.as_ref(), Some(&asked.approval_id));
    assert_eq!(world.witness.effects("erase").len(), 1);
}
