//! A gateway in miniature: its state, its possible steps, and its invariants.
//!
//! Owns the state and its invariants. The steps are in `steps`, the check against the real machine in `real`.

pub(crate) mod real;
mod steps;

use real::Machine;

/// The most attempts under all arms; more would only repeat earlier behaviour.
pub(crate) const ATTEMPTS_MAX: u8 = 3;
const CRASHES: u8 = 2;

/// What is known about repeating the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    ReadOnly,
    Keyed,
    Queryable,
    Opaque,
}

impl Class {
    pub(crate) const ALL: [Self; 4] = [Self::ReadOnly, Self::Keyed, Self::Queryable, Self::Opaque];
}

/// The rule that is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doctored {
    /// The adapter is called before the intent is on disk.
    DispatchNotDurable,
    /// Recovery sends an opaque call again.
    RepeatsWhatCannotBeRepeated,
    /// Recovery takes an unknown outcome for "nothing happened".
    GuessesAfterACrash,
    /// The caller is told before the outcome is on disk.
    RepliesBeforeItIsDurable,
    /// The store accepts a change from any revision.
    IgnoresRevisions,
    /// Every duplicate gets the key.
    IgnoresClaims,
    /// A token is used again after the target has forgotten it.
    IgnoresTheWindow,
    /// "This attempt did nothing" is taken for "nothing happened".
    ForgetsEarlierAttempts,
    /// "Not found" counts before the settle delay has passed.
    ProbesTooEarly,
    /// An unknown outcome ends without evidence or operators.
    EndsWithoutEvidence,
    /// The approval is checked before the commit, not in it.
    RunsWhatWasNotApproved,
    /// A duplicate of a finished call gets a result of its own.
    AnswersAgain,
    /// Recovery leaves open records alone.
    StrandsTheDead,
}

/// What is searched.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) class: Class,
    pub(crate) with_approval: bool,
    pub(crate) doctored: Option<Doctored>,
}

impl Setting {
    pub(crate) fn lacks(&self, rule: Doctored) -> bool {
        self.doctored == Some(rule)
    }
}

/// The state of the record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum At {
    Pending,
    Approved,
    Dispatched,
    Succeeded,
    FailedFinal,
    FailedRetriable,
    Unknown,
    Rearmed,
    Denied,
}

/// An attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Att {
    pub(crate) number: u8,
    pub(crate) arm: u8,
    pub(crate) epoch: u8,
    pub(crate) duty: u8,
    pub(crate) after_unknown: bool,
}

/// What resolved an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum By {
    Probe(u8),
    Operator,
}

/// The record, without its constant fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Rec {
    pub(crate) at: At,
    pub(crate) rev: u8,
    pub(crate) arm: u8,
    pub(crate) attempts: u8,
    /// The attempt under way, or whose outcome is unknown.
    pub(crate) att: Option<Att>,
    /// The unknown attempt of an earlier arm.
    pub(crate) earlier: Option<Att>,
    /// The attempt whose result is recorded.
    pub(crate) result: u8,
    pub(crate) by: Option<By>,
    /// Whether one operator has asked for another arm.
    pub(crate) asked: bool,
}

/// What an adapter reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Outcome {
    Succeeded,
    Retriable,
    Final,
    Unknown,
}

/// What a caller is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reply {
    /// The result of this attempt.
    Result(u8),
    /// Nothing happened under this arm so far.
    NotExecuted,
    Unknown,
}

/// The progress of a call's caller. A crash resets it: the caller sends the call again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Pc {
    Start,
    /// Holds the claim.
    Claimed,
    /// Is about to dispatch from what it has read.
    Ready(Rec),
    /// The intent is recorded.
    Sent(Rec),
    /// The adapter has answered, or not.
    Heard(Rec, Outcome),
    /// Is about to answer its caller.
    Tell(Reply),
    Done,
}

/// The approval of the current arm.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Approval {
    None,
    Pending,
    Approved,
    Ended,
    Consumed,
}

