//! Restarts, several nodes, digests and approvals that end soon: what does not depend on which process does it.

use placet_ledger::{approval::ApprovalState, audit::AuditKind, store::StoreError};
use serde_json::json;

use super::support::{Boy, Chain, MINUTE, approval, config, read, sender, then, turn, voted};
use crate::sender::Failure;

#[tokio::test]
async fn a_restart_loses_nothing_and_sends_nothing_again() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    turn(&mut sender(&config, &chain, &boy)).await;
    for number in 1..=3 {
        chain.moved(&approval(number), AuditKind::Held);
    }
    // Each process makes one turn and dies.
    for number in 4..=6 {
        turn(&mut sender(&config, &chain, &boy)).await;
        chain.moved(&approval(number), AuditKind::Held);
        chain.pass_ms(MINUTE);
    }
    turn(&mut sender(&config, &chain, &boy)).await;
    let said: Vec<String> = (1..=6).map(|number| format!("call_{number} held")).collect();
    assert_eq!(boy.said(), said);
}

#[tokio::test]
async fn what_was_archived_unread_is_passed_over_and_what_comes_then_is_told() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    chain.writes_to("other");
    let mut before = sender(&config, &chain, &boy);
    turn(&mut before).await;
    // The channels are missing from the configuration for a while, and archives are taken away.
    for number in 1..=5 {
        chain.moved(&approval(number), AuditKind::Held);
    }
    chain.takes_away("journal", 5);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_5 held"]);
    // The same for a position that has merely not moved.
    chain.moved(&approval(6), AuditKind::Held);
    chain.moved(&approval(7), AuditKind::Held);
    chain.takes_away("journal", 7);
    let mut again = before;
    turn(&mut again).await;
    assert_eq!(boy.said().last().unwrap(), "call_7 held");
    assert!(!boy.said().contains(&"call_6 held".to_owned()));
}

#[tokio::test]
async fn what_was_sent_and_not_noted_is_sent_again_under_the_same_name() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    chain.moved(&approval(1), AuditKind::Held);
    // It is sent in this turn, and the process dies before it is noted.
    first.turn().await.unwrap();
    while boy.said().is_empty() {
        tokio::task::yield_now().await;
    }
    drop(first);
    turn(&mut sender(&config, &chain, &boy)).await;
    turn(&mut sender(&config, &chain, &boy)).await;
    let arrived = boy.arrived();
    assert_eq!(boy.said(), ["call_1 held", "call_1 held"]);
    assert_eq!(arrived[0].letter.message.id, arrived[1].letter.message.id);
    assert!(arrived[0].letter.message.id.starts_with("msg_"));
}

#[tokio::test]
async fn what_happened_before_anybody_was_to_be_told_is_not_told() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut sender(&config, &chain, &boy)).await;
    chain.moved(&approval(2), AuditKind::Held);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_2 held"]);
}

#[tokio::test]
async fn of_a_call_that_was_held_before_is_told_what_becomes_of_it_from_then_on() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let config = read(json!({
        "channels": { "ops": { "to": { "type": "slack", "url": "https://hooks.example/x" } } },
        "routes": [{ "events": ["held", "expiring", "expired", "approved"], "channels": ["ops"] }],
        "expiring_ms": 900_000,
    }));
    let (one, two) = (approval(1), approval(2));
    chain.moved(&one, AuditKind::Held);
    chain.moved(&two, AuditKind::Held);
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    chain.moved(&voted(&two, "ben", ApprovalState::Approved), AuditKind::Voted);
    turn(&mut sender).await;
    chain.pass_ms(46 * MINUTE);
    turn(&mut sender).await;
    chain.moved(&then(&one, ApprovalState::Expired), AuditKind::ApprovalEnded);
    turn(&mut sender).await;
    assert_eq!(boy.said(), ["call_2 approved", "call_1 expiring", "call_1 expired"]);
}

#[tokio::test]
async fn progress_is_kept_with_what_waits_still() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    boy.refuse("call_1", Some(Failure::passing("not now")));
    chain.moved(&approval(1), AuditKind::Held);
    chain.moved(&approval(2), AuditKind::Held);
    turn(&mut first).await;
    let kept = chain.waits();
    assert!(kept.read_to.unwrap().places["journal"] >= 3);
    let waiting: Vec<_> = kept.waiting.iter().map(|message| message.key.of.as_str()).collect();
    assert_eq!(waiting, ["apr_1:1:held"]);
    boy.refuse("call_1", None);
    turn(&mut sender(&config, &chain, &boy)).await;
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_2 held", "call_1 held"]);
}

#[tokio::test]
async fn a_quiet_chain_is_not_filled_with_notes() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    chain.moved(&approval(1), AuditKind::Held);
    for _ in 0..200 {
        turn(&mut first).await;
        chain.pass_ms(MINUTE);
    }
    // The beginning, the message, and that it was sent.
    assert_eq!(chain.kept(), 3);
}

