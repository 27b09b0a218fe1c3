//! Asking further people: after a while of silence, or again because the policies ask for more.
//!
//! Owns when the next group is due, and how an approval goes back to its approvers. Invariant: a group that is to be asked after a silence is
//! asked after one: a silence begins when people are asked, and begins again when they are asked for something else.

use std::collections::BTreeSet;

use placet_types::{
    approval::{Escalation, Requirement, VoteChoice},
    clock::Timestamp,
};

use super::{ApprovalRecord, ApprovalState, VoteError, ballot};

impl ApprovalRecord {
    /// Since when people have been asked for what they are asked for now: from the beginning, since an edit, or since it went back to them.
    #[must_use]
    pub fn asked_since(&self) -> Timestamp {
        let edited_at = self.edits.last().map(|edit| edit.at);
        self.created_at
            .max(edited_at.unwrap_or(self.created_at))
            .max(self.reopened_at.unwrap_or(self.created_at))
    }

    /// When the next escalation is due; nothing when none is left or people are not asked any more.
    #[must_use]
    pub fn escalation_due(&self) -> Option<Timestamp> {
        let next = usize::try_from(self.escalated).ok()?;
        let escalation = self.requirement.escalations.get(next)?;
        let due = self.asked_since().plus_ms(i64::try_from(escalation.after_ms).ok()?);
        (self.state == ApprovalState::Pending && due < self.expires_at).then_some(due)
    }

    /// The record after its next escalation.
    ///
    /// # Errors
    /// [`VoteError::Late`] when people are not asked any more or none is due.
    pub fn escalate(&self, now: Timestamp) -> Result<Self, VoteError> {
        self.open(now)?;
        if self.escalation_due().is_none_or(|due| now < due) {
            return Err(VoteError::Late { state: self.state.name() });
        }
        // Somebody who is asked only now may have agreed before, as a member of another group; and policies that ask for fewer denials may
        // have become active while people had agreed.
        let escalated = self.escalated.saturating_add(1);
        Ok(Self { escalated, ..self.clone() }.counted())
    }

    /// The record back before its approvers, under what the policies ask for now. Agreements at `lapsed` count no more: their givers, or
    /// others, are asked again. They have as long as is given now, and never longer than was given at first.
    #[must_use]
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
        // Counted by their places: those that were made come first, where they are asked for still. All others wait for a silence from now on.
        let (made, later): (Vec<_>, Vec<_>) =
            requirement.escalations.into_iter().partition(|one| self.has_made(one));
        next.escalated = u32::try_from(made.len()).unwrap_or(u32::MAX);
        next.requirement = Requirement { escalations: [made, later].concat(), ..requirement };
        next.reopened = next.reopened.saturating_add(1);
        next.reopened_at = Some(now);
        Some(next)
    }

    /// Whether an escalation that policies ask for now was made: its group was asked already, after no less of a silence, for no fewer of its
    /// people, and stands in for nobody else than it did then.
    fn has_made(&self, escalation: &Escalation) -> bool {
        ballot::made(&self.requirement, self.escalated).any(|made| {
            made.group == escalation.group
                && escalation.stands_in_for.is_subset(&made.stands_in_for)
                && escalation.after_ms <= made.after_ms
                && escalation.people <= made.people
        })
    }
}
