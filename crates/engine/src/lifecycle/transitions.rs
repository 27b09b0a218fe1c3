//! The life of a call after its first try, as one table: how it stands, and what happens, say what is done next.
//!
//! Owns the rules of retry, deferral, duplicate, recovery, re-arm and late evidence. Each event names what it can lead to; the stages and the
//! execution tasks perform that. How a record stands afterwards is what the ledger's verb makes of it (`placet_ledger::record`), and how
//! approvals expire or are withdrawn is decided there too. Invariants (I1, I12): what was sent goes out again only as a read, or with a token
//! that its target still knows; and of a call that may have had an effect nobody is told "not executed".

use placet_adapter::outcome::{AdapterError, Outcome, Probe};
use placet_ledger::{
    ledger::LedgerError,
    record::{Attempt, Class, EffectState},
    store::StoreError,
};

use crate::lifecycle::codes::Prospect;

/// How a call stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    /// Not recorded: a read that nobody held, or a call that has not taken its key.
    Absent,
    /// Its key is taken, in memory only.
    Claimed,
    /// People are asked.
    Pending,
    /// People have agreed.
    Approved,
    /// Operators decided to send it again; whether it had its effect already is not known.
    Rearmed,
    /// It was sent, or is about to be.
    Dispatched(Sent),
    /// It did not happen, and may be tried again.
    Retriable,
    /// Nobody knows whether it happened.
    Indeterminate,
    /// It is known how it ended.
    Final,
    /// It is known that it ended, and no more.
    Tombstone,
}

impl State {
    /// How a record stands; `sent` is what is known of its attempt, where it was sent.
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
    pub(crate) class: Class,
    /// Whether there is time left in which its target knows its token.
    pub(crate) in_window: bool,
    /// Whether its adapter can say afterwards what became of it.
    pub(crate) can_ask: bool,
    /// Whether its outcome is this process's to record.
    pub(crate) is_ours: bool,
}

impl Sent {
    /// Whether a target recognises it when it comes again.
    const fn is_recognised(self) -> bool {
        matches!(self.class, Class::Keyed { .. }) && self.in_window
    }

    /// What its class leaves to do while its outcome is not known (T7).
    const fn recourse(self) -> Recourse {
        match self.class {
            Class::ReadOnly => Recourse::SendAgain,
            Class::Keyed { .. } if self.in_window => Recourse::SendAgain,
            Class::Keyed { .. } | Class::Queryable { .. } | Class::Opaque => self.without_sending(),
        }
    }

    /// The same where it may not be sent again.
    const fn without_sending(self) -> Recourse {
        if self.can_ask { Recourse::Ask } else { Recourse::GiveUp }
    }
}

/// Something that happens to a call.
pub(crate) trait Event {
    /// What it can lead to.
    type Action;

    fn happens_to(self, state: State) -> Self::Action;
}

/// What is done about a call that stands like this when this happens to it.
pub(crate) fn step<E: Event>(state: State, event: E) -> E::Action {
    event.happens_to(state)
}

/// A try is refused before anything was sent in it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Refused {
    pub(crate) prospect: Prospect,
    /// Whether the engine tries by itself, and no client that came with a call of its own.
    pub(crate) is_own: bool,
    pub(crate) is_ending: bool,
}

