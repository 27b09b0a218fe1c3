//! Schedules: drawn from seeds, with exactly the faults that apply, written and read back.

use std::collections::BTreeSet;

use super::{Frame, Schedule, Store, applies, draw, faults_of};
use crate::history::fault::FaultKind;

fn frame(store: Store) -> Frame {
    let faults = FaultKind::ALL.iter().copied().collect();
    Frame { store, nodes: 3, length_ms: 4_000, faults }
}

#[test]
fn a_seed_makes_one_schedule_and_another_seed_another() {
    let frame = frame(Store::Postgres);
    assert_eq!(draw(9, &frame), draw(9, &frame));
    assert_ne!(draw(9, &frame), draw(10, &frame));
}

#[test]
fn a_schedule_can_be_written_down_and_read_again() {
    for seed in 0..200 {
        let store = if seed % 2 == 0 { Store::Embedded } else { Store::Postgres };
        let schedule = draw(seed, &frame(store));
        let text = serde_json::to_string(&schedule).unwrap();
        assert_eq!(serde_json::from_str::<Schedule>(&text).unwrap(), schedule, "{text}");
    }
}

#[test]
fn the_seeds_of_a_store_reach_every_fault_that_applies_to_it_and_no_other() {
    for store in [Store::Embedded, Store::Postgres] {
        let reached: BTreeSet<FaultKind> =
            (0..500).flat_map(|seed| faults_of(&draw(seed, &frame(store)))).collect();
        let wanted: BTreeSet<FaultKind> =
            FaultKind::ALL.iter().copied().filter(|fault| applies(*fault, store)).collect();
        assert_eq!(reached, wanted, "{store:?}");
    }
}

#[test]
fn only_chosen_faults_are_scheduled() {
    let mut frame = frame(Store::Embedded);
    frame.faults = [FaultKind::F4].into();
    for seed in 0..50 {
        assert!(faults_of(&draw(seed, &frame)).is_subset(&frame.faults));
    }
}
