//! I12 and its counterpart: «nothing happened» and «done» are both true.

use super::{
    Findings, Invariant,
    story::{KeyId, Story},
    world::World,
};
use crate::history::{Class, request::Answer};

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    for (id, story) in &world.keys {
        if !story.ended_by_operator() {
            said_not(id, story, findings);
            unexplained(id, story, findings);
        }
        said_done(world, id, story, findings);
    }
}

/// An answer about the call itself says that it has not happened.
fn said_not(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    for op in story.ops.iter().filter(|op| op.says_call_did_not_happen()) {
        let contradicts = |effect: &&_| {
            let effect: &super::story::Effect<'_> = effect;
            op.says_never() || effect.started <= op.at
        };
        if let Some(effect) = story.effects.iter().find(contradicts) {
            let why = format!(
                "request {} was told that nothing happened, and there is effect {}",
                op.sent.request, effect.number
            );
            findings.broken(Invariant::I12, id, why, story.told());
            return;
        }
    }
}

/// An effect although every request that may have caused it was told that nothing happened.
fn unexplained(id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    for effect in &story.effects {
        let mut causes = story
            .ops
            .iter()
            .filter(|op| op.is_call() && op.may_have_arrived() && op.at <= effect.started)
            .peekable();
        if causes.peek().is_none() {
            let why = format!("effect {} began before anybody asked for it", effect.number);
            findings.broken(Invariant::I12, id, why, story.told());
        } else if causes.all(|op| op.says_nothing_happened()) {
            let why = format!(
                "effect {} happened, and every request before it was told that nothing happened",
                effect.number
            );
            findings.broken(Invariant::I12, id, why, story.told());
        }
    }
}

/// An answer of success is about an effect that existed when the answer came.
fn said_done(world: &World<'_>, id: &KeyId, story: &Story<'_>, findings: &mut Findings) {
    for op in story.ops.iter().filter(|op| op.sent.class != Class::Read) {
        let Some((at, result)) = op.success() else {
            continue;
        };
        let there = |token: &str| {
            let effects = world.by_token.get(token);
            effects.is_some_and(|effects| {
                effects.iter().any(|effect| effect.at <= at || effect.started <= at)
            })
        };
        let real = match &result.token {
            Some(token) => there(token),
            // A result that was withheld, or that an operator wrote, names no token.
            None => {
                story.ended_by_operator() || story.effects.iter().any(|effect| effect.started <= at)
            }
        };
        if !real {
            let why = format!(
                "request {} was told that it is done, and the witness knows of no such effect",
                op.sent.request
            );
            findings.broken(Invariant::Real, id, why, story.told());
            return;
        }
    }
    for op in story.ops.iter().filter(|op| op.answer() == Some(Answer::InvalidResponse)) {
        let why = format!("request {} got something that is no answer", op.sent.request);
        findings.broken(Invariant::Real, id, why, story.told());
    }
}