/// What becomes of a call whose try is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRefusal {
    /// The caller is told; what is recorded stays.
    Tell,
    /// The key is returned and the caller told.
    Release,
    /// It waits for its next try under its approval.
    WaitOn,
    /// It waits under its approval for its caller to come with a new token.
    AwaitCaller,
    /// Its approval ends.
    EndApproval,
    /// It is tried again after a while.
    Defer,
    /// The next process goes on.
    Leave,
    /// Its adapter is asked what became of its earlier try.
    Ask,
    /// Nobody knows what became of its earlier try.
    GiveUp,
    /// What operators decided is taken back.
    Disarm,
    /// The round over re-armed calls tries again.
    LetGo,
    /// The caller is told that what operators decided stands, and nothing about the first try.
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
            // That it may not be sent again says nothing about the first time.
            (State::Dispatched(_), Prospect::Retry) if self.is_ending => AfterRefusal::Leave,
            (State::Dispatched(sent), Prospect::Retry) if sent.is_recognised() => {
                AfterRefusal::Defer
            }
            (State::Dispatched(sent), _) => match sent.without_sending() {
                Recourse::Ask => AfterRefusal::Ask,
                Recourse::SendAgain | Recourse::GiveUp => AfterRefusal::GiveUp,
            },
            (State::Rearmed, Prospect::End) if self.is_own => AfterRefusal::Disarm,
            (State::Rearmed, _) if self.is_own => AfterRefusal::LetGo,
            // A client that repeats the call may ask for less, or under another run: what operators decided is not its to end.
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
    /// Whether the approval it ran under has run out of time.
    pub(crate) is_expired: bool,
    /// Whether it may be decided upon once more.
    pub(crate) may_decide: bool,
}

/// What becomes of a call whose intent could not be recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterUnrecorded {
    /// It may be recorded after all: nothing is returned, and nothing said to be over.
    TellInDoubt,
    /// It is refused with what the ledger says.
    Refuse,
    /// It is refused since its approval ran out of time.
    RefuseExpired,
    /// It is decided again as if nobody had been asked.
    DecideWithoutApproval,
    /// It is decided again as if there were no standing grants.
    DecideWithoutGrants,
    /// It is decided again by what approvers have put in force since.
    DecideByDirectives,
    /// It is decided again by the policies that are active now.
    DecideByPolicies,
    /// Another try of the same call was faster.
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

/// An adapter answered, or did not in its time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Answered {
    pub(crate) reply: Reply,
    /// Whether tries and latency budget are left for another one.
    pub(crate) has_tries: bool,
    /// Whether there is another credential than the one that its target refused.
    pub(crate) has_another: bool,
    /// Whether its caller's latency budget counts no more: it was sent by a process that is over.
    pub(crate) is_recovered: bool,
    /// Whether the adapter is at it still, and its answer listened for.
    pub(crate) is_listening: bool,
    pub(crate) is_ending: bool,
}

/// What an adapter's answer says about a further try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reply {
    /// What became of the call, or that it was refused.
    Conclusive,
    /// Nothing happened: the target could not be reached.
    Unreachable,
    /// Nothing happened: the target does not know the credential.
    CredentialRefused,
    /// Nothing happened, and what came was no answer.
    Garbled,
    /// Nobody knows.
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
    /// The outcome is recorded and told.
    Settle,
    /// The outcome is recorded, and the call tried again at once.
    SettleAndTryAgain,
    /// It is tried again at once with the same token.
    TryAgain,
    /// It is tried again after a while with the same token.
    Defer,
    /// The next process goes on.
    Leave,
}

impl Event for Answered {
    type Action = AfterAnswer;

    fn happens_to(self, state: State) -> AfterAnswer {
        match (state, self.reply) {
            (_, Reply::Conclusive) => AfterAnswer::Settle,
            (_, Reply::CredentialRefused) if self.has_another && self.has_tries => {
                AfterAnswer::SettleAndTryAgain
            }
            (_, Reply::CredentialRefused) => AfterAnswer::Settle,
            (State::Absent, Reply::Unreachable) if self.has_tries => AfterAnswer::SettleAndTryAgain,
            (State::Dispatched(sent), _) if !sent.is_recognised() => AfterAnswer::Settle,
            (State::Dispatched(_), _) if self.is_recovered => AfterAnswer::Defer,
            (State::Dispatched(_), Reply::Unknown) if self.is_ending => AfterAnswer::Leave,
            (State::Dispatched(_), Reply::Unknown) if self.has_tries && !self.is_listening => {
                AfterAnswer::TryAgain
            }
            (_, Reply::Unreachable | Reply::Garbled | Reply::Unknown) => AfterAnswer::Settle,
        }
    }
}

/// The time of a deferred call has come.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Due;

/// What becomes of a deferred call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterPause {
    TryAgain,
    /// It cannot be tried any more.
    Recover(Recourse),
    /// Somebody else works on it, or has ended it.
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

