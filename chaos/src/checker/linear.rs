//! Whether each key behaves like one thing that changes step by step, in the order in which people could know of it.
//!
//! Owns the search. A key is a small machine that the system moves on its own; every answer is a look at it, at some moment between
//! sending and answer. The search keeps every course the machine may have taken so far, and which open requests have seen what
//! they say. It is done key by key, since keys do not touch each other. Requests without an answer claim nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Findings, Invariant,
    story::{KeyId, Op, Story},
    world::World,
};
use crate::history::request::Answer;

/// More courses than this are not followed: then the key is unchecked, not fine.
const COURSES_MAX: usize = 20_000;

pub(super) fn check(world: &World<'_>, findings: &mut Findings) {
    let mut given_up = 0_usize;
    for (id, story) in &world.keys {
        match search(story, allows_rearm(world, story)) {
            Ok(()) => {}
            Err(Stuck::At(request)) => report(id, story, request, findings),
            Err(Stuck::TooMany) => given_up = given_up.saturating_add(1),
        }
    }
    if given_up > 0 {
        findings.unchecked(
            Invariant::Linear,
            &format!("{given_up} keys have too many possible courses"),
        );
    }
}

fn report(id: &KeyId, story: &Story<'_>, request: u64, findings: &mut Findings) {
    let said = story.ops.iter().find(|op| op.sent.request == request).and_then(Op::answer);
    let why = format!(
        "no order of steps explains the answer {said:?} to request {request}, given the others"
    );
    findings.broken(Invariant::Linear, id, why, story.told());
}

fn allows_rearm(world: &World<'_>, story: &Story<'_>) -> bool {
    let of_story =
        |record: &str| story.written.iter().any(|written| written.change.record_id() == record);
    story.rearms() > 0 || world.operators.iter().any(|act| of_story(&act.record_id))
}

/// The machine. Numbers stand for arguments, approvals and results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum State {
    Absent,
    Open(usize),
    Pending(usize, usize),
    Retriable(usize),
    Done(usize, usize),
    Failed(usize),
    Denied(usize),
    Unknown(usize),
    Gone(usize),
}

impl State {
    const fn args(self) -> Option<usize> {
        match self {
            Self::Absent => None,
            Self::Open(args)
            | Self::Pending(args, _)
            | Self::Retriable(args)
            | Self::Done(args, _)
            | Self::Failed(args)
            | Self::Denied(args)
            | Self::Unknown(args)
            | Self::Gone(args) => Some(args),
        }
    }
}

/// What an answer says about the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Look {
    Nothing,
    Done(usize),
    Failed,
    Pending(usize),
    UnderWay,
    Unknown,
    OtherArgs,
    Gone,
    Denied,
    DidNotHappen,
}

impl Look {
    /// Whether the machine can be seen like this by somebody who sent `args`.
    fn fits(self, state: State, args: usize) -> bool {
        let own = state.args() == Some(args);
        match self {
            Self::Nothing => true,
            Self::Done(result) => state == State::Done(args, result),
            Self::Failed => state == State::Failed(args),
            Self::Pending(approval) => state == State::Pending(args, approval),
            Self::UnderWay => own && matches!(state, State::Open(_) | State::Pending(..)),
            Self::Unknown => state == State::Unknown(args),
            Self::OtherArgs => state.args().is_some_and(|other| other != args),
            Self::Gone => state == State::Gone(args),
            Self::Denied => state == State::Denied(args),
            Self::DidNotHappen => own && matches!(state, State::Retriable(_) | State::Failed(_)),
        }
    }
}

/// What may be seen in a story, numbered.
#[derive(Debug, Default)]
struct Names<'a> {
    args: Vec<&'a str>,
    approvals: Vec<&'a str>,
    results: Vec<&'a str>,
}

fn number<'a>(names: &mut Vec<&'a str>, name: &'a str) -> usize {
    if let Some(known) = names.iter().position(|known| *known == name) {
        return known;
    }
    names.push(name);
    names.len().saturating_sub(1)
}

/// One request in the search.
#[derive(Debug, Clone, Copy)]
struct Seen {
    request: u64,
    args: usize,
    look: Look,
}

/// Where a search ended without a course.
#[derive(Debug, PartialEq, Eq)]
enum Stuck {
    At(u64),
    TooMany,
}

/// What happens in the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Begins(usize),
    Ends(usize),
}

fn look<'a>(op: &Op<'a>, names: &mut Names<'a>) -> Look {
    let Some((_, reply)) = op.reply() else {
        return Look::Nothing;
    };
    match reply.answer {
        Answer::Succeeded => reply
            .result
            .as_ref()
            .map_or(Look::Nothing, |result| Look::Done(number(&mut names.results, &result.digest))),
        Answer::Failed => Look::Failed,
        Answer::Pending => reply.approval_id.as_deref().map_or(Look::Nothing, |approval| {
            Look::Pending(number(&mut names.approvals, approval))
        }),
        Answer::InProgress => Look::UnderWay,
        Answer::Unknown => Look::Unknown,
        Answer::Conflict => Look::OtherArgs,
        Answer::Expired if reply.code.as_deref() == Some("RESULT_EXPIRED") => Look::Gone,
        Answer::Denied => Look::Denied,
        Answer::Refused if op.says_call_did_not_happen() => Look::DidNotHappen,
        Answer::Expired | Answer::Refused | Answer::InvalidResponse => Look::Nothing,
    }
}

