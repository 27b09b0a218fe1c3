//! What the approval service does while a permitted call waits for its place: it is decided again before it is sent.

use std::{sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json};

use placet_approvals::views::{Arrangement, DirectiveRequest};
use placet_engine::{settings::LedgerSettings, ticket::Ticket};
use placet_policy::bundle::BundleSource;
use placet_types::{approval::VoteChoice, error::ErrorCode};

use super::{arranged::breakable, ran};
use crate::{
    fake::Behaviour,
    world::{Make, World, bundle, finished, held, plan, quick, refused},
};

/// For how long the adapter is busy, or takes to say which tools it has.
const BUSY: Duration = Duration::from_millis(1_500);
/// Longer than a decision takes.
const A_WHILE: Duration = Duration::from_millis(300);

fn freeze() -> Value {
    json!({"kind": "freeze", "name": "now"})
}

async fn busy(bundle: BundleSource) -> World {
    let world = World::with(Make { bundle, places: 1, ..Make::default() }).await;
    world.witness.behave("note", Behaviour::Slow(BUSY));
    world
}

impl World {
    /// The answer to a call that was left to itself.
    async fn answer(&self, mut ticket: Ticket) -> placet_engine::answer::Answer {
        tokio::time::timeout(Duration::from_secs(20), ticket.settled(0)).await.unwrap()
    }

    /// One call that is with the adapter, and one that was permitted and waits for its place.
    async fn queue(&self) -> (Ticket, Ticket) {
        let first = self.send(plan("note", "s1", "x")).await;
        tokio::time::sleep(A_WHILE).await;
        let second = self.send(plan("note", "s2", "x")).await;
        tokio::time::sleep(A_WHILE).await;
        assert!(self.witness.effects("note").is_empty(), "the first is under way still");
        (first, second)
    }
}

#[tokio::test]
async fn a_freeze_holds_a_call_that_was_permitted_before_and_waits_for_its_place() {
    let world = busy(bundle()).await;
    let (first, second) = world.queue().await;
    world.arrange("dora", freeze(), 60_000).await.unwrap();
    assert!(ran(&world.answer(first).await), "it was sent before");
    let asked = held(world.answer(second).await);
    assert_eq!(world.witness.effects("note").len(), 1);
    // Those whom the freeze asks may let it pass, and then it runs once.
    world.witness.behave_well();
    world.vote("fay", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("note").len(), 2);
}

