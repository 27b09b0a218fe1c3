//! Entries of the approval service: standing grants, break-glass records, freezes, delegations, revocations, and what may become of them.
//!
//! Owns the record, its machine and how often a grant may still be used. What an entry arranges is in `placet_types::directive`; who may
//! arrange it is Cedar's answer. Invariant: what an entry arranges never changes; it is in force only when enough distinct people
//! agreed to exactly that, between its start and its end, and until somebody ended it.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::json;

use placet_types::{
    approval::{Requirement, Vote},
    clock::Timestamp,
    digest::Digest,
    directive::{DirectiveBody, DirectiveKind, REVOCATION_MS_MAX},
    ids::{DirectiveId, GroupId, PrincipalId, TenantId},
    json::canonical_digest,
};

use crate::approval::{Ballot, Tally, VOTES_MAX, VoteError, is_zero};

/// The form of [`Directive`] that this build writes.
pub const DIRECTIVE_VERSION: u16 = 1;

/// The end of all times.
const FOR_EVER: Timestamp = Timestamp::from_ms(i64::MAX);

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directive {
    /// The form of this record.
    pub version: u16,
    /// Its identity.
    pub directive_id: DirectiveId,
    /// Whose directives.
    pub tenant: TenantId,
    /// Who made it.
    pub by: PrincipalId,
    /// Why.
    pub reason: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it is in force.
    pub starts_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// What it arranges.
    pub body: DirectiveBody,
    /// Who has to agree before it is in force; no quorum: nobody.
    pub requirement: Requirement,
    /// Counts moves; 1 is the first durable form.
    pub rev: u64,
    /// Who decided what, in order.
    pub votes: Vec<Vote>,
    /// How often it was used: of a grant only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uses: u32,
    /// Of a delegation: which of its groups nothing but its author's token said, and since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Claimed>,
    /// Where it stands.
    pub state: DirectiveState,
}

/// Groups that only somebody's token said they are in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claimed {
    /// Which.
    pub groups: BTreeSet<GroupId>,
    /// When that was learnt.
    pub as_of: Timestamp,
}

/// Where an entry stands. That it has expired is not a state: [`Directive::is_in_force`] says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum DirectiveState {
    /// People are asked to agree.
    Proposed,
    /// In force between its start and its end.
    Active,
    /// Somebody said no.
    Denied,
    /// Somebody ended it before its time.
    Ended {
        /// Who, when and why.
        end: DirectiveNote,
    },
    /// Looked at afterwards, as every break-glass record has to be.
    Reviewed {
        /// Who, when and with what result.
        review: DirectiveNote,
    },
}

/// A word about an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DirectiveNote {
    /// Who.
    pub by: PrincipalId,
    /// When.
    pub at: Timestamp,
    /// What they said.
    pub text: String,
}

impl DirectiveState {
    /// The names of the states.
    pub const NAMES: [&'static str; 5] = ["proposed", "active", "denied", "ended", "reviewed"];

    /// The state's name on the wire and in listings.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Active => "active",
            Self::Denied => "denied",
            Self::Ended { .. } => "ended",
            Self::Reviewed { .. } => "reviewed",
        }
    }

    /// Whether an entry may move from this state to `next`.
    #[must_use]
    pub const fn may_become(&self, next: &Self) -> bool {
        matches!(
            (self, next),
            (Self::Proposed, Self::Proposed | Self::Active | Self::Denied | Self::Ended { .. })
                | (Self::Active, Self::Active | Self::Ended { .. } | Self::Reviewed { .. })
                | (Self::Ended { .. }, Self::Reviewed { .. })
        )
    }
}

