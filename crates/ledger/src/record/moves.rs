//! The machine of the effect record: its legal moves.
//!
//! Owns the legal moves (T1 to T11). Does not store and does not decide who may ask for one.
//!
//! Invariants: I7, a record's history is a path through [`EffectRecord::may_move_to`], and settled states are final except for the end of
//! their retention. I1 and I10, a call that was sent and refused is sent again under its approval only where the record still names it;
//! only what the target recognises is sent again with an old token. I9, an unknown outcome ends by evidence or by operators. A record with
//! an unknown arm is never released.

use placet_types::{
    clock::Timestamp,
    ids::{RecordId, RecordPlace},
};

use crate::keys::time_of;

use super::{Attempt, EffectRecord, EffectState, Rearm, Resolution, Unknown, is_in_its_words};

/// A move that is not legal.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("record `{record_id}` may not go from {from} to {to}")]
pub struct IllegalMove {
    /// The record.
    pub record_id: RecordId,
    /// Its state.
    pub from: &'static str,
    /// The state asked for.
    pub to: &'static str,
}

impl EffectState {
    /// Whether a record may move from this state to `next`, as far as the states alone can tell; [`EffectRecord::may_move_to`] is the whole
    /// rule. Releasing a key is a removal, for which [`EffectRecord::may_be_removed`] is the rule.
    pub fn may_become(&self, next: &Self) -> bool {
        use EffectState as S;
        match (self, next) {
            (
                S::Claimed { .. }
                | S::Rearmed { .. }
                | S::Approved { .. }
                // What had no effect is tried again, and needs an approval this time.
                | S::FailedRetriable { .. },
                S::PendingApproval { .. },
            )
            | (
                S::PendingApproval { .. },
                S::PendingApproval { .. } | S::Approved { .. } | S::Denied { .. },
            )
            | (S::Approved { .. }, S::Denied { .. }) => true,
            (
                S::Claimed { .. } | S::Approved { .. } | S::Rearmed { .. },
                S::Dispatched(attempt),
            ) => attempt.number >= 1,
            // Under the approval that the record still names, or under none.
            (S::FailedRetriable { approval_id: kept, .. }, S::Dispatched(attempt)) => {
                attempt.number >= 1 && (attempt.approval_id.is_none() || attempt.approval_id == *kept)
            }
            (S::Dispatched(a), S::Dispatched(b)) => a.may_be_adopted_as(b) || a.may_repeat_as(b),
            (S::Dispatched(a), S::Indeterminate { attempt: b, rearm: None, .. }) => a == b,
            // A refusal in words of the target means that the target was reached, whatever its adapter reports.
            (S::Dispatched(attempt), S::FailedRetriable { code, approval_id: kept, .. }) => {
                kept.is_none() || *kept == attempt.kept_approval(is_in_its_words(*code))
            }
            (
                S::Dispatched(attempt),
                S::Succeeded { resolved_by, .. } | S::FailedFinal { resolved_by, .. },
            ) => resolved_by.as_ref().is_none_or(|by| by.attempt() == Some(attempt.number)),
            (
                S::Indeterminate { attempt, .. },
                S::Succeeded { resolved_by: Some(by), .. }
                | S::FailedFinal { resolved_by: Some(by), .. },
            ) => by.speaks_of(attempt),
            (
                S::Indeterminate { attempt: a, rearm: None, .. },
                S::Indeterminate { attempt: b, rearm: Some(_), .. },
            ) => a == b,
            (S::Indeterminate { rearm, .. }, S::Rearmed { by }) => agreed(rearm.as_deref(), by),
            (state, S::Tombstone { was, code, .. }) => {
                state.is_settled() && *was == state.name() && *code == state.code()
            }
            _ => false,
        }
    }

    /// Whether a key in this state may be released: only where nothing has happened.
    const fn is_before_dispatch(&self) -> bool {
        matches!(self, Self::Claimed { .. } | Self::PendingApproval { .. } | Self::Approved { .. })
    }
}

/// Whether these operators agree on another arm: distinct people, including the one who asked first.
fn agreed(asked: Option<&Rearm>, by: &[Rearm]) -> bool {
    let distinct = by.iter().enumerate().all(|(place, one)| {
        by.iter().skip(place.saturating_add(1)).all(|other| other.operator != one.operator)
    });
    !by.is_empty() && distinct && asked.is_none_or(|asked| by.contains(asked))
}

impl Resolution {
    fn speaks_of(&self, attempt: &Attempt) -> bool {
        self.attempt().is_none_or(|number| number == attempt.number)
    }
}

impl Attempt {
    /// Whether `next` is this attempt with the duty to settle it passed to another epoch: how a survivor takes over from a dead process
    /// (T7). The survivor's epoch may be the older one; the store makes sure that the other one has ended (I8).
    fn may_be_adopted_as(&self, next: &Self) -> bool {
        let adopted = Self { adopted_by: next.adopted_by, ..self.clone() };
        adopted == *next && next.duty() != self.duty()
    }

    /// Only what the target recognises, or what has no effect, may be sent again without an answer (T7).
    fn may_repeat_as(&self, next: &Self) -> bool {
        next.number > self.number
            && next.token == self.token
            && self.class.may_repeat()
            && self.class == next.class
    }
}