#[tokio::test]
async fn a_freeze_that_begins_meanwhile_holds_it_too() {
    let world = busy(bundle()).await;
    let arrange: Arrangement = serde_json::from_value(freeze()).unwrap();
    let starts_at = Some(world.now().plus_ms(60_000));
    let request = DirectiveRequest { arrange, reason: "r".to_owned(), starts_at, lasts_ms: 60_000 };
    world.engine.approvals().arrange(&world.person("dora").await, request).await.unwrap();
    let (first, second) = world.queue().await;
    world.store.advance_ms(60_000);
    assert!(ran(&world.answer(first).await));
    held(world.answer(second).await);
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_delegation_does_not_disturb_a_call_that_waits() {
    let world = busy(bundle()).await;
    let (first, second) = world.queue().await;
    let duty = json!({"kind": "delegation", "to": "leo", "groups": ["finance"]});
    world.arrange("finn", duty, 60_000).await.unwrap();
    assert!(ran(&world.answer(first).await) && ran(&world.answer(second).await));
}

#[tokio::test]
async fn a_token_that_is_revoked_meanwhile_carries_no_call() {
    let world = busy(bundle()).await;
    let (first, second) = world.queue().await;
    let subject = world.agent().await.actor.subject().to_owned();
    let revocation = json!({"kind": "revocation", "subject": subject});
    world.arrange("dora", revocation, placet_types::directive::REVOCATION_MS_MIN).await.unwrap();
    assert!(ran(&world.answer(first).await));
    let refusal = refused(world.answer(second).await);
    assert_eq!(refusal.code, ErrorCode::CredentialExpired, "{refusal:?}");
    assert_eq!(world.witness.effects("note").len(), 1);
}

#[tokio::test]
async fn a_glass_that_is_repaired_meanwhile_lets_nothing_pass() {
    let world = World::with(Make { bundle: breakable(), ..Make::default() }).await;
    let glass = json!({"kind": "break_glass", "ticket": "INC-1"});
    let glass = world.arrange("emil", glass, 3_600_000).await.unwrap();
    world.agree("ema", &glass).await.unwrap();
    // A destructive call waits until the tool was looked at.
    world.witness.list_slowly(BUSY);
    let waiting = world.send(plan("erase", "s1", "x")).await;
    tokio::time::sleep(A_WHILE).await;
    world.end("emil", &glass).await.unwrap();
    held(world.answer(waiting).await);
    assert!(world.witness.effects("erase").is_empty());
}

#[tokio::test]
async fn an_approved_call_on_its_way_goes_to_those_whom_a_freeze_asks() {
    let world = World::new().await;
    let asked = held(world.call(plan("erase", "s1", "x")).await);
    world.witness.list_slowly(BUSY);
    world.vote("ben", &asked, VoteChoice::Approve).await.unwrap();
    tokio::time::sleep(A_WHILE).await;
    world.arrange("dora", freeze(), 60_000).await.unwrap();
    assert!(world.witness.effects("erase").is_empty(), "it is on its way still");
    world.stands(&asked, "pending").await;
    world.witness.list_slowly(Duration::ZERO);
    world.vote("fay", &asked, VoteChoice::Approve).await.unwrap();
    finished(world.end_of(&asked).await);
    assert_eq!(world.witness.effects("erase").len(), 1);
}

#[tokio::test]
async fn a_freeze_or_a_revocation_stops_a_call_whose_session_is_being_begun() {
    let subject = World::new().await.agent().await.actor.subject().to_owned();
    let revocation = json!({"kind": "revocation", "subject": subject});
    for entry in [freeze(), revocation] {
        let world = World::new().await;
        world.witness.begin_slowly(BUSY);
        let waiting = world.send(plan("note", "s1", "x")).await;
        tokio::time::sleep(A_WHILE).await;
        assert_eq!(world.witness.seated.load(Ordering::SeqCst), 0, "it is on its way still");
        let lasts_ms = placet_types::directive::REVOCATION_MS_MIN;
        world.arrange("dora", entry.clone(), lasts_ms).await.unwrap();
        assert!(!ran(&world.answer(waiting).await), "{entry}");
        assert_eq!(world.witness.seated.load(Ordering::SeqCst), 1);
        assert!(world.witness.effects("note").is_empty(), "{entry}");
    }
}

/// Two nodes, the second of which looks at what is in force once a minute.
async fn one_that_rarely_looks() -> (World, World) {
    let one = World::new().await;
    let rarely = LedgerSettings { fleet_every_ms: 60_000, ..quick() };
    let store = std::sync::Arc::new(one.store.node());
    let witness = std::sync::Arc::clone(&one.witness);
    let two = World::with(Make { store, witness, ledger: rarely, ..Make::default() }).await;
    (one, two)
}

#[tokio::test]
async fn what_another_node_has_acknowledged_binds_the_very_next_call() {
    let (one, two) = one_that_rarely_looks().await;
    assert!(ran(&two.call(plan("note", "s1", "x")).await));
    let freeze = one.arrange("dora", freeze(), 60_000).await.unwrap();
    held(two.call(plan("note", "s2", "x")).await);
    assert_eq!(one.witness.effects("note").len(), 1);
    one.end("fay", &freeze).await.unwrap();
    let subject = two.agent().await.actor.subject().to_owned();
    let revocation = json!({"kind": "revocation", "subject": subject});
    one.arrange("dora", revocation, placet_types::directive::REVOCATION_MS_MIN).await.unwrap();
    let refusal = refused(two.call(plan("look", "s3", "x")).await);
    assert_eq!(refusal.code, ErrorCode::CredentialExpired, "reads too: {refusal:?}");
}

#[tokio::test]
async fn a_node_that_cannot_read_what_became_stricter_sends_nothing_and_says_so() {
    let (one, two) = one_that_rarely_looks().await;
    two.store.hide_directives(true);
    one.arrange("dora", freeze(), 60_000).await.unwrap();
    let refusal = refused(two.call(plan("note", "s1", "x")).await);
    assert_eq!(refusal.code, ErrorCode::Overloaded, "{refusal:?}");
    assert!(one.witness.effects("note").is_empty());
    two.store.hide_directives(false);
    held(two.call(plan("note", "s1", "x")).await);
}
