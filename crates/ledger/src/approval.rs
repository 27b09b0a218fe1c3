//! The approval record and its machine: asked, voted on, satisfied, consumed, or ended.
//!
//! Owns how votes are counted and which moves are legal. Does not decide who may vote: Cedar does, in `policy`. Invariant I10:
//! an approval is consumed by one record only, and never after it expired, was denied or became void.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    ids::{ApprovalId, CapabilityId, GroupId, PrincipalId, RecordId, ToolCallId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};

/// One request for approval and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRecord {
    /// The form of this record.
    pub version: u16,
    /// Its identity.
    pub approval_id: ApprovalId,
    /// The effect that waits.
    pub record_id: RecordId,
    /// The call that waits.
    pub call_id: ToolCallId,
    /// Who calls, for whom.
    pub chain: PrincipalChain,
    /// The operation.
    pub capability: CapabilityId,
    /// The mode the call had when it was held.
    pub mode: ApprovalMode,
    /// What an agreement is for.
    pub request_digest: Digest,
    /// The content digest of the proposal envelope: what approvers are shown.
    pub proposal: Digest,
    /// The bundle that held the call; recorded beside the request digest, not in it.
    pub bundle_digest: Digest,
    /// Who has to agree.
    pub requirement: Requirement,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it ends, whatever its state.
    pub expires_at: Timestamp,
    /// Counts moves; 1 is the first durable form.
    pub rev: u64,
    /// Who decided what, in order.
    pub votes: Vec<Vote>,
    /// Where it stands.
    pub state: ApprovalState,
}

/// The form of [`ApprovalRecord`] that this build writes.
pub const APPROVAL_VERSION: u16 = 1;

/// The most votes an approval takes.
pub const VOTES_MAX: usize = 64;

/// Where an approval stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum ApprovalState {
    /// People are asked.
    Pending,
    /// Enough people agreed; the effect is not dispatched yet.
    Approved,
    /// Somebody said no.
    Denied,
    /// Nobody agreed in time.
    Expired,
    /// What was approved is no longer what would run.
    Void {
        /// Why.
        reason: String,
    },
    /// The effect was dispatched under it.
    Consumed {
        /// The arm of the record it was consumed for.
        arm: u32,
        /// When.
        at: Timestamp,
    },
}

impl ApprovalState {
    /// The names of the states.
    pub const NAMES: [&'static str; 6] =
        ["pending", "approved", "denied", "expired", "void", "consumed"];

    /// The state's name on the wire and in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Void { .. } => "void",
            Self::Consumed { .. } => "consumed",
        }
    }

    /// Whether an approval may move from this state to `next`.
    #[must_use]
    pub fn may_become(&self, next: &Self) -> bool {
        use ApprovalState as S;
        match (self, next) {
            (S::Pending, S::Pending | S::Approved | S::Denied | S::Expired | S::Void { .. })
            | (S::Approved, S::Pending | S::Consumed { .. } | S::Expired | S::Void { .. }) => true,
            // A declared pre-effect failure may be tried again under the same agreement.
            (S::Consumed { arm: a, .. }, S::Consumed { arm: b, .. }) => a == b,
            (S::Consumed { .. }, S::Void { .. } | S::Expired) => true,
            _ => false,
        }
    }
}

/// How the votes stand against the requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tally {
    /// More people have to agree.
    Open,
    /// Enough have agreed.
    Satisfied,
    /// Somebody said no.
    Denied,
}

/// Counts votes against a requirement: distinct people only, each group by itself and the total.
#[must_use]
pub fn tally(requirement: &Requirement, votes: &[Vote]) -> Tally {
    if votes.iter().any(|vote| vote.choice == VoteChoice::Deny) {
        return Tally::Denied;
    }
    let mut people: BTreeMap<&PrincipalId, &BTreeSet<GroupId>> = BTreeMap::new();
    for vote in votes {
        people.insert(&vote.approver, &vote.groups);
    }
    let enough =
        |count: usize, wanted: u32| u32::try_from(count).is_ok_and(|count| count >= wanted);
    let groups_agree = requirement.groups.iter().all(|(group, wanted)| {
        enough(people.values().filter(|groups| groups.contains(group)).count(), *wanted)
    });
    if groups_agree && enough(people.len(), requirement.quorum.max(1)) {
        Tally::Satisfied
    } else {
        Tally::Open
    }
}

/// Why a vote does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VoteError {
    /// The approval is over.
    #[error("the approval is {state} already; this decision changes nothing")]
    Late {
        /// How it ended.
        state: &'static str,
    },
    /// The same person decided before.
    #[error("you have decided on this approval already")]
    Twice,
    /// What the approver was shown is not what would run.
    #[error(
        "the digest is not the one of the current proposal; look at it again and decide on what it shows now"
    )]
    Stale,
    /// Too many votes.
    #[error("the approval takes no more decisions")]
    Full,
}

impl ApprovalRecord {
    /// The record with one more vote, moved on if that completes it.
    ///
    /// # Errors
    /// [`VoteError`] when the vote does not count; nothing changes then.
    pub fn cast(&self, vote: Vote, now: Timestamp) -> Result<Self, VoteError> {
        if self.state != ApprovalState::Pending || now >= self.expires_at {
            let state =
                if self.state == ApprovalState::Pending { "expired" } else { self.state.name() };
            return Err(VoteError::Late { state });
        }
        if vote.shown_digest != self.proposal {
            return Err(VoteError::Stale);
        }
        if self.votes.iter().any(|earlier| earlier.approver == vote.approver) {
            return Err(VoteError::Twice);
        }
        if self.votes.len() >= VOTES_MAX {
            return Err(VoteError::Full);
        }
        let mut next = self.clone();
        next.votes.push(vote);
        next.rev = next.rev.saturating_add(1);
        next.state = match tally(&next.requirement, &next.votes) {
            Tally::Open => ApprovalState::Pending,
            Tally::Satisfied => ApprovalState::Approved,
            Tally::Denied => ApprovalState::Denied,
        };
        Ok(next)
    }

    /// The record moved to `state`; `None` when the machine does not know the move.
    #[must_use]
    pub fn moved(&self, state: ApprovalState) -> Option<Self> {
        self.state.may_become(&state).then(|| Self {
            state,
            rev: self.rev.saturating_add(1),
            ..self.clone()
        })
    }
}

#[cfg(test)]
mod tests;