/// Nobody works on a call that was sent: the process that sent it is over, or its task.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Orphaned;

/// What is left to do about a call that was sent and whose outcome is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Recourse {
    /// It goes through broker and gate again, with the same token.
    SendAgain,
    /// Its adapter is asked.
    Ask,
    /// Nobody knows what became of it.
    GiveUp,
}

impl Event for Orphaned {
    type Action = Option<Recourse>;

    fn happens_to(self, state: State) -> Option<Recourse> {
        if let State::Dispatched(sent) = state { Some(sent.recourse()) } else { None }
    }
}

/// The stage that had a call died.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abandoned {
    /// Whether it was a read without a record, and with its adapter.
    pub(crate) was_sent: bool,
}

/// What becomes of a call whose stage died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterDeath {
    /// The caller is told that nothing was executed.
    Tell,
    /// The caller is told that the answer is lost.
    TellLost,
    /// The key is returned and the caller told that nothing was executed.
    Release,
    /// Another node works on it, and the ledger tells.
    Watch,
    /// It is recovered as if its process were over.
    Recover,
    /// The approval service has to know that people are asked.
    NoteAsked,
    /// It is taken up again under its approval.
    ResumeLater,
    /// The caller is told how it stands.
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
            // A round takes up what was re-armed.
            State::Rearmed
            | State::Retriable
            | State::Indeterminate
            | State::Final
            | State::Tombstone => AfterDeath::TellRecorded,
        }
    }
}

/// A call comes whose key is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeated {
    /// Whether its arguments are those of the call that took it.
    pub(crate) is_same: bool,
    /// Whether it may be a try of that call: one that was overtaken by another try is not.
    pub(crate) may_take_up: bool,
}

/// What becomes of a call whose key is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterRepeat {
    /// It is a try of that call.
    TakeUp,
    /// It waits for the outcome of that call.
    Attach,
    /// It waits for the same approval.
    AttachToHeld,
    /// It gets what is recorded.
    Replay,
    /// It is told that nothing but the end is recorded.
    TellExpired,
    /// It is told that the key was used for another call.
    Conflict,
    /// It looks again: that call may come to nothing.
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
    /// Nothing: it did not answer.
    pub(crate) found: Option<&'a Probe>,
    /// Whether "not found" means by now that it did not happen (F16).
    pub(crate) is_settled: bool,
    /// Whether what it says of the last attempt leaves open what an earlier one did.
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
    /// Nobody knows what became of it.
    GiveUp,
}

impl Event for Probed<'_> {
    type Action = AfterProbe;

    fn happens_to(self, state: State) -> AfterProbe {
        match (self.found, state) {
            (Some(Probe::Committed(_)), _) => AfterProbe::Happened,
            // The record says by itself that an earlier attempt is open.
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

/// An answer came after its call was given up waiting for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredLate {
    /// Whether it is the answer of the attempt that the record is about.
    pub(crate) is_current: bool,
    /// Whether it is the answer of the arm before.
    pub(crate) is_of_earlier_arm: bool,
    pub(crate) is_done: bool,
}

/// What becomes of a late answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum AfterLateAnswer {
    /// It is recorded.
    Resolve,
    /// It is kept back until the record says that its attempt has no outcome.
    KeepForOwn,
    /// It is kept back until it is known what became of the arm that is under way.
    KeepForArm,
}

impl Event for AnsweredLate {
    type Action = AfterLateAnswer;

    fn happens_to(self, state: State) -> AfterLateAnswer {
        let is_under_way = matches!(state, State::Dispatched(_));
        if is_under_way && self.is_done && self.is_of_earlier_arm {
            // What the earlier arm did counts where nobody knows in the end what this one did.
            AfterLateAnswer::KeepForArm
        } else if is_under_way && self.is_current {
            AfterLateAnswer::KeepForOwn
        } else {
            // The ledger refuses what does not speak of this attempt.
            AfterLateAnswer::Resolve
        }
    }
}

#[cfg(test)]
mod tests;
