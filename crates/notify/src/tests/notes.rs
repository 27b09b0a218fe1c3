//! How progress is stored, and what a restart makes of it.

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditKind,
};
use serde_json::json;

use super::support::{Boy, Chain, MINUTE, approval, config, read, sender, turn, voted};
use crate::{config::NotifyConfig, ledger_reader::LedgerReader as _, sender::Failure};

fn of_ends() -> NotifyConfig {
    read(json!({
        "channels": { "ops": { "to": { "type": "slack", "url": "https://hooks.example/x" } } },
        "routes": [{ "events": ["expiring"], "channels": ["ops"] }],
        "expiring_ms": 900_000,
    }))
}

#[tokio::test]
async fn whatever_waits_is_sent_after_a_restart_however_much_was_recorded_since() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    for number in 1..=600 {
        boy.refuse(&format!("call_{number}"), Some(Failure::passing("not now")));
        chain.moved(&approval(number), AuditKind::Held);
    }
    turn(&mut first).await;
    assert_eq!(chain.waits().waiting.len(), 600);
    for _ in 0..5_000 {
        chain.append("journal", json!({}));
    }
    // The recorded entries are in an archive that is elsewhere.
    chain.takes_away("journal", 5_500);
    for number in 1..=600 {
        boy.refuse(&format!("call_{number}"), None);
    }
    turn(&mut sender(&config, &chain, &boy)).await;
    let mut said = boy.said();
    said.sort();
    let mut wanted: Vec<String> = (1..=600).map(|number| format!("call_{number} held")).collect();
    wanted.sort();
    assert_eq!(said, wanted);
    assert_eq!(chain.waits().waiting, []);
}

#[tokio::test]
async fn what_waits_for_a_channel_that_is_gone_is_given_up() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    turn(&mut sender(&config, &chain, &boy)).await;
    boy.refuse("call_1", Some(Failure::passing("not now")));
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(chain.waits().waiting.len(), 1);
    let other = read(json!({
        "channels": { "desk": { "to": { "type": "slack", "url": "https://hooks.example/x" } } },
        "routes": [{ "events": ["held"], "channels": ["desk"] }],
    }));
    turn(&mut sender(&other, &chain, &boy)).await;
    assert_eq!(chain.waits().waiting, []);
    chain.moved(&approval(2), AuditKind::Held);
    turn(&mut sender(&other, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_2 held"]);
}

#[tokio::test]
async fn what_waited_over_a_restart_is_told_in_the_order_of_time_whatever_log_it_is_in() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    boy.refuse("call_1", Some(Failure::passing("not now")));
    let held = approval(1);
    chain.moved_in("z", &held, AuditKind::Held);
    chain.pass_ms(5);
    chain.moved_in("a", &voted(&held, "ben", ApprovalState::Approved), AuditKind::Voted);
    turn(&mut first).await;
    assert_eq!(chain.waits().read_to.unwrap().places["z"], 1);
    boy.refuse("call_1", None);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_1 held", "call_1 approved"]);
}

#[tokio::test]
async fn a_vote_after_the_word_that_an_approval_ends_soon_does_not_repeat_it() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), of_ends());
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut sender).await;
    chain.pass_ms(46 * MINUTE);
    turn(&mut sender).await;
    for by in ["ben", "eve"] {
        chain.moved(&voted(&approval(1), by, ApprovalState::Pending), AuditKind::Voted);
        turn(&mut sender).await;
    }
    assert_eq!(boy.said(), ["call_1 expiring"]);
}

#[tokio::test]
async fn an_approval_that_is_asked_again_with_less_time_is_told_of_as_it_ends_then() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), of_ends());
    let mut sender = sender(&config, &chain, &boy);
    turn(&mut sender).await;
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut sender).await;
    // It would have been reported in 25 minutes; now in 20.
    chain.pass_ms(20 * MINUTE);
    let now = chain.now();
    let again = ApprovalRecord {
        reopened_at: Some(now),
        expires_at: now.plus_ms(35 * MINUTE),
        ..voted(&approval(1), "ben", ApprovalState::Pending)
    };
    chain.moved(&again, AuditKind::Voted);
    turn(&mut sender).await;
    assert!(boy.said().is_empty());
    for _ in 0..4 {
        chain.pass_ms(8 * MINUTE);
        turn(&mut sender).await;
    }
    assert_eq!(boy.said(), ["call_1 expiring"]);
}

#[tokio::test]
async fn ends_that_could_not_be_told_of_are_not_noted_as_told() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), of_ends());
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut first).await;
    let before = chain.kept();
    chain.pass_ms(46 * MINUTE);
    chain.hides_approvals(true);
    assert!(first.turn().await.is_err());
    assert_eq!(chain.kept(), before, "nothing was kept");
    chain.hides_approvals(false);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_1 expiring"]);
}
