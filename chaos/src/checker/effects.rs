//! I1 and I2: each call happens at most once, and was recorded before it began.

use std::collections::BTreeMap;

use super::{
    Findings, Invariant,
    story::{Effect, KeyId, Story},
    world::World,
};
use crate::history::Class;
use placet_testkit::moment::Moment;

/// How much later than an effect's beginning the entry of its intent may be dated: clocks are read in milliseconds.
const CLOCK_MS: i64 = 20;

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    for (token, effects) in &world.by_token {
        if let [first, second, ..] = effects.as_slice() {
            let class = first.arrival.class;
            let why = format!(
                "{} effects of one token of class {class:?}: numbers {} and {}",
                effects.len(),
                first.number,
                second.number
            );
            findings.broken(Invariant::I1, token, why, tale(world, token));
        }
    }
    for (id, story) in &world.keys {
        sent_again(id, story, findings);
        repeated_late(world, id, story, findings);
        tokens_of_a_key(id, story, findings);
        intents(world, id, story, findings);
    }
    strangers(world, findings);
}

fn tale(world: &World<'_>, token: &str) -> Vec<String> {
    let story = world.owners.get(token).and_then(|id| world.keys.get(id));
    story.map(Story::told).unwrap_or_default()
}

/// Different tokens of one key are different arms, and each new arm was agreed to.
fn tokens_of_a_key(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let mut tokens: Vec<&str> =
        story.effects.iter().map(|effect| effect.arrival.token.as_str()).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let arms = story.rearms().saturating_add(1);
    if tokens.len() > arms {
        let why = format!("effects under {} tokens, though operators allowed {arms}", tokens.len());
        findings.broken(Invariant::I1, id, why, story.told());
    }
}

/// An opaque tool is called once for a token, unless it refused, or said that it does not know the token.
fn sent_again(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    for (place, second) in story.came.iter().enumerate() {
        let class = second.arrival.class;
        if matches!(class, Class::Keyed | Class::Read) {
            continue;
        }
        let before = story.came.iter().take(place);
        let mut open = before.filter(|first| {
            let denied = || {
                let between = |(at, token): &(_, &str)| {
                    *token == first.arrival.token && *at >= first.at && *at <= second.at
                };
                class == Class::Queryable && story.not_found.iter().any(between)
            };
            first.arrival.token == second.arrival.token && !first.refused && !denied()
        });
        if let Some(first) = open.next_back() {
            let why = format!(
                "attempt {} of token {} was sent though nobody knew what became of attempt {}",
                second.arrival.attempt, second.arrival.token, first.arrival.attempt
            );
            findings.broken(Invariant::I1, id, why, story.told());
        }
    }
}

/// A keyed token is not sent again once its window has passed. The window begins with the first effect: a call that was refused, or never
/// had an effect, began none. Both moments are the witness's, so no other clock matters.
fn repeated_late(world: &World<'_>, id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let Some(window_ms) = world.run.map(|run| run.keyed_window_ms) else { return };
    let mut began: BTreeMap<&str, Moment> = BTreeMap::new();
    for effect in story.effects.iter().filter(|effect| effect.arrival.class == Class::Keyed) {
        began.entry(&effect.arrival.token).or_insert(effect.at);
    }
    for came in &story.came {
        let (number, token) = (came.arrival.attempt, came.arrival.token.as_str());
        let age_ms = began.get(token).map(|began| came.at.ms_since(*began));
        if let Some(age_ms) = age_ms.filter(|age_ms| *age_ms >= window_ms) {
            let why = format!(
                "attempt {number} of token {token} came {age_ms} ms after its first effect, its window over"
            );
            findings.broken(Invariant::I1, id, why, story.told());
        }
    }
}

/// Every effect was recorded before it began, under its own attempt.
fn intents(world: &World<'_>, id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    let attempts = story.attempts();
    for effect in story
        .effects
        .iter()
        .filter(|effect| world.owners.contains_key(effect.arrival.token.as_str()))
    {
        let number = u32::try_from(effect.arrival.attempt).unwrap_or_default();
        let token = effect.arrival.token.as_str();
        let attempt = attempts.get(&(token, number));
        let why = match attempt {
            None => format!("the log has no dispatch of attempt {number} of token {token}"),
            Some((entry, _)) if world.clocks_agree() && is_later(entry.at_ms, effect) => {
                format!(
                    "the dispatch of token {token} was recorded {} ms after the effect began",
                    entry.at_ms.saturating_sub(effect.started.wall_ms)
                )
            }
            Some(_) => continue,
        };
        findings.broken(Invariant::I2, id, why, story.told());
    }
}

fn is_later(at_ms: i64, effect: &Effect<'_>) -> bool {
    at_ms > effect.started.wall_ms.saturating_add(CLOCK_MS)
}

/// Effects that are not in the log.
fn strangers(world: &World<'_>, findings: &mut Findings) {
    for effect in &world.strangers {
        let token = &effect.arrival.token;
        let why = format!(
            "effect {} of tool {} is in no entry of the log",
            effect.number, effect.arrival.tool
        );
        let told = format!(
            "EFFECT {} of token {token} attempt {}, key {}, args {}",
            effect.number, effect.arrival.attempt, effect.arrival.key, effect.arrival.args
        );
        findings.broken(Invariant::I2, token, why, vec![told]);
    }
}
