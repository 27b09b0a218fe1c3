//! The lifecycle of a call after its first attempt, as one table: state and event say what is done next.
//!
//! Owns the rules of retry, deferral, duplicate, recovery, re-arm and late evidence. Each event names what it can lead to; the stages and
//! the execution tasks perform that. The resulting state of a record is what the ledger's verb makes of it (`placet_ledger::record`), where
//! it is also decided how approvals expire or are withdrawn. Invariants (I1, I12): what was sent goes out again only as a read, or with a
//! token that its target still knows; and a call that may have had an effect is never reported as "not executed".

use placet_adapter::outcome::{AdapterError, Outcome, Probe};
use placet_ledger::{
    ledger::LedgerError,
    record::{Attempt, EffectState},
    store::StoreError,
};
use placet_types::contract::Dedup;

use crate::lifecycle::codes::Prospect;

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not recorded: a read that was not held, or a call that has not taken its key.
    Absent,
    /// Its key is taken, in memory only.
    Claimed,
    /// Waits for approval.
    Pending,
    /// Approved.
    Approved,
    /// Operators decided to send it again; whether it already had its effect is not known.
    Rearmed,
    /// It was sent, or is about to be.
    Dispatched(Sent),
    /// It did not happen, and may be tried again.
    Retriable,
    /// Its outcome is unknown.
    Indeterminate,
    /// Its outcome is known.
    Final,
    /// It ended; nothing else is kept.
    Tombstone,
}

impl State {
    /// The state of a record; `sent` gives what is known of its attempt, where it was sent.
    pub(crate) fn of(state: &EffectState, sent: impl FnOnce(&Attempt) -> Sent) -> Self {
        match state {
            EffectState::Claimed { .. } => Self::Claimed,
            EffectState::PendingApproval { .. } => Self::Pending,
            EffectState::Approved { .. } => Self::Approved,
            EffectState::Rearmed { .. } => Self::Rearmed,
            EffectState::Dispatched(attempt) => Self::Dispatched(sent(attempt)),
            EffectState::FailedRetriable { .. } => Self::Retriable,
            EffectState::Indeterminate { .. } => Self::Indeterminate,
            EffectState::Succeeded { .. }
            | EffectState::FailedFinal { .. }
            | EffectState::Denied { .. } => Self::Final,
            EffectState::Tombstone { .. } => Self::Tombstone,
        }
    }
}

/// What is known of a call that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) class: Dedup,
    /// Whether its target still knows its token.
    pub(crate) in_window: bool,
    /// Whether its adapter can be asked later what became of it.
    pub(crate) can_ask: bool,
    /// Whether this process has to record its outcome.
    pub(crate) is_ours: bool,
}

impl Sent {
    /// Whether the target recognises it when it is sent again.
    const fn is_recognised(self) -> bool {
        matches!(self.class, Dedup::Keyed { .. }) && self.in_window
    }

    /// Whether sending it again changes nothing that its first attempt may have done.
    const fn may_be_repeated(self) -> bool {
        matches!(self.class, Dedup::ReadOnly) || self.is_recognised()
    }

    /// What its class allows to be done while its outcome is not known (T7).
    const fn recourse(self) -> Recourse {
        match self.class {
            Dedup::ReadOnly => Recourse::SendAgain,
            Dedup::Keyed { .. } if self.in_window => Recourse::SendAgain,
            Dedup::Keyed { .. } | Dedup::Queryable { .. } | Dedup::Opaque => self.without_sending(),
        }
    }

    /// The same where it must not be sent again.
    const fn without_sending(self) -> Recourse {
        if self.can_ask { Recourse::Ask } else { Recourse::GiveUp }
    }
}

/// Something that happens to a call.
pub(crate) trait Event {
    /// What can be done about it.
    type Action;

    fn happens_to(self, state: State) -> Self::Action;
}

