//! Effects that happened after the witness had answered that it does not know them (F16).
//!
//! Owns which effects qualify. Not here: making effects late. Invariant: the call with the effect had arrived before the probe; the effect
//! of a retry that arrived afterwards is not a late one, though it has the same token.

use std::collections::HashMap;

use super::log::{Line, Seen};
use placet_testkit::moment::Moment;

/// The tools of these effects, one for each.
pub(crate) fn after_not_found(lines: &[Line]) -> Vec<String> {
    let mut denied: HashMap<&str, Moment> = HashMap::new();
    let mut late = Vec::new();
    for line in lines {
        if let Seen::Asked { token, state } = &line.what
            && state == "not_found"
        {
            denied.insert(token, line.at);
        }
        if let Seen::Effect { arrival, started, .. } = &line.what
            && denied.get(arrival.token.as_str()).is_some_and(|at| started < at)
        {
            late.push(arrival.tool.clone());
        }
    }
    late
}

#[cfg(test)]
mod tests {
    use super::after_not_found;
    use crate::{
        history::Class,
        witness::log::{Arrival, Line, Seen},
    };
    use placet_testkit::moment::Moment;

    fn at(us: u64) -> Moment {
        Moment { us, wall_ms: 0 }
    }

    fn asked(us: u64, token: &str, state: &str) -> Line {
        Line { at: at(us), what: Seen::Asked { token: token.to_owned(), state: state.to_owned() } }
    }

    /// An effect at `us`, of a call that had arrived at `started`.
    fn effect(us: u64, token: &str, started: u64) -> Line {
        let arrival = Arrival {
            tool: "post".to_owned(),
            class: Class::Queryable,
            token: token.to_owned(),
            attempt: 1,
            key: "key".to_owned(),
            arrival: 1,
            args: "A".to_owned(),
        };
        Line { at: at(us), what: Seen::Effect { arrival, started: at(started), effect: 1 } }
    }

    #[test]
    fn an_effect_is_late_that_was_under_way_when_somebody_was_told_that_it_is_not_known() {
        let lines = [asked(20, "a", "not_found"), effect(30, "a", 10)];
        assert_eq!(after_not_found(&lines), ["post"]);
        // However often somebody probes, it counts once.
        let again = [asked(15, "a", "not_found"), lines[0].clone(), lines[1].clone()];
        assert_eq!(after_not_found(&again), ["post"]);
        // Probed before the call arrived, and again while it was in progress.
        let both = [asked(5, "a", "not_found"), lines[0].clone(), lines[1].clone()];
        assert_eq!(after_not_found(&both), ["post"]);
    }

    #[test]
    fn the_effect_of_a_retry_that_came_in_after_the_asking_is_not_late() {
        let retried = [asked(20, "a", "not_found"), effect(30, "a", 25)];
        assert_eq!(after_not_found(&retried), [""; 0]);
        // The retry is not late, and the first call is, whichever takes effect first.
        let both = [asked(20, "a", "not_found"), effect(30, "a", 25), effect(40, "a", 10)];
        assert_eq!(after_not_found(&both), ["post"]);
    }

    #[test]
    fn what_was_known_or_asked_about_another_token_or_afterwards_counts_for_nothing() {
        for lines in [
            [asked(20, "a", "committed"), effect(30, "a", 10)],
            [asked(20, "b", "not_found"), effect(30, "a", 10)],
            [effect(30, "a", 10), asked(40, "a", "not_found")],
        ] {
            assert_eq!(after_not_found(&lines), [""; 0], "{lines:?}");
        }
    }
}
