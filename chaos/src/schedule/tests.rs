//! Schedules: drawn from seeds, with exactly the faults that apply, written and read back.

use std::collections::BTreeSet;

use placet_chaos::history::fault::FaultKind;

use super::{Act, Frame, Schedule, Store, applies, draw, faults_of};

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
fn a_databases_clock_jumps_far_and_near_in_both_directions_and_only_where_there_is_one() {
    let drawn = |store: Store| {
        let steps = (0..4_000).flat_map(move |seed| draw(seed, &frame(store)).steps);
        steps.filter_map(|step| {
            if let Act::DatabaseClock { by_s, .. } = step.act { Some(by_s) } else { None }
        })
    };
    assert_eq!(drawn(Store::Embedded).count(), 0);
    for wanted in [1..11, -10..0, 3_600..14_400, -14_399..-3_599] {
        assert!(drawn(Store::Postgres).any(|by_s| wanted.contains(&by_s)), "{wanted:?}");
    }
}

#[test]
fn of_the_clocks_that_jump_on_a_shared_ledger_about_a_third_are_the_databases() {
    let (mut own, mut shared) = (0, 0);
    for step in (0..10_000).flat_map(|seed| draw(seed, &frame(Store::Postgres)).steps) {
        own += i32::from(matches!(step.act, Act::Clock { .. }));
        shared += i32::from(matches!(step.act, Act::DatabaseClock { .. }));
    }
    assert!(shared * 4 > own + shared && shared * 5 < (own + shared) * 2, "{own}, {shared}");
}

#[test]
fn only_chosen_faults_are_scheduled() {
    let mut frame = frame(Store::Embedded);
    frame.faults = [FaultKind::F4].into();
    for seed in 0..50 {
        assert!(faults_of(&draw(seed, &frame)).is_subset(&frame.faults));
    }
}
