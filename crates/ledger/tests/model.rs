//! Every interleaving of three duplicates of one call with two crashes, for each class and with and without an approval, over the
//! real record machine.
//!
//! The model is a gateway in miniature: a store (compare and swap on the revision, claims in memory), callers, a recovery, approvers,
//! operators, a clock and a target whose effects may come late. It is small, so that all states can be visited; every move of the record is
//! also made by the real machine, and must be the same there. Checked: I1, I3, I4, I7, I9, I10, I12, and that no caller waits for ever. A
//! gateway with one rule removed ([`Doctored`]) must be caught by the same search.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "the whole program is a test, its helpers too"
)]

mod model_of;

use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};

use model_of::real::Machine;
use model_of::{Class, Doctored, Setting, World};

const STATES_MAX: usize = 4_000_000;

/// The path to each state: the state it was reached from, and by which step.
struct Search {
    states: Vec<World>,
    from: Vec<(usize, &'static str)>,
    known: HashMap<World, usize>,
}

/// How much was visited, or the path to a violation.
struct Visited {
    states: usize,
    moves: usize,
    steps: usize,
}

fn search(setting: &Setting) -> Result<Visited, String> {
    let mut machine = Machine::default();
    let start = World::start();
    let mut search = Search {
        states: vec![start.clone()],
        from: vec![(0, "start")],
        known: HashMap::from([(start, 0)]),
    };
    let mut next = VecDeque::from([0]);
    let mut steps = 0;
    while let Some(at) = next.pop_front() {
        let world = search.states[at].clone();
        let successors = world.successors(setting);
        if successors.is_empty() && !world.is_over() {
            return Err(search.story(at, "somebody waits for ever"));
        }
        for (label, successor) in successors {
            steps += 1;
            let verdict = successor.check(&world, setting, &mut machine);
            let successor = successor.canonical();
            let place = search.states.len();
            if let Entry::Vacant(entry) = search.known.entry(successor.clone()) {
                entry.insert(place);
                search.states.push(successor);
                search.from.push((at, label));
                next.push_back(place);
            }
            if let Err(why) = verdict {
                return Err(search.story(at, &format!("{label}: {why}")));
            }
        }
        if search.states.len() > STATES_MAX {
            return Err("the model has grown out of bounds".to_owned());
        }
    }
    Ok(Visited { states: search.states.len(), moves: machine.moves(), steps })
}

impl Search {
    fn story(&self, at: usize, end: &str) -> String {
        let (mut steps, mut place) = (vec![end.to_owned()], at);
        while place != 0 {
            let (before, label) = self.from[place];
            steps.push(label.to_owned());
            place = before;
        }
        steps.reverse();
        steps.join(" -> ")
    }
}

#[test]
fn no_interleaving_acts_twice_loses_a_result_or_guesses() {
    for class in Class::ALL {
        for with_approval in [false, true] {
            let setting = Setting { class, with_approval, doctored: None };
            let visited = search(&setting).unwrap_or_else(|story| panic!("{setting:?}: {story}"));
            println!(
                "{class:?}, approval {with_approval}: {} states, {} steps, {} different moves of the record",
                visited.states, visited.steps, visited.moves
            );
            assert!(visited.states > 1_000, "{setting:?}: the model hardly moves");
        }
    }
}

/// Claims spare duplicates a lost race; what prevents a second effect is the revision that every commit compares.
#[test]
fn without_claims_nothing_is_done_twice_either() {
    for class in Class::ALL {
        let setting =
            Setting { class, with_approval: false, doctored: Some(Doctored::IgnoresClaims) };
        search(&setting).unwrap_or_else(|story| panic!("{setting:?}: {story}"));
    }
}

/// Each with the setting in which it must be caught, and the violation.
#[test]
fn a_gateway_with_one_rule_taken_out_is_caught() {
    use Class::{Keyed, Opaque, Queryable};
    for (doctored, class, with_approval, invariant) in [
        (Doctored::DispatchNotDurable, Opaque, false, "I2"),
        (Doctored::RepeatsWhatCannotBeRepeated, Opaque, false, "I7"),
        (Doctored::GuessesAfterACrash, Opaque, false, "I12"),
        (Doctored::RepliesBeforeItIsDurable, Opaque, false, "I3"),
        (Doctored::IgnoresRevisions, Opaque, false, "I1"),
        (Doctored::IgnoresTheWindow, Keyed, false, "I1"),
        (Doctored::ForgetsEarlierAttempts, Keyed, false, "I12"),
        (Doctored::ProbesTooEarly, Queryable, false, "I12"),
        (Doctored::EndsWithoutEvidence, Opaque, false, "I9"),
        (Doctored::RunsWhatWasNotApproved, Opaque, true, "I10"),
        (Doctored::AnswersAgain, Keyed, false, "I4"),
        (Doctored::StrandsTheDead, Opaque, false, "waits for ever"),
    ] {
        let setting = Setting { class, with_approval, doctored: Some(doctored) };
        let Err(story) = search(&setting) else { panic!("{doctored:?} is not seen") };
        println!("{doctored:?}: {story}");
        assert!(story.contains(invariant), "{doctored:?} is seen as something else: {story}");
    }
}