/// What is done when this event happens to a call in this state.
pub(crate) fn step<E: Event>(state: State, event: E) -> E::Action {
    event.happens_to(state)
}

/// An attempt is refused before anything was sent in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) prospect: Prospect,
    /// Whether the engine makes the attempt itself, not a client that repeats the call.
    pub(crate) is_own: bool,
    pub(crate) is_ending: bool,
}

/// What becomes of a call whose attempt is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRefusal {
    /// The caller is told; the record stays as it is.
    Tell,
    /// The key is released and the caller told.
    Release,
    /// It waits under its approval for its next attempt.
    WaitOn,
    /// It waits under its approval for a new token of its caller.
    AwaitCaller,
    /// Its approval ends.
    EndApproval,
    /// It is sent again later.
    Defer,
    /// The next process continues.
    Leave,
    /// Its adapter is asked what became of its earlier attempt.
    Ask,
    /// The outcome of its earlier attempt is unknown.
    GiveUp,
    /// The operators' decision is reverted.
    Disarm,
    /// The round over re-armed calls tries again.
    LetGo,
    /// The caller is told that the operators' decision stands, and nothing about the first attempt.
    TellUnknown,
}

impl Event for Refused {
    type Action = AfterRefusal;

    fn happens_to(self, state: State) -> AfterRefusal {
        match (state, self.prospect) {
            (State::Claimed, _) => AfterRefusal::Release,
            (State::Pending | State::Approved, Prospect::Retry) => AfterRefusal::WaitOn,
            (State::Pending | State::Approved, Prospect::AwaitCaller) => AfterRefusal::AwaitCaller,
            (State::Pending | State::Approved, Prospect::End) => AfterRefusal::EndApproval,
            // That it may not be sent again says nothing about the first attempt.
            (State::Dispatched(_), Prospect::Retry) if self.is_ending => AfterRefusal::Leave,
            (State::Dispatched(sent), Prospect::Retry) if sent.may_be_repeated() => {
                AfterRefusal::Defer
            }
            (State::Dispatched(sent), _) => match sent.without_sending() {
                Recourse::Ask => AfterRefusal::Ask,
                Recourse::SendAgain | Recourse::GiveUp => AfterRefusal::GiveUp,
            },
            (State::Rearmed, Prospect::End) if self.is_own => AfterRefusal::Disarm,
            (State::Rearmed, _) if self.is_own => AfterRefusal::LetGo,
            // A client that repeats the call may ask for less, or under another run: it must not end what operators decided.
            (State::Rearmed, _) => AfterRefusal::TellUnknown,
            (
                State::Absent
                | State::Retriable
                | State::Indeterminate
                | State::Final
                | State::Tombstone,
                _,
            ) => AfterRefusal::Tell,
        }
    }
}

/// The intent to send a call could not be recorded, so nothing was sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Unrecorded<'a> {
    pub(crate) error: &'a LedgerError,
    /// Whether the approval it ran under has expired.
    pub(crate) is_expired: bool,
    /// Whether it may be decided once more.
    pub(crate) may_decide: bool,
}

/// What becomes of a call whose intent could not be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterUnrecorded {
    /// It may have been recorded after all: nothing is released or reported as ended.
    TellInDoubt,
    /// It is refused with the ledger's error.
    Refuse,
    /// It is refused because its approval expired.
    RefuseExpired,
    /// It is decided again as if there had been no approval.
    DecideWithoutApproval,
    /// It is decided again as if there were no standing grants.
    DecideWithoutGrants,
    /// It is decided again under the directives that are in force now.
    DecideByDirectives,
    /// It is decided again under the policies that are active now.
    DecideByPolicies,
    /// Another attempt of the same call was faster.
    BecomeDuplicate,
}