impl EffectRecord {
    /// Whether the record may become `next`: its state, its arm and what it keeps of an earlier arm. The store checks revisions.
    pub fn may_move_to(&self, next: &Self) -> bool {
        let (arm, unknown) = self.arm_after(&next.state);
        if arm != Some(next.arm) || unknown != next.unknown {
            return false;
        }
        match &self.unknown {
            None => self.state.may_become(&next.state),
            Some(earlier) => self.may_move_rearmed(earlier, &next.state),
        }
    }

    /// Moves of a record with an unknown earlier arm: none may end it as "not executed".
    fn may_move_rearmed(&self, earlier: &Unknown, next: &EffectState) -> bool {
        use EffectState as S;
        let waits = !matches!(self.state, S::Dispatched(_) | S::Indeterminate { .. });
        match next {
            S::Indeterminate { attempt, rearm: None, .. } if waits => *attempt == earlier.attempt,
            S::Succeeded { resolved_by: Some(by), .. }
            | S::FailedFinal { resolved_by: Some(by), .. }
                if waits =>
            {
                by.speaks_of(&earlier.attempt)
            }
            // That the earlier arm had its effect holds whatever the outcome of the later one.
            S::Succeeded { resolved_by: Some(by), .. }
                if matches!(self.state, S::Indeterminate { .. })
                    && by.attempt() == Some(earlier.attempt.number) =>
            {
                true
            }
            S::Denied { .. } | S::FailedRetriable { .. } => false,
            S::FailedFinal { .. } if matches!(self.state, S::Dispatched(_)) => false,
            S::Dispatched(attempt) => attempt.after_unknown && self.state.may_become(next),
            S::Claimed { .. }
            | S::PendingApproval { .. }
            | S::Approved { .. }
            | S::Succeeded { .. }
            | S::FailedFinal { .. }
            | S::Indeterminate { .. }
            | S::Rearmed { .. }
            | S::Tombstone { .. } => self.state.may_become(next),
        }
    }

    /// The arm after a move to `state`, and what is kept of an earlier one.
    fn arm_after(&self, state: &EffectState) -> (Option<u32>, Option<Box<Unknown>>) {
        match (&self.state, state) {
            (
                EffectState::Indeterminate { attempt, reason, result, .. },
                EffectState::Rearmed { .. },
            ) => {
                let (attempt, reason, result) = (attempt.clone(), reason.clone(), *result);
                let unknown = Unknown { attempt, reason, result };
                (self.arm.checked_add(1), Some(Box::new(unknown)))
            }
            _ => (Some(self.arm), self.unknown.clone()),
        }
    }

    /// Whether the key may be released: only where nothing has happened under any arm.
    pub const fn may_be_removed(&self) -> bool {
        self.unknown.is_none() && self.state.is_before_dispatch()
    }

    /// Whether the tombstone may be dropped: only if the key tells its own age, so that it is refused as too old from then on. The caller
    /// has to know whether it is due.
    pub fn may_be_forgotten(&self) -> bool {
        matches!(self.state, EffectState::Tombstone { .. }) && time_of(&self.key).is_some()
    }

    /// Whether it is dispatched and has to be settled by an epoch before `epoch`.
    pub fn is_orphaned(&self, epoch: u64) -> bool {
        matches!(&self.state, EffectState::Dispatched(attempt) if attempt.duty() < epoch)
    }

    /// Its place in a list.
    pub const fn place(&self) -> RecordPlace {
        RecordPlace { updated_at: self.updated_at, record_id: self.record_id }
    }

    /// Whether it was settled, or became a tombstone, before `before`.
    pub fn is_past_retention(&self, before: Timestamp) -> bool {
        let over = self.state.is_settled() || matches!(self.state, EffectState::Tombstone { .. });
        over && self.updated_at < before
    }

    /// The record after a move to `state` at `now`.
    ///
    /// # Errors
    /// [`IllegalMove`] when the machine has no such move.
    pub fn moved(&self, state: EffectState, now: Timestamp) -> Result<Self, IllegalMove> {
        let mut next = Self {
            version: super::RECORD_VERSION,
            // Lists are in this order: a node whose clock is behind moves nothing back in them.
            updated_at: now.max(self.updated_at),
            rev: self.rev.saturating_add(1),
            state,
            ..self.clone()
        };
        if let EffectState::Dispatched(attempt) = &next.state {
            next.attempts = attempt.number;
        }
        let (arm, unknown) = self.arm_after(&next.state);
        next.arm = arm.unwrap_or(self.arm);
        next.unknown = unknown;
        if self.may_move_to(&next) { Ok(next) } else { Err(self.illegal(&next.state)) }
    }

    /// The state after a wait that ended without dispatch: `ended`, or the unknown outcome of the earlier arm.
    pub fn ended_without_dispatch(&self, ended: EffectState) -> EffectState {
        match self.unknown.as_deref() {
            None => ended,
            Some(Unknown { attempt, reason, result }) => EffectState::Indeterminate {
                attempt: attempt.clone(),
                reason: reason.clone(),
                result: *result,
                rearm: None,
            },
        }
    }

    /// The refusal of a move to `state`.
    pub fn illegal(&self, state: &EffectState) -> IllegalMove {
        IllegalMove { record_id: self.record_id, from: self.state.name(), to: state.name() }
    }
}
