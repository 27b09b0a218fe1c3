//! The state machine of one channel: the cost of many waiting messages, and how old a message gets.

use std::{sync::Arc, time::Duration};

use placet_types::clock::Timestamp;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{After, Failure, Outbox, Taken, WAITING_MAX};
use crate::{
    config::NotifyConfig,
    entry,
    message::{Scope, Told},
    notice::NoticeKind,
    tests::support::{MINUTE, NINE, approval, config},
};

fn outbox(changes: Value) -> Outbox {
    let config: NotifyConfig = config(changes);
    let (name, channel) = config.channels.first_key_value().unwrap();
    Outbox::new(name, channel)
}

fn at(ms: i64) -> Timestamp {
    Timestamp::from_ms(NINE.saturating_add(ms))
}

fn told(call: u32, kind: NoticeKind, ms: i64) -> Told {
    let notice = entry::of_approval(&approval(call), kind, at(ms));
    Told { notice: Arc::new(notice), scope: Scope::Full }
}

fn says(taken: &Taken) -> String {
    let told = taken.message.told().iter();
    let told = told.map(|told| format!("{} {}", told.notice.subject(), told.notice.kind));
    told.collect::<Vec<_>>().join(", ")
}

/// Sends everything that is due, successfully.
fn empties(outbox: &mut Outbox, ms: i64) -> Vec<String> {
    outbox.gather(at(ms));
    let mut said = Vec::new();
    loop {
        let taken = outbox.take(at(ms));
        if taken.is_empty() {
            return said;
        }
        for one in taken {
            said.push(says(&one));
            assert!(matches!(outbox.done(one.key, Ok(()), at(ms)), Some(After::Sent(_))));
        }
    }
}

#[test]
fn as_many_messages_as_may_wait_cost_no_look_at_all_of_them_for_each_attempt() {
    let mut outbox = outbox(json!({}));
    let began = Instant::now();
    for call in 0..u32::try_from(WAITING_MAX).unwrap() {
        assert!(outbox.add(told(call, NoticeKind::Held, 0), at(0)).is_none());
    }
    assert!(outbox.add(told(0, NoticeKind::Voted, 1), at(1)).is_some(), "one too many");
    let (mut tries, mut sent, mut ms) = (0, 0, 0);
    while outbox.len() > 0 {
        let taken = outbox.take(at(ms));
        if taken.is_empty() {
            ms += MINUTE;
        }
        for one in taken {
            tries += 1;
            // Each is refused once.
            let result =
                if tries <= WAITING_MAX { Err(Failure::passing("not now")) } else { Ok(()) };
            sent +=
                usize::from(matches!(outbox.done(one.key, result, at(ms)), Some(After::Sent(_))));
        }
    }
    assert_eq!((tries, sent), (2 * WAITING_MAX, WAITING_MAX));
    // Scanning all of them for each attempt would be eight hundred million steps.
    assert!(began.elapsed() < Duration::from_secs(30), "it took {:?}", began.elapsed());
}

#[test]
fn what_is_told_at_once_takes_along_what_is_gathered_about_the_same_call() {
    let mut outbox = outbox(json!({ "digest_every_ms": 1_800_000, "at_once": ["denied"] }));
    for (call, kind, ms) in [
        (1, NoticeKind::Held, 0),
        (2, NoticeKind::Held, 1),
        (1, NoticeKind::Voted, 2),
        (1, NoticeKind::Denied, 3),
        (3, NoticeKind::Held, 4),
    ] {
        assert!(outbox.add(told(call, kind, ms), at(ms)).is_none());
    }
    assert_eq!(outbox.len(), 5);
    assert_eq!(empties(&mut outbox, 5), ["call_1 held", "call_1 voted", "call_1 denied"]);
    assert_eq!(empties(&mut outbox, 31 * MINUTE), ["call_2 held, call_3 held"]);
    assert_eq!(outbox.len(), 0);
}

#[test]
fn what_happens_when_quiet_hours_have_just_ended_goes_out_after_what_happened_in_them() {
    // Quiet until ten.
    let mut outbox = outbox(json!({ "quiet": { "from": "08:30", "to": "10:00" } }));
    outbox.add(told(1, NoticeKind::Held, 0), at(0));
    outbox.add(told(2, NoticeKind::Held, 1), at(1));
    let ten = 60 * MINUTE;
    for (call, kind) in [(1, NoticeKind::Voted), (3, NoticeKind::Held), (1, NoticeKind::Denied)] {
        outbox.add(told(call, kind, ten + 500), at(ten + 500));
    }
    assert_eq!(
        empties(&mut outbox, ten + 500),
        ["call_1 held, call_2 held", "call_3 held", "call_1 voted", "call_1 denied"]
    );
}

#[test]
fn something_later_that_is_seen_first_is_not_pulled_before_what_is_told_at_once() {
    let mut outbox = outbox(json!({ "digest_every_ms": 1_800_000, "at_once": ["voted"] }));
    outbox.add(told(1, NoticeKind::Held, 0), at(0));
    outbox.add(told(1, NoticeKind::Denied, 20), at(20));
    outbox.add(told(1, NoticeKind::Voted, 10), at(21));
    assert_eq!(empties(&mut outbox, 30), ["call_1 held", "call_1 voted"]);
    assert_eq!(empties(&mut outbox, 31 * MINUTE), ["call_1 denied"]);
}

#[test]
fn an_old_message_is_tried_a_few_times_before_it_is_given_up() {
    let mut outbox = outbox(json!({}));
    let day = 24 * 60 * MINUTE;
    outbox.add(told(1, NoticeKind::Held, 0), at(2 * day));
    let mut ends = Vec::new();
    for minute in 0..10 {
        let now = at(2 * day + minute * MINUTE);
        for taken in outbox.take(now) {
            let after = outbox.done(taken.key, Err(Failure::passing("away as well")), now);
            ends.push(matches!(after, Some(After::GivenUp(_))));
        }
    }
    assert_eq!(ends, [false, false, true]);
}