impl Event for Unrecorded<'_> {
    type Action = AfterUnrecorded;

    fn happens_to(self, state: State) -> AfterUnrecorded {
        let is_approved = state == State::Approved;
        match self.error {
            LedgerError::Store(StoreError::Uncertain(_)) => AfterUnrecorded::TellInDoubt,
            LedgerError::WrongState(_) | LedgerError::Store(StoreError::Conflict)
                if self.is_expired =>
            {
                if is_approved {
                    AfterUnrecorded::RefuseExpired
                } else {
                    AfterUnrecorded::DecideWithoutApproval
                }
            }
            LedgerError::Store(StoreError::GrantSpent) => AfterUnrecorded::DecideWithoutGrants,
            LedgerError::Store(StoreError::DirectiveMoved) if self.may_decide => {
                AfterUnrecorded::DecideByDirectives
            }
            LedgerError::Store(StoreError::PolicyMoved) => AfterUnrecorded::DecideByPolicies,
            LedgerError::Store(StoreError::Conflict) if !is_approved && state != State::Absent => {
                AfterUnrecorded::BecomeDuplicate
            }
            LedgerError::Store(_)
            | LedgerError::SamePerson
            | LedgerError::PermitMismatch
            | LedgerError::EditMismatch
            | LedgerError::WrongState(_)
            | LedgerError::Vote(_)
            | LedgerError::Encoding(_) => AfterUnrecorded::Refuse,
        }
    }
}

/// An adapter answered, or its time ran out.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// Whether attempts and latency budget are left for another one.
    pub(crate) has_tries: bool,
    /// Whether there is a credential other than the one that its target refused.
    pub(crate) has_another: bool,
    /// Whether its caller's latency budget no longer applies: it was sent by a process that has ended.
    pub(crate) is_recovered: bool,
    /// Whether the adapter is still at work and its answer is awaited.
    pub(crate) is_listening: bool,
    pub(crate) is_ending: bool,
}

/// What an adapter's answer says about another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The outcome of the call, or that it was refused.
    Conclusive,
    /// Nothing happened: the target could not be reached.
    Unreachable,
    /// Nothing happened: the target does not know the credential.
    CredentialRefused,
    /// Nothing happened, and the answer was not usable.
    Garbled,
    /// The outcome is unknown.
    Unknown,
}

impl Reply {
    pub(crate) const fn of(outcome: &Outcome) -> Self {
        match (outcome, outcome.not_executed()) {
            (Outcome::Unknown(_), _) => Self::Unknown,
            (_, Some(AdapterError::Unavailable(_) | AdapterError::NoSession(_))) => {
                Self::Unreachable
            }
            (_, Some(AdapterError::CredentialRefused(_))) => Self::CredentialRefused,
            (_, Some(AdapterError::InvalidResponse(_))) => Self::Garbled,
            (
                _,
                None
                | Some(
                    AdapterError::SchemaMismatch(_)
                    | AdapterError::Forbidden(_)
                    | AdapterError::Misconfigured(_)
                    | AdapterError::Refused(_),
                ),
            ) => Self::Conclusive,
        }
    }
}

/// What becomes of a call whose adapter answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterAnswer {
    /// The outcome is recorded and returned.
    Settle,
    /// The outcome is recorded, and the call sent again at once.
    SettleAndTryAgain,
    /// It is sent again at once with the same token.
    TryAgain,
    /// It is sent again later with the same token.
    Defer,
    /// The next process continues.
    Leave,
}

impl Event for Answered {
    type Action = AfterAnswer;

