//! The checker: what was answered and what happened, against the promises I1 to I16.
//!
//! Owns the verdict. Its input is the history, the witness's log and the final state, nothing else; it does not know how faults
//! are injected. Invariant: a promise whose input is missing is unchecked, which counts as a failure. Comparisons of two clocks are left
//! out in a round that moves one; the kept schedules of each store include a round that does not.

use std::fmt;

use crate::{history::Event, listed::listed, witness::log::Line};

mod approvals;
mod audit;
mod causes;
mod counts;
mod effects;
mod epochs;
mod fences;
mod grants;
mod moves;
mod order;
mod phantom;
mod replies;
pub(crate) mod secrets;
mod stops;
mod story;
mod world;

use causes::Causes;
pub(crate) use story::{End, Op, Story};
pub(crate) use world::World;

listed! {
    /// What is promised.
    Invariant {
        I1 = "I1", "single dispatch: at most one effect for a key and arm";
        I2 = "I2", "write-ahead intent: every effect was recorded before it began";
        I3 = "I3", "no lost result: what was answered as done stays done";
        I4 = "I4", "stable replay: all answers of success are the same";
        I5 = "I5", "fingerprint: no result for other arguments or another principal";
        I6 = "I6", "durable visibility: no answer depends on what is not recorded";
        I7 = "I7", "legal moves: every record goes a way that there is";
        I8 = "I8", "fencing: nobody writes after being shut out, or is shut out for nothing";
        I9 = "I9", "no guess: an unknown outcome becomes known by evidence or an operator";
        I10 = "I10", "approval binding: what ran is what was agreed to, once";
        I11 = "I11", "conservation: what was accepted is accounted for";
        I12 = "I12", "no phantom failure: «nothing happened» is true";
        I13 = "I13", "liveness: after the faults everything settles, nobody waits for ever";
        I14 = "I14", "audit agreement: log, index and export say the same";
        I15 = "I15", "credential hygiene: no secret anywhere, every loan ended";
        I16 = "I16", "bounded memory: queues stay under their caps";
        Real = "REAL", "no phantom success: «done» is true";
    }
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    /// The key, record, token, tenant or node it is about.
    pub(crate) subject: String,
    pub(crate) why: String,
    /// What happened, in order.
    pub(crate) events: Vec<String>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} broken for {}: {}", self.invariant, self.subject, self.why)?;
        self.events.iter().try_for_each(|event| writeln!(f, "    {event}"))
    }
}

/// What could not be checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unchecked {
    pub(crate) invariant: Invariant,
    pub(crate) missing: String,
}

/// The outcome.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Broken promises, by invariant.
    pub(crate) violations: Vec<Violation>,
    pub(crate) unchecked: Vec<Unchecked>,
}

#[derive(Debug, Default)]
struct Findings(Verdict);

impl Findings {
    fn broken(
        &mut self,
        invariant: Invariant,
        subject: impl fmt::Display,
        why: impl Into<String>,
        events: Vec<String>,
    ) {
        let (subject, why, events) = (subject.to_string(), why.into(), shortened(events));
        self.0.violations.push(Violation { invariant, subject, why, events });
    }

    fn unchecked(&mut self, invariant: Invariant, missing: &str) {
        self.0.unchecked.push(Unchecked { invariant, missing: missing.to_owned() });
    }
}

/// The most events listed for one violation.
const EVENTS_MAX: usize = 60;

/// The beginning and the end of a long tale.
fn shortened(mut events: Vec<String>) -> Vec<String> {
    let surplus = events.len().saturating_sub(EVENTS_MAX);
    if surplus > 0 {
        let from = EVENTS_MAX / 3;
        events.drain(from..from.saturating_add(surplus));
        events.insert(from, format!("… {surplus} events left out …"));
    }
    events
}

pub(crate) fn check(events: &[Event], witness: &[Line]) -> Verdict {
    let world = World::of(events, witness);
    let causes = Causes::of(&world);
    let mut findings = Findings::default();
    world.check_inputs(&mut findings);
    effects::check(&world, &mut findings);
    phantom::check(&world, &mut findings);
    replies::check(&world, &mut findings);
    moves::check(&world, &mut findings);
    epochs::check(&world, &mut findings);
    fences::check(&world, &causes, &mut findings);
    stops::check(&world, &mut findings);
    approvals::check(&world, &mut findings);
    grants::check(&world, &mut findings);
    counts::check(&world, &causes, &mut findings);
    audit::check(&world, &mut findings);
    let mut verdict = findings.0;
    verdict.violations.sort_by(|a, b| (a.invariant, &a.subject).cmp(&(b.invariant, &b.subject)));
    verdict
}

#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::as_conversions,
    clippy::wildcard_enum_match_arm,
    reason = "histories made by hand are small, and doctored in one place"
)]
mod tests;