/// One course: where the machine is, and which open requests have seen what they say.
type Courses = BTreeMap<State, Vec<BTreeSet<usize>>>;

struct Search {
    seen: Vec<Seen>,
    rearm: bool,
    approvals: usize,
    results: usize,
    /// Arguments that somebody has sent so far.
    sent: BTreeSet<usize>,
    open: BTreeSet<usize>,
}

fn search(story: &Story<'_>, rearm: bool) -> Result<(), Stuck> {
    let mut names = Names::default();
    let mut steps: Vec<(u64, Step)> = Vec::new();
    let mut seen = Vec::new();
    for op in story.ops.iter().filter(|op| op.may_have_arrived()) {
        let (args, look) = (number(&mut names.args, &op.sent.args), look(op, &mut names));
        steps.push((op.at.us, Step::Begins(seen.len())));
        if let (Some((at, _)), false) = (op.reply(), look == Look::Nothing) {
            steps.push((at.us, Step::Ends(seen.len())));
        }
        seen.push(Seen { request: op.sent.request, args, look });
    }
    // At one moment, what begins comes before what ends: they may have overlapped.
    steps.sort_unstable();
    let mut search = Search {
        seen,
        rearm,
        // And one that no answer names.
        approvals: names.approvals.len().saturating_add(1),
        results: names.results.len(),
        sent: BTreeSet::new(),
        open: BTreeSet::new(),
    };
    let mut courses = Courses::from([(State::Absent, vec![BTreeSet::new()])]);
    for (_, step) in steps {
        match step {
            Step::Begins(op) => search.begin(op, &mut courses),
            Step::Ends(op) => courses = search.end(op, courses)?,
        }
    }
    Ok(())
}

impl Search {
    fn fits(&self, op: usize, state: State) -> bool {
        self.seen.get(op).is_some_and(|seen| seen.look.fits(state, seen.args))
    }

    fn begin(&mut self, op: usize, courses: &mut Courses) {
        let Some(seen) = self.seen.get(op) else { return };
        self.sent.insert(seen.args);
        if seen.look == Look::Nothing {
            return;
        }
        self.open.insert(op);
        for (state, marks) in courses {
            if self.fits(op, *state) {
                marks.iter_mut().for_each(|mark| {
                    mark.insert(op);
                });
            }
        }
    }

    /// Follows every course until the request has seen what it says.
    fn end(&mut self, op: usize, mut courses: Courses) -> Result<Courses, Stuck> {
        let mut work: Vec<(State, BTreeSet<usize>)> = courses
            .iter()
            .flat_map(|(state, marks)| marks.iter().map(|mark| (*state, mark.clone())))
            .collect();
        let mut followed = work.len();
        while let Some((state, mark)) = work.pop() {
            for next in self.moves(state) {
                let mut mark = mark.clone();
                mark.extend(self.open.iter().filter(|open| self.fits(**open, next)));
                if keep(courses.entry(next).or_default(), mark.clone()) {
                    work.push((next, mark));
                    followed = followed.saturating_add(1);
                }
            }
            if followed > COURSES_MAX {
                return Err(Stuck::TooMany);
            }
        }
        self.open.remove(&op);
        for marks in courses.values_mut() {
            let seen: Vec<BTreeSet<usize>> = std::mem::take(marks);
            for mut mark in seen.into_iter().filter(|mark| mark.contains(&op)) {
                mark.remove(&op);
                keep(marks, mark);
            }
        }
        courses.retain(|_, marks| !marks.is_empty());
        if courses.is_empty() {
            let request = self.seen.get(op).map(|seen| seen.request);
            return Err(Stuck::At(request.unwrap_or_default()));
        }
        Ok(courses)
    }

    /// The steps that the machine may take by itself.
    fn moves(&self, state: State) -> Vec<State> {
        let results = |args| (0..self.results).map(move |result| State::Done(args, result));
        match state {
            State::Absent => self.sent.iter().copied().map(State::Open).collect(),
            State::Open(args) => (0..self.approvals)
                .map(|approval| State::Pending(args, approval))
                .chain(results(args))
                .chain([
                    State::Failed(args),
                    State::Retriable(args),
                    State::Unknown(args),
                    State::Absent,
                ])
                .collect(),
            State::Pending(args, _) => vec![State::Open(args), State::Denied(args), State::Absent],
            State::Retriable(args) => vec![State::Open(args), State::Gone(args)],
            State::Unknown(args) => {
                let again = self.rearm.then_some(State::Open(args));
                results(args).chain([State::Failed(args)]).chain(again).collect()
            }
            State::Done(args, _) | State::Failed(args) | State::Denied(args) => {
                vec![State::Gone(args)]
            }
            State::Gone(_) => Vec::new(),
        }
    }
}

/// Adds a course unless one that is at least as far is there; whether it was added.
fn keep(marks: &mut Vec<BTreeSet<usize>>, mark: BTreeSet<usize>) -> bool {
    if marks.iter().any(|known| known.is_superset(&mark)) {
        return false;
    }
    marks.retain(|known| !known.is_subset(&mark));
    marks.push(mark);
    true
}
