//! Many orders of events, failures, restarts, crashes and passing time: whatever comes, everything arrives, in order for each call, and
//! nothing arrives twice unless a process died before it could note it.

use std::collections::{BTreeMap, BTreeSet};

use placet_ledger::{approval::ApprovalState, audit::AuditKind};
use serde_json::{Value, json};

use super::support::{Arrived, Boy, Chain, MINUTE, approval, config, sender, then, turn, voted};
use crate::{outbox::PARALLEL_MAX, sender::Failure};

/// A deterministic source of choices.
struct Dice(u64);

impl Dice {
    /// One of `0..below`.
    fn roll(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0.wrapping_shr(33).checked_rem(below).unwrap_or(0)
    }
}

/// The number of events of a call.
const STEPS: u64 = 3;

fn happens(chain: &Chain, call: u64, step: u64) -> String {
    let held = approval(u32::try_from(call).unwrap());
    let log = if call.is_multiple_of(2) { "journal" } else { "epoch-2" };
    let kind = match step {
        0 => {
            chain.moved_in(log, &held, AuditKind::Held);
            "held"
        }
        1 => {
            chain.moved_in(log, &voted(&held, "ben", ApprovalState::Pending), AuditKind::Voted);
            "voted"
        }
        _ => {
            let ended = then(&voted(&held, "ben", ApprovalState::Pending), ApprovalState::Expired);
            chain.moved_in(log, &ended, AuditKind::ApprovalEnded);
            "expired"
        }
    };
    format!("call_{call} {kind}")
}

/// Plays one order; answers which words of which call arrived, each as often as it did, and how often a process died.
async fn plays(seed: u64, channel: Value) -> (Vec<Vec<String>>, usize, usize) {
    let (chain, boy, config) = (Chain::new(), Boy::default(), config(channel));
    let mut dice = Dice(seed);
    let mut now = sender(&config, &chain, &boy);
    turn(&mut now).await;
    let mut steps: BTreeMap<u64, u64> = BTreeMap::new();
    let mut wanted: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut died = 0_usize;
    for _ in 0..60 {
        let call = dice.roll(5).saturating_add(1);
        match dice.roll(8) {
            0..=2 => {
                let step = steps.entry(call).or_insert(0);
                if *step < STEPS {
                    wanted.entry(call).or_default().push(happens(&chain, call, *step));
                    *step = step.saturating_add(1);
                }
            }
            3 => boy.refuse(&format!("call_{call}"), Some(Failure::passing("not now"))),
            4 => boy.refuse(&format!("call_{call}"), None),
            5 => chain.pass_ms(i64::try_from(dice.roll(5)).unwrap().saturating_mul(MINUTE)),
            6 => turn(&mut now).await,
            _ => {
                // Half of the deaths happen while a message is being sent.
                if dice.roll(2) == 0 {
                    now.turn().await.unwrap();
                    for _ in 0..dice.roll(4) {
                        tokio::task::yield_now().await;
                    }
                    died = died.saturating_add(1);
                }
                now = sender(&config, &chain, &boy);
            }
        }
    }
    for call in 1..=5 {
        boy.refuse(&format!("call_{call}"), None);
    }
    for _ in 0..40 {
        chain.pass_ms(30 * MINUTE);
        turn(&mut now).await;
    }
    let arrived = boy.arrived();
    let said: Vec<Vec<String>> = arrived.iter().map(Arrived::words).collect();
    for (call, wanted) in &wanted {
        let mut seen = BTreeSet::new();
        let of_call = said.iter().flatten();
        let of_call = of_call.filter(|said| said.starts_with(&format!("call_{call} ")));
        let first: Vec<&String> = of_call.filter(|said| seen.insert(*said)).collect();
        assert_eq!(first, wanted.iter().collect::<Vec<_>>(), "seed {seed}: {said:#?}");
    }
    let ids: BTreeSet<&String> = arrived.iter().map(|one| &one.letter.message.id).collect();
    let words: BTreeSet<&Vec<String>> = said.iter().collect();
    assert_eq!(ids.len(), words.len(), "seed {seed}: one name for each message");
    let all = wanted.values().map(Vec::len).sum();
    (said, all, died)
}

#[tokio::test]
async fn in_every_order_each_message_arrives_after_the_one_before_it() {
    for seed in 0..150 {
        let (said, all, died) = plays(seed, json!({})).await;
        let again = said.len().saturating_sub(all);
        let often = died.saturating_mul(PARALLEL_MAX);
        assert!(again <= often, "seed {seed}: {again} again, {died} died: {said:#?}");
    }
}

#[tokio::test]
async fn in_every_order_it_does_so_through_digests_quiet_hours_and_what_cannot_wait() {
    for seed in 0..150 {
        let quiet = json!({ "from": "09:10", "to": "09:20" });
        let (said, all, died) = plays(
            seed,
            json!({ "digest_every_ms": 240_000, "quiet": quiet, "at_once": ["voted"] }),
        )
        .await;
        // A message is repeated only if it was being sent when its process died.
        let again = said.iter().map(Vec::len).sum::<usize>().saturating_sub(all);
        let often = died.saturating_mul(PARALLEL_MAX).saturating_mul(5);
        assert!(again <= often, "seed {seed}: {again} again, {died} died: {said:#?}");
    }
}
