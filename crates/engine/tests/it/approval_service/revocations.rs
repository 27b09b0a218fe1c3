//! Revocations: who may, what counts no more, what counts again, on every node and after a restart.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use placet_approvals::views::{DirectiveView, EntriesQuery};
use placet_engine::answer::Answer;
use placet_identity::VerifiedCaller;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::Ledger,
    testing::{Fault, MemoryStore},
};
use placet_types::{
    approval::VoteChoice,
    directive::{DirectiveKind, REVOCATION_MS_MAX, REVOCATION_MS_MIN},
    error::{ErrorCode, Refusal},
    principal::PrincipalKind,
};

use super::{nodes::soon, ran};
use crate::world::{World, finished, held, plan, refused};

fn of(subject: &str) -> Value {
    json!({ "kind": "revocation", "subject": subject })
}

impl World {
    async fn revoke(&self, person: &str, subject: &str) -> Result<DirectiveView, Refusal> {
        self.arrange(person, of(subject), REVOCATION_MS_MIN).await
    }

    /// Later, by every clock: also by that of an issuer whose clock is as far ahead as it may be.
    fn later(&self) {
        self.store.advance_ms(6_000);
        self.tell_time();
    }

    /// Whether a read of this caller is refused as that of a revoked token; what it is refused for otherwise fails the test.
    async fn is_out(&self, caller: &VerifiedCaller, step: &str) -> bool {
        match self.call_as(caller.clone(), plan("look", step, "x")).await {
            Answer::Finished(_) => false,
            answer @ (Answer::InProgress(_) | Answer::Held(_) | Answer::Refused(_)) => {
                assert_eq!(refused(answer).code, ErrorCode::CredentialExpired);
                true
            }
        }
    }
}

/// What a subject is called in its token: the development key puts the tenant before it.
fn subject(caller: &VerifiedCaller) -> String {
    caller.actor.subject().to_owned()
}

#[tokio::test]
async fn a_revoked_token_makes_no_call_and_a_new_one_does() {
    let world = World::new().await;
    let before = world.agent().await;
    assert!(ran(&world.call_as(before.clone(), plan("note", "s1", "x")).await));
    let entry = world.revoke("dora", &subject(&before)).await.unwrap();
    assert!(entry.in_force && entry.state == "active", "{entry:?}");
    assert!(world.engine.is_revoked(&before));
    assert!(world.is_out(&before, "s2").await);
    let token = world.token(PrincipalKind::Agent, "bot");
    let header = format!("Bearer {token}");
    let at_the_api = world.engine.authenticate(Some(&header), None, None).await.unwrap_err();
    assert_eq!(at_the_api.code, ErrorCode::CredentialExpired);
    assert!(!format!("{} {:?}", at_the_api.message, at_the_api.problems).contains("operator"));
    world.later();
    let after = world.agent().await;
    assert!(!world.is_out(&after, "s3").await, "a new sign-in works again");
    assert!(world.is_out(&before, "s4").await, "the old token does not");
    // Others were never meant.
    let other = world.caller(PrincipalKind::Agent, "other").await;
    assert!(!world.engine.is_revoked(&other));
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_delegation_of_a_revoked_user_counts_no_more_and_the_agents_own_token_does() {
    let world = World::new().await;
    let (bot, for_ana) = (world.agent().await, world.agent_for("ana").await);
    let ana = for_ana.delegation.as_ref().unwrap().subject().to_owned();
    world.revoke("ben", &ana).await.unwrap();
    assert!(world.is_out(&for_ana, "s1").await);
    assert!(!world.is_out(&bot, "s2").await);
}

#[tokio::test]
async fn operators_and_who_is_on_call_revoke_and_operators_lift() {
    let world = World::new().await;
    let bot = world.agent().await;
    let name = subject(&bot);
    for person in ["cy", "ana", "eve", "leo", "gone"] {
        let refusal = world.revoke(person, &name).await.unwrap_err();
        assert!(
            [ErrorCode::PolicyDenied, ErrorCode::NotFound].contains(&refusal.code),
            "{person}: {refusal}"
        );
    }
    assert!(!world.engine.is_revoked(&bot));
    let entry = world.revoke("emil", &name).await.unwrap();
    assert!(world.engine.is_revoked(&bot));
    let subjects = |count: u32| format!("placet_subjects_revoked {count}\n");
    assert!(world.engine.metrics().encode().contains(&subjects(1)));
    assert_eq!(world.end("emil", &entry).await.unwrap_err().code, ErrorCode::PolicyDenied);
    let lifted = world.end("dora", &entry).await.unwrap();
    assert_eq!((lifted.state.as_str(), lifted.in_force), ("ended", false));
    assert!(!world.engine.is_revoked(&bot), "its tokens count again");
    let dora = world.person("dora").await;
    let revocations =
        EntriesQuery { kind: Some(DirectiveKind::Revocation), ..EntriesQuery::default() };
    let listed = world.entries(&dora, revocations).await;
    assert_eq!(listed.len(), 1);
    assert!(world.engine.metrics().encode().contains(&subjects(0)));
}

#[tokio::test]
async fn a_revocation_lasts_at_least_as_long_as_any_token_and_names_somebody() {
    let world = World::new().await;
    for (arrange, lasts_ms) in [
        (of("bot"), REVOCATION_MS_MIN - 1),
        (of("bot"), REVOCATION_MS_MAX + 1),
        (of(" "), REVOCATION_MS_MIN),
        (of(&"x".repeat(2_001)), REVOCATION_MS_MIN),
        (json!({ "kind": "revocation", "subject": "bot", "issuer": "" }), REVOCATION_MS_MIN),
        (
            json!({ "kind": "revocation", "subject": "bot", "issuer": "https://isuer.example" }),
            REVOCATION_MS_MIN,
        ),
    ] {
        let refusal = world.arrange("dora", arrange.clone(), lasts_ms).await.unwrap_err();
        assert_eq!(refusal.code, ErrorCode::ValidationError, "{arrange}");
    }
}

#[tokio::test]
async fn a_revocation_of_somebody_who_never_came_counts() {
    let world = World::new().await;
    assert!(world.revoke("dora", "misspelt").await.unwrap().in_force, "it may come still");
}

#[tokio::test]
async fn a_revocation_of_one_node_counts_on_the_other_and_after_a_restart() {
    let one = World::new().await;
    let two = one.node().await;
    let bot = two.agent().await;
    assert!(!two.engine.is_revoked(&bot));
    let told = two.engine.revoked(Arc::new(bot.clone()));
    let entry = one.revoke("dora", &subject(&bot)).await.unwrap();
    let seen = async {
        while !two.engine.is_revoked(&bot) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), seen)
        .await
        .expect("the other node never sees it");
    let told = tokio::time::timeout(Duration::from_secs(1), told);
    let told = told.await.expect("anyone who waits there is told");
    assert_eq!(told.code, ErrorCode::CredentialExpired);
    assert!(two.is_out(&bot, "s1").await);
    // The next process knows it before it takes anything in.
    let next = World::over(Arc::clone(&one.store), Arc::clone(&one.witness)).await;
    let again = next.agent().await;
    assert!(next.engine.is_revoked(&again));
    next.end("dora", &entry).await.unwrap();
    assert!(!next.engine.is_revoked(&again));
}

