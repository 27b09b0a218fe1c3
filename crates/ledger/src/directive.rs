//! Entries of the approval service: standing grants, break-glass records, freezes, delegations, revocations, and their lifecycle.
//!
//! Owns the record, its machine and how often a grant may still be used. What an entry arranges is in `placet_types::directive`; Cedar
//! decides who may arrange it. Invariant: what an entry arranges never changes; it is in force only when enough distinct people agreed to
//! exactly that, between its start and its end, and until it is ended.

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

/// The version of [`Directive`] that this build writes.
pub const DIRECTIVE_VERSION: u16 = 1;

/// For entries without an end.
const FOR_EVER: Timestamp = Timestamp::from_ms(i64::MAX);

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Directive {
    /// The version of this record.
    pub version: u16,
    /// Its identity.
    pub directive_id: DirectiveId,
    /// The tenant.
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
    /// Who has to agree before it is in force; quorum 0: nobody.
    pub requirement: Requirement,
    /// Counts moves; the first durable version is 1.
    pub rev: u64,
    /// Who decided what, in order.
    pub votes: Vec<Vote>,
    /// How often it was used, for a grant.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub uses: u32,
    /// For a delegation: the groups that only its author's token confirmed, and as of when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed: Option<Claimed>,
    /// Its state.
    pub state: DirectiveState,
}

/// Groups that only a person's token confirmed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claimed {
    /// Which.
    pub groups: BTreeSet<GroupId>,
    /// When that was learnt.
    pub as_of: Timestamp,
}

/// The state of an entry. Expiry is not a state: [`Directive::is_in_force`] considers it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum DirectiveState {
    /// People are asked to agree.
    Proposed,
    /// In force between its start and its end.
    Active,
    /// It was denied.
    Denied,
    /// Somebody ended it before its time.
    Ended {
        /// Who, when and why.
        end: DirectiveNote,
    },
    /// Reviewed afterwards, as every break-glass record has to be.
    Reviewed {
        /// Who, when and with what result.
        review: DirectiveNote,
        /// Who had ended it before its time, when and why; absent if nobody did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        end: Option<DirectiveNote>,
    },
}

/// A remark on an entry.
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
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::Active => "active",
            Self::Denied => "denied",
            Self::Ended { .. } => "ended",
            Self::Reviewed { .. } => "reviewed",
        }
    }

    /// Who ended it before its time.
    pub const fn end(&self) -> Option<&DirectiveNote> {
        match self {
            Self::Ended { end } | Self::Reviewed { end: Some(end), .. } => Some(end),
            Self::Proposed | Self::Active | Self::Denied | Self::Reviewed { end: None, .. } => None,
        }
    }

    /// Who reviewed it.
    pub const fn review(&self) -> Option<&DirectiveNote> {
        let Self::Reviewed { review, .. } = self else { return None };
        Some(review)
    }

    /// Whether an entry may move from this state to `next`.
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
    /// It has ended.
    #[error("already {0}")]
    Over(&'static str),
    /// Only a break-glass record can be reviewed.
    #[error("only a break-glass record is reviewed")]
    NotReviewed,
    /// It is still in force.
    #[error("it is still in force; end it, or wait for its end, before it is reviewed")]
    InForce,
    /// Those who took part cannot review it.
    #[error("it is reviewed by somebody who neither asked for it nor agreed to it")]
    TookPart,
}

impl Directive {
    /// Its kind.
    pub const fn kind(&self) -> DirectiveKind {
        self.body.kind()
    }

    /// The digest of everything that people agree to.
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

    /// Its first state: active if nobody has to agree.
    pub const fn first_state(requirement: &Requirement) -> DirectiveState {
        if requirement.quorum == 0 { DirectiveState::Active } else { DirectiveState::Proposed }
    }

    /// Whether it is in force at `now`.
    pub fn is_in_force(&self, now: Timestamp) -> bool {
        self.state == DirectiveState::Active
            && self.starts_at <= now
            && now < self.expires_at
            && self.uses_left() != Some(0)
    }

    /// Whether it may still change or have an effect: it is proposed, in force, in the future, waits for its review, or is a revocation
    /// that applies to tokens without an issue time.
    pub fn is_open(&self, now: Timestamp) -> bool {
        self.open_until().is_some_and(|until| now < until)
    }

    /// Until when [`Self::is_open`], unless it moves; without end while it waits for its review. `None`: it has ended.
    pub fn open_until(&self) -> Option<Timestamp> {
        let reviewed = self.kind() == DirectiveKind::BreakGlass;
        match self.state {
            DirectiveState::Active if reviewed => Some(FOR_EVER),
            DirectiveState::Ended { .. } if reviewed && !self.votes.is_empty() => Some(FOR_EVER),
            DirectiveState::Active if self.uses_left() == Some(0) => None,
            // The age of such a token is unknown, so the revocation applies for the longest possible time.
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

    /// Whether it allows less from its start on than its earlier state did: a freeze or a revocation that is active, a break-glass record
    /// that was ended. Earlier decisions are then made again. Grants are not restrictive: each dispatch that uses one checks whether it is
    /// in force.
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

    /// When it ended for good, as far as that can be told: nothing more will happen to it, and no review is due.
    pub fn over_since(&self) -> Option<Timestamp> {
        match (&self.state, self.open_until()) {
            (_, Some(FOR_EVER)) => None,
            (
                DirectiveState::Ended { end: note } | DirectiveState::Reviewed { review: note, .. },
                None,
            ) => Some(note.at),
            (_, until) => Some(until.unwrap_or(self.expires_at)),
        }
    }

    /// Its position among the entries, oldest first.
    pub const fn place(&self) -> (Timestamp, &DirectiveId) {
        (self.created_at, &self.directive_id)
    }

    /// How often it may still be used; `None` where uses are not counted.
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
        // A tenant's arrangements are its own.
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

    /// Whether the person is an author of the standing grant: wrote its arguments instead of the agent, or had it cover more than the call.
    pub fn is_of_an_author(&self, person: &PrincipalId) -> bool {
        matches!(&self.body, DirectiveBody::Grant(grant) if grant.authors.contains(person))
    }

    /// The entry, ended before its time.
    ///
    /// # Errors
    /// [`DirectiveError::Over`] when it has already ended.
    pub fn ended(&self, end: DirectiveNote) -> Result<Self, DirectiveError> {
        self.become_state(DirectiveState::Ended { end })
    }

    /// The entry, reviewed.
    ///
    /// # Errors
    /// [`DirectiveError`] when it is not a break-glass record, is still in force, or the reviewer took part.
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
        self.become_state(DirectiveState::Reviewed { review, end: self.state.end().cloned() })
    }

    /// The entry, used once more; `None` when it is not in force.
    pub fn spent(&self, now: Timestamp) -> Option<Self> {
        let counts = self.kind() == DirectiveKind::Grant && self.is_in_force(now);
        counts.then(|| Self { uses: self.uses.saturating_add(1), ..self.next() })
    }

    /// Whether the entry may follow `before`: the same terms, the next revision, a legal move, no use taken back. `None`: there was none.
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
