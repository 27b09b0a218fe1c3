//! The approval record and its machine: asked, voted on, satisfied, consumed, or ended.
//!
//! Owns which moves are legal. Does not count votes: [`ballot`] does. Does not decide who may vote: Cedar does, in `policy`. Invariant
//! I10: an approval is consumed by one record only, and never after it expired, was denied or became void.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use placet_types::{
    approval::{ApproverGroup, Requirement, Voice, Vote, VoteChoice, ballot},
    clock::Timestamp,
    digest::{Digest, DigestBuilder},
    ids::{ApprovalId, CapabilityId, ChannelName, PrincipalId, RecordId, TenantId, ToolCallId},
    json::canonical_digest,
    mode::ApprovalMode,
    narrowing::Change,
    principal::PrincipalChain,
    taint::Taint,
};

pub use placet_types::approval::ballot::{Ballot, Tally};

mod asking;

/// One request for approval and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalRecord {
    /// The version of this record.
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
    /// The request that approvers agree to.
    pub request_digest: Digest,
    /// The content digest of the proposal envelope: what approvers are shown.
    pub proposal: Digest,
    /// The bundle that held the call; recorded alongside the request digest, not in it.
    pub bundle_digest: Digest,
    /// Who has to agree.
    pub requirement: Requirement,
    /// When it was asked.
    pub created_at: Timestamp,
    /// When it expires, whatever its state.
    pub expires_at: Timestamp,
    /// Counts moves; the first durable version is 1.
    pub rev: u64,
    /// Who decided what, in order; includes votes on proposals that an edit replaced.
    pub votes: Vec<Vote>,
    /// How many of the requirement's escalations were made, in order.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub escalated: u32,
    /// Agreements that no longer count, by their positions in `votes`; those who gave them may agree again.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub lapsed: BTreeSet<usize>,
    /// How often it went back to its approvers, because policies ask for something else or its run's context has grown.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reopened: u32,
    /// When it last did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reopened_at: Option<Timestamp>,
    /// How the arguments were edited, in order; the last edit is what people decide on now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub edits: Vec<Edit>,
    /// The taint of the run's context that approvers are told of: that of the proposal, and what the run had in addition when it last went
    /// back to them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// The external tenants that are asked, now or later. An edit does not change them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub external_tenants: BTreeSet<TenantId>,
    /// The channel over which the caller wants to be notified of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<ChannelName>,
    /// Its state.
    pub state: ApprovalState,
}

/// An edit by an approver: from then on everyone decides on the new arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Edit {
    /// Who.
    pub by: PrincipalId,
    /// Why.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// The content digest of the proposal that was shown before.
    pub from_proposal: Digest,
    /// The request that was decided on before.
    pub from_request: Digest,
    /// The content digest of the call as it was parked before.
    pub from_parked: Digest,
    /// The authors of arguments that are not narrower, who may not decide any more: the editor, and the one they stood for. Empty where
    /// they are narrower; the editor's agreement is then among the votes.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub authors: BTreeSet<PrincipalId>,
    /// Where masked values changed, as JSON Pointers.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub masked: BTreeSet<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
pub(crate) const fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// The version of [`ApprovalRecord`] that this build writes.
pub const APPROVAL_VERSION: u16 = 1;

/// The most votes an approval takes.
pub const VOTES_MAX: usize = 64;
/// The most edits an approval takes.
pub const EDITS_MAX: usize = 8;