#[tokio::test]
async fn a_held_call_waits_for_its_caller_when_the_token_it_was_made_with_is_revoked() {
    let world = World::new().await;
    let bot = world.agent().await;
    let asked = held(world.call_as(bot.clone(), plan("erase", "s1", "x")).await);
    world.revoke("dora", &subject(&bot)).await.unwrap();
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    world.stands(&asked, "approved").await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(world.witness.effects("erase").is_empty(), "its authority is gone");
    world.stands(&asked, "approved").await;
    world.later();
    let again = world.agent().await;
    drop(world.call_as(again.clone(), plan("erase", "s1", "x")).await);
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
    // On the record is the token that it was made with, and not the one that it was asked with.
    let ledger = Ledger::new(Arc::<MemoryStore>::clone(&world.store));
    let kept = ledger.parked(&world.record().await).await.unwrap();
    let (first, then) = (bot.actor.token_ref(), again.actor.token_ref());
    assert_ne!(first, then);
    assert_eq!(kept.envelope.auth_ref.unwrap().agent_token_ref, then);
    assert_eq!(kept.run.agent.token_ref, then);
    assert_eq!(kept.bearers[0].issued_at, again.actor.said_issued_at());
}

#[tokio::test]
async fn a_caller_who_comes_back_while_its_absence_is_recorded_is_heard() {
    let world = World::new().await;
    let bot = world.agent().await;
    let asked = held(world.call_as(bot.clone(), plan("erase", "s1", "x")).await);
    world.revoke("dora", &subject(&bot)).await.unwrap();
    let stall = Fault::Stall(Duration::from_secs(1));
    world.store.fail_once_on(AuditKind::AwaitsCredential, stall);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    let is_noted = |event: &AuditEvent| event.kind == AuditKind::AwaitsCredential;
    soon("its absence is noted", async || world.store.audit().iter().any(is_noted)).await;
    world.later();
    drop(world.call_as(world.agent().await, plan("erase", "s1", "x")).await);
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}
