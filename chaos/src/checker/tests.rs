//! The checker on handmade histories: a good one is clean, and every doctored one is caught for the right reason.

mod answers;
mod effects;
mod ends;
mod faults;
mod fences;
mod good;
mod grants;
mod records;
mod script;

use std::collections::BTreeSet;

use good::good;
use script::Script;

use super::{Invariant, Verdict, Violation, check};

impl Verdict {
    /// Whether every promise was checked and kept.
    fn is_clean(&self) -> bool {
        self.violations.is_empty() && self.unchecked.is_empty()
    }

    /// The broken promises of one kind.
    fn of(&self, invariant: Invariant) -> impl Iterator<Item = &Violation> {
        self.violations.iter().filter(move |violation| violation.invariant == invariant)
    }
}

fn judged(script: &Script) -> Verdict {
    check(&script.events, &script.lines)
}

/// Doctors the good history; the checker must name this promise, and may name others.
fn caught(invariant: Invariant, doctor: impl FnOnce(&mut Script)) -> Vec<String> {
    let mut script = good();
    doctor(&mut script);
    let verdict = judged(&script);
    let why: Vec<String> = verdict.of(invariant).map(|one| one.why.clone()).collect();
    assert!(!why.is_empty(), "{invariant} was not caught: {:#?}", verdict.violations);
    assert!(verdict.violations.iter().all(|one| one.events.len() <= super::EVENTS_MAX + 1));
    why
}

/// Like [`caught`], and no other promise may be named: the doctoring breaks only one.
fn only(invariant: Invariant, doctor: impl FnOnce(&mut Script)) {
    let mut script = good();
    doctor(&mut script);
    let verdict = judged(&script);
    let named: BTreeSet<Invariant> = verdict.violations.iter().map(|one| one.invariant).collect();
    assert_eq!(named, BTreeSet::from([invariant]), "{:#?}", verdict.violations);
}

/// Changes the good history into another good one.
fn fine(change: impl FnOnce(&mut Script)) {
    let mut script = good();
    change(&mut script);
    let verdict = judged(&script);
    assert!(verdict.is_clean(), "{verdict:#?}");
}

#[test]
fn a_good_history_is_clean() {
    fine(|_| {});
}

#[test]
fn an_empty_history_proves_nothing() {
    let verdict = check(&[], &[]);
    assert!(verdict.violations.is_empty() && !verdict.is_clean());
    let missing: BTreeSet<Invariant> = verdict.unchecked.iter().map(|one| one.invariant).collect();
    for invariant in [
        Invariant::I2,
        Invariant::I3,
        Invariant::I8,
        Invariant::I13,
        Invariant::I14,
        Invariant::I15,
        Invariant::I16,
    ] {
        assert!(missing.contains(&invariant), "{invariant}");
    }
}

#[test]
fn what_was_not_looked_at_is_unchecked_and_not_fine() {
    type Keep = fn(&crate::history::probe::Probe) -> bool;
    use crate::history::probe::Probe as P;
    let without: [(Invariant, Keep); 6] = [
        (Invariant::I2, |probe| !matches!(probe, P::Entry(_))),
        (Invariant::I11, |probe| !matches!(probe, P::Records { .. })),
        (Invariant::I11, |probe| !matches!(probe, P::Budget { .. })),
        (Invariant::I14, |probe| !matches!(probe, P::Verified { .. })),
        (Invariant::I15, |probe| !matches!(probe, P::Secrets { .. })),
        (Invariant::I16, |probe| !matches!(probe, P::Gauge { .. })),
    ];
    for (invariant, keep) in without {
        let mut script = good();
        script.keep_probes(keep);
        let verdict = judged(&script);
        assert!(verdict.unchecked.iter().any(|one| one.invariant == invariant), "{invariant}");
        assert!(!verdict.is_clean());
    }
}

#[test]
fn a_violation_tells_what_happened_in_order() {
    let mut script = good();
    script.double("plc_push");
    let verdict = judged(&script);
    let violation = verdict.of(Invariant::I1).next().unwrap();
    let place = |what: &str| violation.events.iter().position(|event| event.contains(what));
    assert!(
        place("sent") < place("dispatched") && place("dispatched") < place("EFFECT"),
        "{violation}"
    );
    assert!(violation.to_string().contains("I1 broken for plc_push"), "{violation}");
}