/// The state of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case", deny_unknown_fields)]
pub enum ApprovalState {
    /// People are asked.
    Pending,
    /// Enough people agreed; the effect is not dispatched yet.
    Approved,
    /// It was denied.
    Denied,
    /// Nobody agreed in time.
    Expired,
    /// The agent that asked, or a person who may stop it, withdrew the call before it was sent.
    Withdrawn {
        /// Who.
        by: PrincipalId,
        /// Why, in their words.
        reason: String,
        /// When.
        at: Timestamp,
    },
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
    pub const NAMES: [&'static str; 7] =
        ["pending", "approved", "denied", "expired", "void", "consumed", "withdrawn"];

    /// The state's name on the wire and in listings.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Withdrawn { .. } => "withdrawn",
            Self::Void { .. } => "void",
            Self::Consumed { .. } => "consumed",
        }
    }

    /// The state in a sentence for people.
    pub const fn in_words(&self) -> &'static str {
        match self {
            Self::Consumed { .. } => "used for its call",
            Self::Pending
            | Self::Approved
            | Self::Denied
            | Self::Expired
            | Self::Withdrawn { .. }
            | Self::Void { .. } => self.name(),
        }
    }

    /// Whether its call may still be sent under it: it is pending or approved.
    pub const fn is_open(&self) -> bool {
        matches!(self, Self::Pending | Self::Approved)
    }

    /// Whether an approval may move from this state to `next`.
    pub fn may_become(&self, next: &Self) -> bool {
        use ApprovalState as S;
        match (self, next) {
            (
                S::Pending,
                S::Pending
                | S::Approved
                | S::Denied
                | S::Expired
                | S::Withdrawn { .. }
                | S::Void { .. },
            )
            | (
                S::Approved,
                S::Pending | S::Consumed { .. } | S::Expired | S::Withdrawn { .. } | S::Void { .. },
            ) => true,
            // A declared failure before the effect may be tried again under the same approval.
            (S::Consumed { arm: a, .. }, S::Consumed { arm: b, .. }) => a == b,
            (S::Consumed { .. }, S::Void { .. } | S::Expired) => true,
            _ => false,
        }
    }
}

/// Why a vote does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VoteError {
    /// The approval has ended.
    #[error("the approval is {state} already; this decision changes nothing")]
    Late {
        /// How it ended.
        state: &'static str,
    },
    /// The same person decided before.
    #[error("you have decided on this approval already")]
    Twice,
    /// What the approver was shown is no longer current.
    #[error(
        "the digest is not the one of the current proposal; look at it again and decide on what it shows now"
    )]
    Stale,
    /// Too many votes, or edits.
    #[error("the approval takes no more decisions")]
    Full,
    /// The approver's tenant is not asked.
    #[error("your tenant is not asked about this approval")]
    NotAsked,
    /// The approver, or the colleague they decide for, wrote the arguments instead of the agent.
    #[error("the author of these arguments cannot decide on them; somebody else has to agree")]
    Author,
    /// The edit would ask other external tenants.
    #[error("these arguments ask another tenant; deny the call, and let its agent ask again")]
    Elsewhere,
    /// The edit changes nothing.
    #[error("these are the arguments that people decide on already; approve or deny them")]
    Unchanged,
}

impl ApprovalRecord {
    /// Whether a dispatch has used it.
    pub const fn is_consumed(&self) -> bool {
        matches!(self.state, ApprovalState::Consumed { .. })
    }

    /// Whether it has ended for good, so that it may be dropped after its retention.
    pub const fn may_be_forgotten(&self) -> bool {
        !self.state.is_open()
    }

