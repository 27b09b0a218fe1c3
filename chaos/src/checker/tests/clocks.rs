//! Two nodes on a database whose clock was moved: what their logs' times no longer show, and what is caught all the same.

use std::collections::BTreeSet;

use super::{good, judged, script::Script};
use crate::{
    checker::Invariant,
    history::{
        Event, What,
        journal::{JournalEntry, RecordChange},
        probe::Probe,
    },
};

const HOUR_MS: i64 = 3_600_000;

/// Puts some of the entries into the log of another node, whose clock differs by this much.
fn on_two_nodes(script: &mut Script, by_ms: i64, of_other: impl Fn(&JournalEntry) -> bool) {
    let mut seqs = [0_u64, 0];
    let mut heads = [String::new(), String::new()];
    script.each_entry(|entry| {
        let place = usize::from(of_other(entry));
        seqs[place] += 1;
        entry.seq = seqs[place];
        entry.prev = std::mem::replace(&mut heads[place], entry.hash.clone());
        if place == 1 {
            entry.log = "other".to_owned();
            entry.at_ms += by_ms;
        }
    });
    assert!(seqs[1] > 0, "the other node writes nothing");
    let head = heads[1].clone();
    script.each_probe(|probe| match probe {
        Probe::LogEnd { entries, head, .. } => {
            (*entries, *head) = (seqs[0], heads[0].clone());
        }
        Probe::Verified { entries, head, .. } => (*entries, *head) = (None, Some(heads[0].clone())),
        _ => {}
    });
    script.probe(Probe::LogEnd { log: "other".to_owned(), entries: seqs[1], head });
}

fn puts(entry: &JournalEntry, key: &str, state: &str) -> bool {
    let is = |one: &RecordChange| matches!(one, RecordChange::Put(image) if image.key == key && image.state == state);
    entry.changes.iter().any(is)
}

/// The clock of the database was moved and put back.
fn clock_moved(script: &mut Script) {
    let at = script.events[3].at;
    for (place, by_ms) in [(4, HOUR_MS), (5, 0)] {
        script.events.insert(place, Event { at, what: What::DatabaseClock { by_ms } });
    }
}

/// The promises found broken without a clock change in the history, and with one.
fn broken(doctor: impl Fn(&mut Script)) -> [BTreeSet<Invariant>; 2] {
    [false, true].map(|moved| {
        let mut script = good::good();
        doctor(&mut script);
        if moved {
            clock_moved(&mut script);
        }
        judged(&script).violations.iter().map(|one| one.invariant).collect()
    })
}

#[test]
fn the_order_of_two_logs_is_that_of_revisions_once_the_clock_was_moved() {
    for by_ms in [HOUR_MS, -HOUR_MS] {
        let [unmoved, moved] = broken(|script| {
            // One node has sent the calls, the other one settles them.
            on_two_nodes(script, by_ms, |entry| {
                puts(entry, "push", "indeterminate") || puts(entry, "put", "succeeded")
            });
        });
        assert!(unmoved.contains(&Invariant::I7), "{unmoved:?}");
        assert!(moved.is_empty(), "{moved:?}");
    }
}

#[test]
fn an_agreement_that_another_node_has_written_is_one_however_its_clock_stood() {
    let agreed = |entry: &JournalEntry| puts(entry, "erase", "approved");
    let [unmoved, moved] = broken(|script| on_two_nodes(script, HOUR_MS, agreed));
    assert!(unmoved.contains(&Invariant::I7), "{unmoved:?}");
    assert!(moved.is_empty(), "{moved:?}");
    // A missing approval is caught all the same.
    let [_, moved] = broken(|script| {
        on_two_nodes(script, HOUR_MS, agreed);
        script.each_entry(|entry| entry.approvals.iter_mut().for_each(|one| one.agreed.clear()));
    });
    assert!(moved.contains(&Invariant::I10), "{moved:?}");
}

#[test]
fn i8_what_the_database_has_dated_says_nothing_of_what_nodes_have() {
    let mut script = good::good();
    let mut last = (0, 0);
    script.each_entry(|entry| last = (entry.epoch, entry.at_ms));
    script.probe(Probe::Fenced { epoch: last.0, at_ms: last.1 - HOUR_MS, by: None });
    let verdict = judged(&script);
    assert!(verdict.of(Invariant::I8).count() > 0);
    clock_moved(&mut script);
    let verdict = judged(&script);
    assert!(verdict.is_clean(), "{verdict:#?}");
}

#[test]
fn i8_who_was_never_over_had_taken_over_whatever_the_clock() {
    let taken = |fenced: bool| {
        broken(|script| {
            let mut at_ms = 0;
            script.each_entry(|entry| {
                if puts(entry, "push", "indeterminate") {
                    at_ms = entry.at_ms;
                }
            });
            // The first arm was epoch 5's; epoch 2 takes it from there.
            script.each_put("push", "dispatched", |image| {
                image.attempt.as_mut().unwrap().owner = 5;
            });
            script.each_put("push", "indeterminate", |image| {
                image.state = "dispatched".to_owned();
                image.attempt.as_mut().unwrap().owner = 2;
            });
            if fenced {
                script.probe(Probe::Fenced { epoch: 5, at_ms: at_ms + HOUR_MS, by: None });
            }
        })
        .map(|broken| broken.contains(&Invariant::I8))
    };
    assert_eq!(taken(true), [true, false]);
    assert_eq!(taken(false), [true, true]);
}

#[test]
fn i10_a_policy_that_no_node_ever_had_is_caught_whatever_the_clock() {
    let dispatched_by = |bundle: &'static str| {
        broken(move |script| {
            script.audit("bundle_activated", "", Some("other bundle"));
            let entry = script.entries.pop().unwrap();
            script.probe(Probe::Entry(Box::new(JournalEntry {
                log: "other".to_owned(),
                seq: 1,
                at_ms: entry.at_ms - HOUR_MS,
                ..entry
            })));
            script.each_put("push", "dispatched", |image| {
                image.attempt.as_mut().unwrap().bundle = bundle.to_owned();
            });
        })
        .map(|broken| broken.contains(&Invariant::I10))
    };
    assert_eq!(dispatched_by("other bundle"), [true, false]);
    assert_eq!(dispatched_by("no bundle"), [true, true]);
}