    fn happens_to(self, state: State) -> AfterAnswer {
        match (state, self.reply) {
            (_, Reply::Conclusive) => AfterAnswer::Settle,
            // Settled, the outcome would be unknown, since an earlier attempt has none; the target knows the token.
            (State::Dispatched(sent), Reply::CredentialRefused)
                if self.is_recovered && self.has_another && sent.is_recognised() =>
            {
                AfterAnswer::TryAgain
            }
            (_, Reply::CredentialRefused) if self.has_another && self.has_tries => {
                AfterAnswer::SettleAndTryAgain
            }
            (_, Reply::CredentialRefused) => AfterAnswer::Settle,
            (State::Absent, Reply::Unreachable) if self.has_tries => AfterAnswer::SettleAndTryAgain,
            (State::Dispatched(sent), _) if self.is_recovered && sent.may_be_repeated() => {
                AfterAnswer::Defer
            }
            (State::Dispatched(sent), _) if !sent.is_recognised() => AfterAnswer::Settle,
            (State::Dispatched(_), Reply::Unknown) if self.is_ending => AfterAnswer::Leave,
            (State::Dispatched(_), Reply::Unknown) if self.has_tries && !self.is_listening => {
                AfterAnswer::TryAgain
            }
            (_, Reply::Unreachable | Reply::Garbled | Reply::Unknown) => AfterAnswer::Settle,
        }
    }
}

/// A deferred call is due.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due;

/// What becomes of a deferred call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterPause {
    TryAgain,
    /// It cannot be sent again.
    Recover(Recourse),
    /// Another task or node works on it, or has ended it.
    Tell,
}

impl Event for Due {
    type Action = AfterPause;

    fn happens_to(self, state: State) -> AfterPause {
        let State::Dispatched(sent) = state else { return AfterPause::Tell };
        match sent.recourse() {
            _ if !sent.is_ours => AfterPause::Tell,
            Recourse::SendAgain => AfterPause::TryAgain,
            end @ (Recourse::Ask | Recourse::GiveUp) => AfterPause::Recover(end),
        }
    }
}

/// No task works on a call that was sent: the process that sent it has ended, or its task has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Orphaned;

/// What can be done about a call that was sent and whose outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recourse {
    /// It goes through broker and gate again, with the same token.
    SendAgain,
    /// Its adapter is asked.
    Ask,
    /// Its outcome is unknown.
    GiveUp,
}

impl Event for Orphaned {
    type Action = Option<Recourse>;

    fn happens_to(self, state: State) -> Option<Recourse> {
        if let State::Dispatched(sent) = state { Some(sent.recourse()) } else { None }
    }
}

/// The stage that held a call died.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abandoned {
    /// Whether it was a read without a record that was with its adapter.
    pub(crate) was_sent: bool,
}

/// What becomes of a call whose stage died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterDeath {
    /// The caller is told that nothing was executed.
    Tell,
    /// The caller is told that the answer was lost.
    TellLost,
    /// The key is released and the caller told that nothing was executed.
    Release,
    /// Another node works on it; the ledger is polled for its end.
    Watch,
    /// It is recovered as if its process had ended.
    Recover,
    /// The approval service must learn that the approval was requested.
    NoteAsked,
    /// It is taken up again under its approval.
    ResumeLater,
    /// The caller is told its recorded state.
    TellRecorded,
}

impl Event for Abandoned {
    type Action = AfterDeath;

    fn happens_to(self, state: State) -> AfterDeath {
        match state {
            State::Absent if self.was_sent => AfterDeath::TellLost,
            State::Absent => AfterDeath::Tell,
            State::Claimed => AfterDeath::Release,
            State::Dispatched(sent) if !sent.is_ours => AfterDeath::Watch,
            State::Dispatched(_) => AfterDeath::Recover,
            State::Pending => AfterDeath::NoteAsked,
            State::Approved => AfterDeath::ResumeLater,
            // The round over re-armed calls takes these up.
            State::Rearmed
            | State::Retriable
            | State::Indeterminate
            | State::Final
            | State::Tombstone => AfterDeath::TellRecorded,
        }
    }
}

/// A call arrives whose key is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeated {
    /// Whether its arguments are those of the call that took it.
    pub(crate) is_same: bool,
    /// Whether it may become an attempt of that call; one that was overtaken by another attempt may not.
    pub(crate) may_take_up: bool,
}

