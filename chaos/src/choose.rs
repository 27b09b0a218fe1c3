//! Which of some drawn schedules is played next.
//!
//! Owns what a run still lacks on a store: faults that were not seen, a round in which no clock is moved, a stop in such a round.
//! Invariant: what only a round without moved clocks can show is asked for until one has shown it.

use std::collections::BTreeSet;

use placet_chaos::history::fault::FaultKind;

use crate::schedule::{Act, Schedule, faults_of};

/// What the next round on a store is to have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Clocks that nobody moves: order is judged by them.
    pub(crate) calm: bool,
    /// A node that is asked to stop while nobody moves clocks: what it does then is judged by them.
    pub(crate) stop: bool,
    /// As many as possible of these.
    pub(crate) faults: BTreeSet<FaultKind>,
}

impl Wanted {
    /// The best of some schedules, of equal ones the first.
    pub(crate) fn best(&self, drawn: impl Iterator<Item = Schedule>) -> Option<Schedule> {
        let mut best: Option<((bool, bool, usize), Schedule)> = None;
        for schedule in drawn {
            let worth = self.worth(&schedule);
            if best.as_ref().is_none_or(|(most, _)| worth > *most) {
                best = Some((worth, schedule));
            }
        }
        best.map(|(_, schedule)| schedule)
    }

    fn worth(&self, schedule: &Schedule) -> (bool, bool, usize) {
        let calm = is_calm(schedule);
        let stops = calm && schedule.steps.iter().any(|step| step.act == Act::Stop);
        let fresh = faults_of(schedule).intersection(&self.faults).count();
        (calm || !self.calm, stops || !self.stop, fresh)
    }
}

/// Whether nobody moves a clock.
fn is_calm(schedule: &Schedule) -> bool {
    schedule.steps.iter().all(|step| step.act.fault() != FaultKind::F10)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use placet_chaos::history::fault::FaultKind;

    use super::{Wanted, is_calm};
    use crate::{
        schedule::{Act, Frame, Schedule, Store, draw, faults_of},
        seeds::{self, Played},
    };

    const STORES: [Store; 2] = [Store::Embedded, Store::Postgres];

    fn drawn(store: Store, seeds: std::ops::Range<u64>) -> impl Iterator<Item = Schedule> {
        let faults = FaultKind::ALL.iter().copied().collect();
        let frame = Frame { store, nodes: 3, length_ms: 4_000, faults };
        seeds.map(move |seed| draw(seed, &frame))
    }

    fn stops(schedule: &Schedule) -> bool {
        schedule.steps.iter().any(|step| step.act == Act::Stop)
    }

    #[test]
    fn a_calm_round_with_a_stop_is_found_where_it_is_wanted() {
        let wanted = Wanted { calm: true, stop: true, ..Wanted::default() };
        for store in STORES {
            assert!(!drawn(store, 0..960).all(|one| is_calm(&one)), "{store:?}");
            let found = wanted.best(drawn(store, 0..960)).unwrap();
            assert!(is_calm(&found) && stops(&found), "{store:?}: {found:?}");
        }
    }

    #[test]
    fn clocks_that_nobody_moves_count_more_than_faults_that_were_not_seen() {
        let faults = || BTreeSet::from([FaultKind::F10]);
        for store in STORES {
            let moved = Wanted { faults: faults(), ..Wanted::default() };
            assert!(!is_calm(&moved.best(drawn(store, 0..960)).unwrap()), "{store:?}");
            let calm = Wanted { faults: faults(), calm: true, stop: false };
            assert!(is_calm(&calm.best(drawn(store, 0..960)).unwrap()), "{store:?}");
            let stop = Wanted { faults: faults(), calm: false, stop: true };
            let found = stop.best(drawn(store, 0..960)).unwrap();
            assert!(is_calm(&found) && stops(&found), "{store:?}: {found:?}");
        }
    }

    #[test]
    fn where_nothing_else_is_wanted_it_is_the_first_with_the_most_that_was_not_seen() {
        let faults = [FaultKind::F4, FaultKind::F15, FaultKind::F22].into();
        let wanted = Wanted { faults, ..Wanted::default() };
        let fresh = |one: &Schedule| faults_of(one).intersection(&wanted.faults).count();
        let most = drawn(Store::Embedded, 0..96).map(|one| fresh(&one)).max().unwrap();
        let first = drawn(Store::Embedded, 0..96).find(|one| fresh(one) == most);
        assert_eq!(wanted.best(drawn(Store::Embedded, 0..96)), first);
        assert_eq!(wanted.best(std::iter::empty()), None);
    }

    #[test]
    fn where_every_schedule_moves_a_clock_one_of_them_is_played() {
        let moving = || drawn(Store::Postgres, 0..960).filter(|one| !is_calm(one));
        let wanted = Wanted { calm: true, stop: true, ..Wanted::default() };
        assert_eq!(wanted.best(moving()), moving().next());
    }

    #[test]
    fn every_store_has_a_kept_schedule_that_moves_no_clock() {
        for store in STORES {
            let kept = seeds::kept().unwrap().into_iter().filter(|kept| kept.store == store);
            let calm = kept.filter(
                |kept| matches!(&kept.what, Played::Schedule(schedule) if is_calm(schedule)),
            );
            assert!(calm.count() > 0, "{store:?}");
        }
    }
}
