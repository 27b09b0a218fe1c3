//! Order, repetition and giving up.

use placet_ledger::{approval::ApprovalState, audit::AuditKind, store::StoreError};
use serde_json::json;

use super::support::{Boy, Chain, MINUTE, approval, config, sender, then, turn, voted};
use crate::sender::Failure;

/// How many messages were given up.
fn given_up(chain: &Chain) -> usize {
    let notes = chain.notes();
    let is_one = |note: &str| note.starts_with("given up for");
    notes.iter().filter(|note| note.note.as_deref().is_some_and(is_one)).count()
}

#[tokio::test]
async fn each_event_of_a_call_is_told_once_and_noted_in_the_chain() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    let held = approval(1);
    chain.moved(&held, AuditKind::Held);
    turn(&mut sender).await;
    let agreed = voted(&held, "ben", ApprovalState::Approved);
    chain.moved(&agreed, AuditKind::Voted);
    turn(&mut sender).await;
    chain.ended(&agreed, "succeeded");
    turn(&mut sender).await;
    turn(&mut sender).await;
    assert_eq!(boy.said(), ["call_1 held", "call_1 approved", "call_1 finished"]);
    let notes = chain.notes();
    assert!(notes.iter().all(|note| note.call_id.is_some()), "{notes:?}");
    let said: Vec<_> = notes.iter().filter_map(|note| note.note.as_deref()).collect();
    assert_eq!(
        said,
        ["told over `ops`: held", "told over `ops`: approved", "told over `ops`: finished"]
    );
    assert_eq!(chain.waits().waiting, []);
}

#[tokio::test]
async fn a_later_message_about_a_call_waits_for_the_earlier_one_and_no_other_call_waits() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    boy.refuse("call_1", Some(Failure::passing("not now")));
    let (one, two) = (approval(1), approval(2));
    chain.moved(&one, AuditKind::Held);
    chain.moved(&two, AuditKind::Held);
    turn(&mut sender).await;
    chain.moved(&voted(&one, "ben", ApprovalState::Approved), AuditKind::Voted);
    chain.moved(&voted(&two, "ben", ApprovalState::Approved), AuditKind::Voted);
    for _ in 0..5 {
        chain.pass_ms(10_000);
        turn(&mut sender).await;
    }
    assert_eq!(boy.said(), ["call_2 held", "call_2 approved"]);
    boy.refuse("call_1", None);
    chain.pass_ms(2 * MINUTE);
    turn(&mut sender).await;
    assert_eq!(boy.said()[2..], ["call_1 held", "call_1 approved"]);
}

#[tokio::test]
async fn what_is_told_at_once_waits_for_a_digest_that_is_on_its_way() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let config = config(json!({ "digest_every_ms": 60_000, "at_once": ["denied"] }));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    let held = approval(1);
    chain.moved(&held, AuditKind::Held);
    boy.refuse("call_1", Some(Failure::passing("not now")));
    chain.pass_ms(2 * MINUTE);
    turn(&mut sender).await;
    assert_eq!(boy.tries(), 1);
    boy.refuse("call_1", None);
    chain.moved(&voted(&held, "ben", ApprovalState::Denied), AuditKind::Voted);
    turn(&mut sender).await;
    assert_eq!(boy.said(), Vec::<String>::new());
    chain.pass_ms(MINUTE);
    turn(&mut sender).await;
    assert_eq!(boy.said(), ["call_1 held", "call_1 denied"]);
}

#[tokio::test]
async fn tries_become_rarer_and_after_a_day_a_message_is_given_up_so_that_the_next_one_goes() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    boy.refuse("call_1", Some(Failure::passing("not now")));
    let held = approval(1);
    chain.moved(&held, AuditKind::Held);
    let mut tries = Vec::new();
    for _ in 0..25 {
        for _ in 0..60 {
            turn(&mut sender).await;
            chain.pass_ms(MINUTE);
        }
        tries.push(boy.tries());
    }
    assert!((7..20).contains(&tries[0]), "in the first hour: {tries:?}");
    let later = tries[22] - tries[2];
    assert!((19..=41).contains(&later), "at most two an hour, at least one: {tries:?}");
    assert_eq!(tries[23], tries[24], "it is tried after a day: {tries:?}");
    assert_eq!(given_up(&chain), 1);
    boy.refuse("call_1", None);
    chain.moved(&then(&held, ApprovalState::Expired), AuditKind::ApprovalEnded);
    turn(&mut sender).await;
    assert_eq!(boy.said(), ["call_1 expired"]);
}

#[tokio::test]
async fn a_day_of_tries_is_a_day_whatever_is_restarted_meanwhile() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    turn(&mut sender(&config, &chain, &boy)).await;
    boy.refuse("call_1", Some(Failure::passing("not now")));
    chain.moved(&approval(1), AuditKind::Held);
    // A process lives for an hour.
    for hour in 0..26 {
        let mut sender = sender(&config, &chain, &boy);
        for _ in 0..60 {
            turn(&mut sender).await;
            chain.pass_ms(MINUTE);
        }
        // The last try is the last one that fits into the day.
        if hour != 23 {
            assert_eq!(given_up(&chain), usize::from(hour > 23), "in hour {hour}");
        }
    }
    let tries = boy.tries();
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.tries(), tries, "it is tried after it was given up");
}

#[tokio::test]
async fn what_is_told_at_once_does_not_overtake_what_is_gathered_about_the_same_call() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let config = config(json!({ "digest_every_ms": 1_800_000, "at_once": ["denied"] }));
    turn(&mut sender(&config, &chain, &boy)).await;
    let (one, two) = (approval(1), approval(2));
    chain.moved(&one, AuditKind::Held);
    chain.moved(&two, AuditKind::Held);
    turn(&mut sender(&config, &chain, &boy)).await;
    chain.pass_ms(MINUTE);
    boy.refuse("call_1", Some(Failure::passing("not now")));
    chain.moved(&voted(&one, "ben", ApprovalState::Denied), AuditKind::Voted);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), Vec::<String>::new(), "the later message went out first");
    boy.refuse("call_1", None);
    // Another process has to find the same.
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_1 held", "call_1 denied"]);
    chain.pass_ms(30 * MINUTE);
    turn(&mut sender(&config, &chain, &boy)).await;
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said()[2..], ["call_2 held"]);
}

#[tokio::test]
async fn a_receiver_that_wants_nothing_any_more_is_not_asked_again() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    boy.refuse("call_1", Some(Failure { is_permanent: true, ..Failure::passing("gone") }));
    chain.moved(&approval(1), AuditKind::Held);
    for _ in 0..3 {
        turn(&mut sender).await;
        chain.pass_ms(60 * MINUTE);
    }
    assert_eq!(boy.tries(), 1);
}

#[tokio::test]
async fn a_receiver_is_not_asked_before_it_wants_to_be() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    let busy = Failure { retry_after_ms: Some(600_000), ..Failure::passing("busy") };
    boy.refuse("call_1", Some(busy));
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut sender).await;
    chain.pass_ms(599_000);
    turn(&mut sender).await;
    assert_eq!(boy.tries(), 1);
    chain.pass_ms(2_000);
    turn(&mut sender).await;
    assert_eq!(boy.tries(), 2);
}

#[tokio::test]
async fn a_ledger_that_cannot_be_asked_costs_no_message() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    chain.moved(&approval(1), AuditKind::Held);
    chain.refuses(Some(StoreError::Unreachable("down".to_owned())));
    assert!(sender.turn().await.is_err());
    chain.refuses(None);
    turn(&mut sender).await;
    assert_eq!(boy.said(), ["call_1 held"]);
}