/// What becomes of a call whose key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRepeat {
    /// It becomes an attempt of that call.
    TakeUp,
    /// It waits for the outcome of that call.
    Attach,
    /// It waits for the same approval.
    AttachToHeld,
    /// It gets the recorded result.
    Replay,
    /// It is told that only the end of that call is recorded.
    TellExpired,
    /// It is told that the key was used for a different call.
    Conflict,
    /// It looks again: that claim may be released.
    LookAgain,
}

impl Event for Repeated {
    type Action = AfterRepeat;

    fn happens_to(self, state: State) -> AfterRepeat {
        match state {
            State::Absent => AfterRepeat::LookAgain,
            State::Claimed if !self.is_same => AfterRepeat::LookAgain,
            _ if !self.is_same => AfterRepeat::Conflict,
            State::Retriable | State::Rearmed if self.may_take_up => AfterRepeat::TakeUp,
            State::Claimed | State::Dispatched(_) | State::Rearmed => AfterRepeat::Attach,
            State::Pending | State::Approved => AfterRepeat::AttachToHeld,
            State::Retriable | State::Indeterminate | State::Final => AfterRepeat::Replay,
            State::Tombstone => AfterRepeat::TellExpired,
        }
    }
}

/// An adapter was asked what became of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probed<'a> {
    /// `None`: it did not answer.
    pub(crate) found: Option<&'a Probe>,
    /// Whether "not found" by now means that it did not happen (F16).
    pub(crate) is_settled: bool,
    /// Whether an earlier attempt remains open, whatever it says of the last one.
    pub(crate) after_unknown: bool,
    /// Whether it is worth asking again soon.
    pub(crate) may_ask: bool,
}

/// What becomes of a call that an adapter was asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterProbe {
    /// It happened.
    Happened,
    /// It did not.
    DidNotHappen,
    /// It is asked about again.
    AskAgain,
    /// Its outcome is unknown.
    GiveUp,
}

impl Event for Probed<'_> {
    type Action = AfterProbe;

    fn happens_to(self, state: State) -> AfterProbe {
        match (self.found, state) {
            (Some(Probe::Committed(_)), _) => AfterProbe::Happened,
            // The record itself says that an earlier attempt is open.
            (Some(Probe::NotFound), State::Dispatched(_)) if self.is_settled => {
                AfterProbe::DidNotHappen
            }
            (Some(Probe::NotFound), _) if self.is_settled && !self.after_unknown => {
                AfterProbe::DidNotHappen
            }
            (_, State::Dispatched(_)) if !self.may_ask => AfterProbe::GiveUp,
            (Some(Probe::NotFound | Probe::Unknown) | None, _) => AfterProbe::AskAgain,
        }
    }
}

/// An answer arrived after its call was given up.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredLate {
    /// Whether it answers the attempt that the record is about.
    pub(crate) is_current: bool,
    /// Whether it answers the previous arm.
    pub(crate) is_of_earlier_arm: bool,
    pub(crate) is_done: bool,
}

/// What becomes of a late answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterLateAnswer {
    /// It is recorded.
    Resolve,
    /// It is kept until the record says that its attempt has no outcome.
    KeepForOwn,
    /// It is kept until the outcome of the arm in flight is known.
    KeepForArm,
}

impl Event for AnsweredLate {
    type Action = AfterLateAnswer;

    fn happens_to(self, state: State) -> AfterLateAnswer {
        let is_under_way = matches!(state, State::Dispatched(_));
        if is_under_way && self.is_done && self.is_of_earlier_arm {
            // What the earlier arm did counts if the outcome of this one stays unknown.
            AfterLateAnswer::KeepForArm
        } else if is_under_way && self.is_current {
            AfterLateAnswer::KeepForOwn
        } else {
            // The ledger refuses evidence that is not about this attempt.
            AfterLateAnswer::Resolve
        }
    }
}

#[cfg(test)]
mod tests;
