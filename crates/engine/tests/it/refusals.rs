//! Calls that are refused: by their target after an effect, or on the way to it. What is told is true of every attempt.

use placet_engine::answer::Answer;
use placet_policy::bundle::{BundleSource, PolicyFile};
use placet_types::{
    approval::VoteChoice,
    error::{ErrorCode, Execution},
};

use crate::fake::Behaviour;
use crate::world::{Make, World, bundle, finished, held, plan, refused};

/// The shipped policies, and one of `note`.
fn with_note(policy: &str) -> BundleSource {
    let mut source = bundle();
    source.files.push(PolicyFile { name: "99-note.cedar".to_owned(), text: policy.to_owned() });
    source
}

/// People are asked about notes.
fn asked_about_notes() -> BundleSource {
    with_note(
        "@id(\"notes\") @approval(\"custom\") @approver_group(\"approvers\") @quorum(\"1\") @expires(\"24h\") @reason(\"Notes are looked at.\")\n\
         forbid (principal, action == Placet::Action::\"fake/note\", resource is Placet::Tool)\n\
         unless { context.req has approval && !context.req.approval.denied &&\n\
           context.req.approval.request_digest == context.req.evidence.request_digest &&\n\
           context.req.now < context.req.approval.expires_at && context.req.approval.total >= 1 };\n",
    )
}

#[tokio::test]
async fn an_error_answer_after_an_effect_is_unknown_from_any_adapter() {
    for tool in ["note", "erase"] {
        let world = World::new().await;
        world.witness.behave(tool, Behaviour::Rejects(-32_602));
        let call = || plan(tool, "s1", "a");
        let first = match world.call(call()).await {
            Answer::Held(asked) => {
                world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
                world.end_of(&asked).await
            }
            answer @ (Answer::InProgress(_) | Answer::Finished(_) | Answer::Refused(_)) => answer,
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
    world.witness.behave("erase", Behaviour::NotExecuted);
    let asked = held(world.call(plan("erase", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::AdapterUnavailable);
    world.witness.behave_well();
    let result = finished(world.call(plan("erase", "s1", "a")).await);
    assert_eq!(result.approval_id.as_ref(), Some(&asked.approval_id));
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_retry_whose_approval_expired_is_decided_once_more_without_it() {
    let world = World::with(Make { bundle: asked_about_notes(), ..Make::default() }).await;
    world.witness.behave("note", Behaviour::NotExecuted);
    let asked = held(world.call(plan("note", "s1", "a")).await);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    assert_eq!(refused(world.end_of(&asked).await).code, ErrorCode::AdapterUnavailable);
    world.witness.behave_well();
    let expires_at = asked.result.pending_approval.as_ref().unwrap().expires_at;
    world.store.advance_ms(expires_at.since_ms(world.now()).saturating_add(1));
    // By now nobody need agree to it.
    world.activate(bundle()).await.unwrap();
    let result = finished(world.call(plan("note", "s1", "a")).await);
    assert_eq!(result.approval_id, None);
    assert_eq!(world.witness.effects("note").len(), 1);
}