    /// The votes as they count now.
    pub fn ballot(&self) -> Ballot<'_> {
        Ballot {
            requirement: &self.requirement,
            escalated: self.escalated,
            shown: self.proposal,
            votes: &self.votes,
            lapsed: &self.lapsed,
        }
    }

    /// The votes that have not lapsed, in order.
    pub fn standing_votes(&self) -> impl Iterator<Item = &Vote> {
        let votes = self.votes.iter().enumerate();
        votes.filter(|(place, _)| !self.lapsed.contains(place)).map(|(_, vote)| vote)
    }

    /// The votes on the current proposal that have not lapsed.
    pub fn shown_votes(&self) -> impl Iterator<Item = &Vote> {
        self.standing_votes().filter(|vote| vote.shown_digest == self.proposal)
    }

    /// Whether a decision counts now: a denial always does, an agreement if it is to the current proposal and has not lapsed.
    fn is_counted(&self, place: usize, vote: &Vote) -> bool {
        vote.choice == VoteChoice::Deny
            || (vote.shown_digest == self.proposal && !self.lapsed.contains(&place))
    }

    /// The decisions that count now, in order.
    pub fn counted_votes(&self) -> impl Iterator<Item = &Vote> {
        let votes = self.votes.iter().enumerate();
        votes.filter(|(place, vote)| self.is_counted(*place, vote)).map(|(_, vote)| vote)
    }

    /// The agreements that count no more, because they lapsed or were to other arguments, by their positions in `votes`.
    pub fn uncounted(&self) -> BTreeSet<usize> {
        let votes = self.votes.iter().enumerate();
        votes
            .filter(|(place, vote)| !self.is_counted(*place, vote))
            .map(|(place, _)| place)
            .collect()
    }

    /// Everyone who has decided on the current proposal.
    pub fn deciders(&self) -> impl Iterator<Item = Voice<'_>> {
        self.shown_votes().flat_map(Vote::voices)
    }

    /// The authors of arguments that were not narrower. They may not decide, whatever was edited later.
    pub fn authors(&self) -> impl Iterator<Item = &PrincipalId> {
        self.edits.iter().flat_map(|edit| &edit.authors)
    }

    /// Whether the voter, or whom they stand for, is one of [`Self::authors`]. Only people of the call's tenant edit.
    fn is_of_an_author(&self, vote: &Vote) -> bool {
        vote.voices().any(|voice| {
            voice.tenant.is_none() && self.authors().any(|author| author == voice.person)
        })
    }

    /// The digest of what people of the call's own tenant are shown, which their decisions name: the proposal; after it went back to them,
    /// together with the current requirement and the run's taint. The decision is on the proposal all the same.
    pub fn shown(&self) -> Digest {
        if self.reopened == 0 {
            return self.proposal;
        }
        let requirement = canonical_digest(&serde_json::json!(self.requirement));
        let shown = DigestBuilder::new("placet.reopened.v1")
            .field("proposal", self.proposal.as_bytes())
            .field("requirement", requirement.as_bytes());
        if self.taint.is_empty() {
            return shown.finish();
        }
        let taint = canonical_digest(&serde_json::json!(self.taint));
        shown.field("taint", taint.as_bytes()).finish()
    }

    /// Whether the run's context contains something that those who agreed could not know of: they agreed to something else.
    pub fn is_stale(&self, taint: &BTreeSet<Taint>) -> bool {
        !taint.is_subset(&self.taint)
    }

    /// The positions of all agreements.
    pub fn agreements(&self) -> BTreeSet<usize> {
        let votes = self.votes.iter().enumerate();
        let agreed = votes.filter(|(_, vote)| vote.choice == VoteChoice::Approve);
        agreed.map(|(place, _)| place).collect()
    }

    /// The groups that are asked now: those of the requirement, and those it was escalated to.
    pub fn asked(&self) -> BTreeSet<&ApproverGroup> {
        ballot::asked(&self.requirement, self.escalated).collect()
    }

    /// The record with one more vote, moved on if that completes it.
    ///
    /// # Errors
    /// [`VoteError`] when the vote does not count; nothing changes then.
    pub fn cast(&self, vote: Vote, now: Timestamp) -> Result<Self, VoteError> {
        self.open(now)?;
        if vote.shown_digest != self.proposal {
            return Err(VoteError::Stale);
        }
        if !self.ballot().has_a_say(&vote) {
            return Err(VoteError::NotAsked);
        }
        if self.is_of_an_author(&vote) {
            return Err(VoteError::Author);
        }
        let decided = self.standing_votes();
        let decided = decided.filter(|earlier| earlier.shown_digest == self.proposal);
        if decided.flat_map(Vote::voices).any(|voice| vote.voices().any(|new| new == voice)) {
            return Err(VoteError::Twice);
        }
        if self.votes.len() >= VOTES_MAX {
            return Err(VoteError::Full);
        }
        let mut next = self.clone();
        next.votes.push(vote);
        Ok(next.counted())
    }

    /// The next record, with its votes counted.
    fn counted(mut self) -> Self {
        self.rev = self.rev.saturating_add(1);
        self.state = match self.ballot().tally() {
            Tally::Open => ApprovalState::Pending,
            Tally::Satisfied => ApprovalState::Approved,
            Tally::Denied => ApprovalState::Denied,
        };
        self
    }

    /// The record with other arguments: another request with another proposal, on which everyone has to decide again. An editor who
    /// narrowed them agrees by that; otherwise `vote` only says who the editor was, and does not count. No earlier requirement is dropped.
    ///
    /// # Errors
    /// [`VoteError`] when the approval has ended or the edit changes nothing; nothing changes then.
    pub fn edited(&self, edit: Edited, vote: Vote, now: Timestamp) -> Result<Self, VoteError> {
        self.open(now)?;
        if vote.choice != VoteChoice::Approve || vote.shown_digest != edit.proposal {
            return Err(VoteError::Stale);
        }
        // External approvers may not edit, and an edit may not bring in other external tenants.
        if vote.tenant.is_some() || edit.requirement.external_tenants() != self.external_tenants {
            return Err(VoteError::Elsewhere);
        }
        if edit.request_digest == self.request_digest || edit.proposal == self.proposal {
            return Err(VoteError::Unchanged);
        }
        if self.edits.len() >= EDITS_MAX {
            return Err(VoteError::Full);
        }
        if self.is_of_an_author(&vote) {
            return Err(VoteError::Author);
        }
        let voices = vote.voices().map(|voice| voice.person.clone());
        let authors = voices.filter(|_| !edit.change.narrower).collect();
        let mut next = self.clone();
        next.edits.push(Edit {
            by: vote.approver.clone(),
            reason: vote.reason.clone(),
            at: now,
            from_proposal: self.proposal,
            from_request: self.request_digest,
            from_parked: edit.from_parked,
            authors,
            masked: edit.change.masked,
        });
        next.proposal = edit.proposal;
        next.request_digest = edit.request_digest;
        next.ask(self.requirement.joined(edit.requirement));
        if edit.change.narrower { next.cast(vote, now) } else { Ok(next.counted()) }
    }

    fn open(&self, now: Timestamp) -> Result<(), VoteError> {
        if self.state == ApprovalState::Pending && now < self.expires_at {
            return Ok(());
        }
        let expired = self.state == ApprovalState::Pending;
        Err(VoteError::Late { state: if expired { "expired" } else { self.state.in_words() } })
    }

    /// Whether the record may follow `before`: the same call, the next revision, a legal move, no vote removed and none by an author of the
    /// arguments, no time added, and another request or proposal only by an edit that names the earlier ones. `None`: there was none.
    pub fn may_follow(&self, before: Option<&Self>) -> bool {
        let Some(before) = before else {
            return self.rev == 1 && self.state == ApprovalState::Pending && self.votes.is_empty();
        };
        let edited = match self.edits.strip_prefix(before.edits.as_slice()) {
            Some([]) => {
                self.proposal == before.proposal && self.request_digest == before.request_digest
            }
            Some([edit]) => {
                edit.from_proposal == before.proposal && edit.from_request == before.request_digest
            }
            Some(_) | None => false,
        };
        let went_back = self.reopened > before.reopened;
        // When it goes back to approvers, the current lifetime applies if it is shorter.
        let asked_again = went_back || self.edits.len() > before.edits.len();
        let as_long = self.expires_at == before.expires_at
            || (asked_again && self.expires_at < before.expires_at);
        before.rev.checked_add(1) == Some(self.rev)
            && as_long
            && before.record_id == self.record_id
            && before.call_id == self.call_id
            && before.chain == self.chain
            && before.capability == self.capability
            && before.external_tenants == self.external_tenants
            && before.created_at == self.created_at
            && before.state.may_become(&self.state)
            && self.votes.starts_with(&before.votes)
            && !self.votes.iter().skip(before.votes.len()).any(|vote| self.is_of_an_author(vote))
            && self.lapsed.is_superset(&before.lapsed)
            && self.reopened >= before.reopened
            && (went_back || self.reopened_at == before.reopened_at)
            && self.taint.is_superset(&before.taint)
            && (asked_again || self.taint == before.taint)
            && edited
    }

    /// The record moved to `state`; `None` when the move is illegal.
    pub fn moved(&self, state: ApprovalState) -> Option<Self> {
        self.state.may_become(&state).then(|| Self {
            state,
            rev: self.rev.saturating_add(1),
            ..self.clone()
        })
    }
}

/// What an edit replaces in the approval.
#[derive(Debug, Clone)]
pub struct Edited {
    /// The request as it would run now.
    pub request_digest: Digest,
    /// The content digest of the proposal that shows it.
    pub proposal: Digest,
    /// The content digest of the call as it was parked before.
    pub from_parked: Digest,
    /// The requirement that policy has for it.
    pub requirement: Requirement,
    /// How the arguments changed.
    pub change: Change,
}

#[cfg(test)]
mod tests;