#[tokio::test]
async fn of_two_nodes_one_sends_and_the_other_goes_on_when_it_is_gone() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut first = sender(&config, &chain, &boy);
    let mut second = sender(&config, &chain, &boy);
    turn(&mut first).await;
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut first).await;
    chain.leads(false);
    chain.moved_in("epoch-2", &approval(2), AuditKind::Held);
    turn(&mut second).await;
    assert_eq!(boy.said(), ["call_1 held"], "a node that does not lead sends");
    chain.leads(true);
    chain.writes_to("epoch-2");
    turn(&mut second).await;
    chain.moved_in(
        "epoch-2",
        &voted(&approval(1), "ben", ApprovalState::Approved),
        AuditKind::Voted,
    );
    turn(&mut second).await;
    assert_eq!(boy.said(), ["call_1 held", "call_2 held", "call_1 approved"]);
}

#[tokio::test]
async fn what_two_nodes_did_is_told_in_the_order_of_time() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let config = config(json!({}));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    let held = approval(1);
    chain.moved_in("z", &held, AuditKind::Held);
    chain.pass_ms(5);
    chain.moved_in("a", &voted(&held, "ben", ApprovalState::Approved), AuditKind::Voted);
    turn(&mut sender).await;
    assert_eq!(boy.said(), ["call_1 held", "call_1 approved"]);
}

#[tokio::test]
async fn an_approval_that_ends_soon_is_told_of_once_whatever_is_restarted() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let config = read(json!({
        "channels": { "ops": { "to": { "type": "slack", "url": "https://hooks.example/x" } } },
        "routes": [{ "events": ["expiring"], "channels": ["ops"] }],
        "expiring_ms": 900_000,
    }));
    turn(&mut sender(&config, &chain, &boy)).await;
    chain.moved(&approval(1), AuditKind::Held);
    let decided = approval(2);
    chain.moved(&decided, AuditKind::Held);
    turn(&mut sender(&config, &chain, &boy)).await;
    chain.moved(&voted(&decided, "ben", ApprovalState::Approved), AuditKind::Voted);
    chain.pass_ms(44 * MINUTE);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), Vec::<String>::new());
    chain.pass_ms(2 * MINUTE);
    for _ in 0..4 {
        let mut sender = sender(&config, &chain, &boy);
        turn(&mut sender).await;
        chain.pass_ms(2 * MINUTE);
        turn(&mut sender).await;
    }
    assert_eq!(boy.said(), ["call_1 expiring"]);
}

#[tokio::test]
async fn a_digest_gathers_a_time_and_is_the_same_after_a_restart() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let config = config(json!({ "digest_every_ms": 1_800_000 }));
    turn(&mut sender(&config, &chain, &boy)).await;
    chain.pass_ms(MINUTE);
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut sender(&config, &chain, &boy)).await;
    chain.pass_ms(20 * MINUTE);
    chain.moved(&approval(2), AuditKind::Held);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), Vec::<String>::new(), "a digest went out before its time");
    chain.pass_ms(10 * MINUTE);
    // Sent, and the process dies before it is noted.
    let mut dying = sender(&config, &chain, &boy);
    dying.turn().await.unwrap();
    while boy.said().is_empty() {
        tokio::task::yield_now().await;
    }
    drop(dying);
    turn(&mut sender(&config, &chain, &boy)).await;
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), vec!["call_1 held, call_2 held"; 2]);
    let arrived = boy.arrived();
    assert_eq!(arrived[0].letter.message.id, arrived[1].letter.message.id);
}

#[tokio::test]
async fn in_quiet_hours_only_what_cannot_wait_is_told() {
    let (chain, boy) = (Chain::new(), Boy::default());
    // It is nine in the morning; quiet is from half past eight to ten.
    let config = config(json!({
        "quiet": { "from": "08:30", "to": "10:00" },
        "at_once": ["denied"],
    }));
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    chain.moved(&approval(1), AuditKind::Held);
    chain.moved(&approval(2), AuditKind::Held);
    chain.moved(&voted(&approval(3), "ben", ApprovalState::Denied), AuditKind::Voted);
    turn(&mut sender).await;
    chain.pass_ms(59 * MINUTE);
    turn(&mut sender).await;
    assert_eq!(boy.said(), ["call_3 denied"]);
    chain.pass_ms(2 * MINUTE);
    turn(&mut sender).await;
    assert_eq!(boy.said()[1..], ["call_1 held, call_2 held"]);
    chain.moved(&approval(4), AuditKind::Held);
    turn(&mut sender).await;
    assert_eq!(boy.said()[2..], ["call_4 held"]);
}

#[tokio::test]
async fn a_sender_ends_with_its_ledger() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    chain.refuses(Some(StoreError::Fenced));
    let ended = sender(&config, &chain, &boy).run().await;
    assert_eq!(ended, StoreError::Fenced);
}
