//! Asking again: escalation after a silence, and going back to approvers because policies ask for something else.
//!
//! Owns when the next group is due, and how an approval goes back to its approvers. Invariant: an escalation follows a silence, which
//! begins when people are asked, and begins again when they are asked for something else.

use std::collections::BTreeSet;

use placet_types::{
    approval::{Requirement, VoteChoice},
    clock::Timestamp,
};

use super::{ApprovalRecord, ApprovalState, VoteError};

impl ApprovalRecord {
    /// Since when people have been asked for the current request: since the beginning, the last edit, or the last time it went back to
    /// them.
    pub fn asked_since(&self) -> Timestamp {
        let edited_at = self.edits.last().map(|edit| edit.at);
        self.created_at
            .max(edited_at.unwrap_or(self.created_at))
            .max(self.reopened_at.unwrap_or(self.created_at))
    }

    /// When the next escalation is due; `None` when none is left or it is not pending.
    pub fn escalation_due(&self) -> Option<Timestamp> {
        let next = usize::try_from(self.escalated).ok()?;
        let escalation = self.requirement.escalations.get(next)?;
        let due = self.asked_since().plus_ms(i64::try_from(escalation.after_ms).ok()?);
        (self.state == ApprovalState::Pending && due < self.expires_at).then_some(due)
    }

    /// The record after its next escalation.
    ///
    /// # Errors
    /// [`VoteError::Late`] when it is not pending or none is due.
    pub fn escalate(&self, now: Timestamp) -> Result<Self, VoteError> {
        self.open(now)?;
        if self.escalation_due().is_none_or(|due| now < due) {
            return Err(VoteError::Late { state: self.state.name() });
        }
        // Members of the new group may have agreed already, as members of another one; and policies with a lower threshold for denial may
        // have become active while it was approved.
        let escalated = self.escalated.saturating_add(1);
        Ok(Self { escalated, ..self.clone() }.counted())
    }

    /// The record back with its approvers, under the current requirement. Agreements at `lapsed` no longer count: those people, or others,
    /// are asked again. The current lifetime applies, but never longer than the original one.
    pub fn back(
        &self,
        requirement: Requirement,
        lapsed: &BTreeSet<usize>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut next = self.moved(ApprovalState::Pending)?;
        let agreed = |place: &usize| {
            self.votes.get(*place).is_some_and(|vote| vote.choice == VoteChoice::Approve)
        };
        next.lapsed.extend(lapsed.iter().copied().filter(agreed));
        let given_ms = i64::try_from(requirement.expires_in_ms).unwrap_or(i64::MAX);
        next.expires_at = self.expires_at.min(now.plus_ms(given_ms));
        next.ask(requirement);
        next.reopened = next.reopened.saturating_add(1);
        next.reopened_at = Some(now);
        Some(next)
    }

    /// Replaces the requirement. `escalated` counts positions: escalations already made come first, if they are still asked for.
    pub(super) fn ask(&mut self, requirement: Requirement) {
        (self.requirement, self.escalated) =
            requirement.instead_of(&self.requirement, self.escalated);
    }
}
