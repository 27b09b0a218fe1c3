//! What is noted of progress, and what a restart makes of it.

use std::collections::BTreeMap;

use placet_ledger::{
    approval::ApprovalState,
    audit::AuditKind,
    delivery::{DeliveryMark, WAITING_MAX},
};
use placet_types::clock::Timestamp;
use serde_json::json;

use super::support::{Boy, Chain, MINUTE, approval, config, read, sender, turn, voted};
use crate::{config::NotifyConfig, sender::Failure};

const DAY: i64 = 24 * 60 * MINUTE;

fn of_ends() -> NotifyConfig {
    read(json!({
        "channels": { "ops": { "to": { "type": "slack", "url": "https://hooks.example/x" } } },
        "routes": [{ "events": ["expiring"], "channels": ["ops"] }],
        "expiring_ms": 900_000,
    }))
}

/// The notes of progress: the places, and up to when ends were told of.
fn progress(chain: &Chain) -> Vec<(BTreeMap<String, u64>, Timestamp)> {
    let notes = chain.notes().into_iter();
    let marks = notes.filter_map(|note| match *note.delivery? {
        DeliveryMark::ReadTo { places, as_of, .. } => Some((places, as_of)),
        DeliveryMark::Sent { .. } | DeliveryMark::GivenUp { .. } => None,
    });
    marks.collect()
}

/// More waits than a note names. Answers how much.
async fn much_waits(chain: &Chain, boy: &Boy) -> u32 {
    let config = config(json!({}));
    let mut sender = sender(&config, chain, boy);
    turn(&mut sender).await;
    let much = u32::try_from(WAITING_MAX).unwrap().saturating_add(20);
    for number in 1..=much {
        boy.refuse(&format!("call_{number}"), Some(Failure::passing("not now")));
        chain.moved(&approval(number), AuditKind::Held);
    }
    turn(&mut sender).await;
    let first = progress(chain);
    assert_eq!(first.len(), 1, "{first:?}");
    for _ in 0..4_200 {
        chain.append("journal", json!({}));
    }
    chain.pass_ms(2 * MINUTE);
    turn(&mut sender).await;
    let again = progress(chain);
    assert_eq!(again, [first.clone(), first].concat());
    much
}

#[tokio::test]
async fn with_more_waiting_than_a_note_names_the_last_one_is_written_again_and_nothing_is_lost() {
    let (chain, boy) = (Chain::new(), Boy::default());
    let much = much_waits(&chain, &boy).await;
    // Nobody sends for a long time.
    for _ in 0..66_000 {
        chain.append("journal", json!({}));
    }
    for number in 1..=much {
        boy.refuse(&format!("call_{number}"), None);
    }
    turn(&mut sender(&config(json!({})), &chain, &boy)).await;
    let mut said = boy.said();
    said.sort();
    let mut wanted: Vec<String> = (1..=much).map(|number| format!("call_{number} held")).collect();
    wanted.sort();
    assert_eq!(said, wanted);
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
    chain.pass_ms(2 * MINUTE);
    turn(&mut first).await;
    assert_eq!(progress(&chain).last().unwrap().0["z"], 1);
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
async fn ends_that_could_not_be_told_of_are_not_noted_as_told() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), of_ends());
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    chain.moved(&approval(1), AuditKind::Held);
    turn(&mut first).await;
    let before = chain.notes().len();
    chain.pass_ms(46 * MINUTE);
    chain.hides_approvals(true);
    assert!(first.turn().await.is_err());
    assert_eq!(chain.notes().len(), before + 1, "nothing was noted");
    chain.hides_approvals(false);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_1 expiring"]);
}

#[tokio::test]
async fn a_log_that_closed_long_ago_is_not_named_after_a_restart_either() {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(json!({})));
    turn(&mut sender(&config, &chain, &boy)).await;
    chain.moved_in("epoch-0", &approval(1), AuditKind::Held);
    let mut first = sender(&config, &chain, &boy);
    turn(&mut first).await;
    chain.pass_ms(2 * MINUTE);
    turn(&mut first).await;
    assert_eq!(progress(&chain).last().unwrap().0["epoch-0"], 1);
    chain.pass_ms(8 * DAY);
    let mut second = sender(&config, &chain, &boy);
    for number in 2..=3 {
        chain.moved(&approval(number), AuditKind::Held);
        turn(&mut second).await;
        chain.pass_ms(2 * MINUTE);
        turn(&mut second).await;
    }
    let places = progress(&chain).pop().unwrap().0;
    assert_eq!(places.keys().collect::<Vec<_>>(), ["journal"]);
    turn(&mut sender(&config, &chain, &boy)).await;
    assert_eq!(boy.said(), ["call_1 held", "call_2 held", "call_3 held"]);
}