/// Why an entry does not move.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DirectiveError {
    /// The vote does not count.
    #[error(transparent)]
    Vote(#[from] VoteError),
    /// It is over.
    #[error("already {0}")]
    Over(&'static str),
    /// Only a break-glass record is reviewed.
    #[error("only a break-glass record is reviewed")]
    NotReviewed,
    /// It is still in force.
    #[error("it is still in force; end it, or wait for its end, before it is reviewed")]
    InForce,
    /// Anyone who took part cannot look at it afterwards.
    #[error("it is reviewed by somebody who neither asked for it nor agreed to it")]
    TookPart,
}

impl Directive {
    /// What it is.
    #[must_use]
    pub const fn kind(&self) -> DirectiveKind {
        self.body.kind()
    }

    /// The digest of all that people agree to.
    #[must_use]
    pub fn terms(&self) -> Digest {
        canonical_digest(&json!({
            "directive_id": self.directive_id,
            "tenant": self.tenant,
            "by": self.by,
            "reason": self.reason,
            "starts_at": self.starts_at,
            "expires_at": self.expires_at,
            "body": self.body,
            "requirement": self.requirement,
        }))
    }

    /// How it begins: in force where nobody has to agree.
    #[must_use]
    pub const fn first_state(requirement: &Requirement) -> DirectiveState {
        if requirement.quorum == 0 { DirectiveState::Active } else { DirectiveState::Proposed }
    }

    /// Whether it counts at `now`.
    #[must_use]
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.state == DirectiveState::Active
            && self.starts_at <= now
            && now < self.expires_at
            && self.uses_left() != Some(0)
    }

    /// Whether anything may still become of it, or it counts for anything: it is asked for, in force, in the future, waits for its review,
    /// or is a revocation that counts for tokens which do not say when they were issued.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.open_until().is_some_and(|until| now < until)
    }

    /// Until when [`Self::is_open`], unless it moves: a review is waited for without end. Nothing: it is over already.
    #[must_use]
    pub fn open_until(&self) -> Option<Timestamp> {
        let reviewed = self.kind() == DirectiveKind::BreakGlass;
        match self.state {
            DirectiveState::Active if reviewed => Some(FOR_EVER),
            DirectiveState::Ended { .. } if reviewed && !self.votes.is_empty() => Some(FOR_EVER),
            DirectiveState::Active if self.uses_left() == Some(0) => None,
            // How old such a token is nobody can tell, and so nor when the last one from before the revocation is over.
            DirectiveState::Active if self.kind() == DirectiveKind::Revocation => {
                let longest = i64::try_from(REVOCATION_MS_MAX).unwrap_or(i64::MAX);
                Some(self.expires_at.max(self.created_at.plus_ms(longest)))
            }
            DirectiveState::Proposed | DirectiveState::Active => Some(self.expires_at),
            DirectiveState::Ended { .. }
            | DirectiveState::Denied
            | DirectiveState::Reviewed { .. } => None,
        }
    }

    /// Whether it says that from its start on less may happen than before it stood like this: a freeze or a revocation that is in
    /// force, a break-glass record that was ended. What was decided before is decided again then. A grant is not among them: each
    /// dispatch that uses one finds out whether it is in force.
    #[must_use]
    pub const fn is_restrictive(&self) -> bool {
        match self.kind() {
            DirectiveKind::Freeze | DirectiveKind::Revocation => {
                matches!(self.state, DirectiveState::Active)
            }
            DirectiveKind::BreakGlass => {
                matches!(self.state, DirectiveState::Ended { .. } | DirectiveState::Reviewed { .. })
            }
            DirectiveKind::Grant | DirectiveKind::Delegation => false,
        }
    }

    /// When the last thing became of it that will, as far as it can be told: it is over, and nobody is to look at it any more.
    #[must_use]
    pub fn over_since(&self) -> Option<Timestamp> {
        match (&self.state, self.open_until()) {
            (_, Some(FOR_EVER)) => None,
            (
                DirectiveState::Ended { end: note } | DirectiveState::Reviewed { review: note },
                None,
            ) => Some(note.at),
            (_, until) => Some(until.unwrap_or(self.expires_at)),
        }
    }

    /// Where it stands among the others, oldest first.
    #[must_use]
    pub const fn place(&self) -> (Timestamp, &DirectiveId) {
        (self.created_at, &self.directive_id)
    }

    /// How often it may still be used; nothing where that is not counted.
    #[must_use]
    pub fn uses_left(&self) -> Option<u32> {
        let DirectiveBody::Grant(grant) = &self.body else { return None };
        Some(grant.uses_max.saturating_sub(self.uses))
    }

    /// The entry with one more vote, moved on if that completes it.
    ///
    /// # Errors
    /// [`VoteError`] when the vote does not count; nothing changes then.
    pub fn cast(&self, vote: Vote, now: Timestamp) -> Result<Self, VoteError> {
        if self.state != DirectiveState::Proposed || now >= self.expires_at {
            let expired = self.state == DirectiveState::Proposed;
            return Err(VoteError::Late {
                state: if expired { "expired" } else { self.state.name() },
            });
        }
        let shown = self.terms();
        if vote.shown_digest != shown {
            return Err(VoteError::Stale);
        }
        // What a tenant sets is its own.
        if vote.tenant.is_some() {
            return Err(VoteError::NotAsked);
        }
        if vote.voices().any(|voice| self.is_of_an_author(voice.person)) {
            return Err(VoteError::Author);
        }
        let mut decided = self.votes.iter().flat_map(Vote::voices);
        if decided.any(|voice| vote.voices().any(|new| new == voice)) {
            return Err(VoteError::Twice);
        }
        if self.votes.len() >= VOTES_MAX {
            return Err(VoteError::Full);
        }
        let mut next = self.next();
        next.votes.push(vote);
        let ballot = Ballot::of(&next.requirement, 0, shown, &next.votes);
        next.state = match ballot.tally() {
            Tally::Open => DirectiveState::Proposed,
            Tally::Satisfied => DirectiveState::Active,
            Tally::Denied => DirectiveState::Denied,
        };
        Ok(next)
    }

    /// Whether somebody wrote what a standing grant covers, in the place of the agent, or has it cover more than the call in hand.
    #[must_use]
    pub fn is_of_an_author(&self, person: &PrincipalId) -> bool {
        matches!(&self.body, DirectiveBody::Grant(grant) if grant.authors.contains(person))
    }

    /// The entry, ended before its time.
    ///
    /// # Errors
    /// [`DirectiveError::Over`] when it is over already.
    pub fn ended(&self, end: DirectiveNote) -> Result<Self, DirectiveError> {
        self.become_state(DirectiveState::Ended { end })
    }

    /// The entry, looked at afterwards.
    ///
    /// # Errors
    /// [`DirectiveError`] when it is no break-glass record, still in force, or reviewed by somebody who took part.
    pub fn reviewed(&self, review: DirectiveNote) -> Result<Self, DirectiveError> {
        if self.kind() != DirectiveKind::BreakGlass {
            return Err(DirectiveError::NotReviewed);
        }
        if self.is_in_force(review.at) {
            return Err(DirectiveError::InForce);
        }
        if self.by == review.by
            || self.votes.iter().flat_map(Vote::voices).any(|voice| *voice.person == review.by)
        {
            return Err(DirectiveError::TookPart);
        }
        self.become_state(DirectiveState::Reviewed { review })
    }

    /// The entry, used once more; nothing when it is not in force.
    #[must_use]
    pub fn spent(&self, now: Timestamp) -> Option<Self> {
        let counts = self.kind() == DirectiveKind::Grant && self.is_in_force(now);
        counts.then(|| Self { uses: self.uses.saturating_add(1), ..self.next() })
    }

    /// Whether the entry may follow `before`: the same terms, the next revision, a legal move, no use taken back. `None`: there was
    /// none.
    #[must_use]
    pub fn may_follow(&self, before: Option<&Self>) -> bool {
        match before {
            None => {
                self.rev == 1
                    && self.uses == 0
                    && self.votes.is_empty()
                    && self.state == Self::first_state(&self.requirement)
            }
            Some(before) => {
                before.rev.checked_add(1) == Some(self.rev)
                    && before.created_at == self.created_at
                    && before.claimed == self.claimed
                    && before.terms() == self.terms()
                    && before.state.may_become(&self.state)
                    && before.uses <= self.uses
                    && self.votes.starts_with(&before.votes)
            }
        }
    }

    fn become_state(&self, state: DirectiveState) -> Result<Self, DirectiveError> {
        if self.state.may_become(&state) {
            return Ok(Self { state, ..self.next() });
        }
        Err(DirectiveError::Over(self.state.name()))
    }

    fn next(&self) -> Self {
        Self { rev: self.rev.saturating_add(1), ..self.clone() }
    }
}