/// The state of the whole model.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    /// The record in the process, and on disk.
    pub(crate) rec: Option<Rec>,
    pub(crate) durable: Option<Rec>,
    pub(crate) is_claimed: bool,
    pub(crate) approval: Approval,
    pub(crate) epoch: u8,
    pub(crate) crashes_left: u8,
    /// Whether the window in which the target knows a token has closed.
    pub(crate) is_window_over: bool,
    pub(crate) calls: [Pc; 3],
    /// Recovery, and the carrier of a re-armed call.
    pub(crate) keeper: Pc,
    /// How often the effect happened under each arm.
    pub(crate) effects: [u8; 2],
    /// Whether a request of each arm is still on its way.
    pub(crate) on_its_way: [bool; 2],
    /// The result that some caller was told.
    pub(crate) told: Option<u8>,
    /// What is wrong with the step that led here.
    pub(crate) wrong: Option<&'static str>,
}

impl World {
    pub(crate) fn start() -> Self {
        Self {
            rec: None,
            durable: None,
            is_claimed: false,
            approval: Approval::None,
            epoch: 1,
            crashes_left: CRASHES,
            is_window_over: false,
            calls: [Pc::Start; 3],
            keeper: Pc::Start,
            effects: [0; 2],
            on_its_way: [false; 2],
            told: None,
            wrong: None,
        }
    }

    /// Duplicates are interchangeable, so their order does not matter.
    pub(crate) fn canonical(mut self) -> Self {
        self.calls.sort_unstable();
        self
    }

    /// Every caller has an answer and nothing is in flight.
    pub(crate) fn is_over(&self) -> bool {
        let open = matches!(
            self.rec,
            Some(Rec { at: At::Dispatched | At::Pending | At::Approved | At::Rearmed, .. })
        );
        self.calls.iter().all(|call| *call == Pc::Done) && !open
    }

    /// Checks the invariants for the step from `before` to here.
    pub(crate) fn check(
        &self,
        before: &Self,
        setting: &Setting,
        machine: &mut Machine,
    ) -> Result<(), String> {
        if let Some(wrong) = self.wrong {
            return Err(wrong.to_owned());
        }
        if setting.class != Class::ReadOnly && self.effects.iter().any(|count| *count > 1) {
            return Err(format!("I1: {:?} effects", self.effects));
        }
        if let Some(told) = self.told
            && !matches!(self.durable, Some(Rec { at: At::Succeeded, result, .. }) if result == told)
        {
            return Err(format!(
                "I3: the result of attempt {told} was told, and the record is {:?}",
                self.durable
            ));
        }
        if self.rec != before.rec && self.crashes_left == before.crashes_left {
            let after = self.rec.ok_or("I7: the record is gone")?;
            check_evidence(before.rec, after)?;
            if !is_known_move(before.rec.map(|rec| rec.at), after.at) {
                return Err(format!("I7: {:?} became {:?}", before.rec, after.at));
            }
            if !machine.allows(before.rec, after, setting.class) {
                return Err(format!("I7: the machine refuses {:?} to {after:?}", before.rec));
            }
        }
        Ok(())
    }
}

/// I9: an unknown outcome ends by evidence, or by two operators.
fn check_evidence(before: Option<Rec>, after: Rec) -> Result<(), String> {
    let was_unknown = before.is_some_and(|rec| rec.at == At::Unknown);
    match after.at {
        At::Succeeded | At::FailedFinal if was_unknown && after.by.is_none() => {
            Err("I9: an unknown outcome ended without evidence".to_owned())
        }
        At::Rearmed if !before.is_some_and(|rec| rec.asked) => {
            Err("I9: re-armed by one operator".to_owned())
        }
        _ => Ok(()),
    }
}

/// I7, from the specification rather than the code: which state may follow which.
fn is_known_move(before: Option<At>, after: At) -> bool {
    let followers: &[At] = match before {
        None => &[At::Pending, At::Dispatched],
        Some(At::Pending) => &[At::Approved, At::Denied, At::Unknown],
        Some(At::Approved) => &[At::Dispatched, At::Denied, At::Unknown],
        Some(At::Dispatched) => {
            &[At::Dispatched, At::Succeeded, At::FailedFinal, At::FailedRetriable, At::Unknown]
        }
        Some(At::FailedRetriable) => &[At::Dispatched, At::Pending],
        Some(At::Unknown) => &[At::Succeeded, At::FailedFinal, At::Unknown, At::Rearmed],
        Some(At::Rearmed) => &[At::Pending, At::Dispatched],
        Some(At::Succeeded | At::FailedFinal | At::Denied) => &[],
    };
    followers.contains(&after)
}
