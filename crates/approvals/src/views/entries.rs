//! What people arrange besides single decisions: standing grants, break-glass records, freezes, delegations, revocations.
//!
//! Owns the forms of entries, of requests for them, and of pages.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_types::{
    approval::{Requirement, Vote, VoteChoice},
    clock::Timestamp,
    digest::Digest,
    directive::{
        BreakGlass, Delegation, DirectiveBody, DirectiveKind, Freeze, Revocation,
        pattern::ArgumentPattern,
    },
    ids::{ApprovalId, DirectiveId, PrincipalId},
};

/// An entry of the approval service: a standing grant, break-glass record, freeze, delegation or revocation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectiveView {
    /// The id of the entry.
    pub directive_id: DirectiveId,
    /// `proposed`, `active`, `denied`, `ended` or `reviewed`; instead of `active`, it can be `scheduled`, `expired` or `used_up`.
    pub state: String,
    /// Whether the entry is in force now.
    pub in_force: bool,
    /// Whether the entry is a break-glass record that has ended and has not been reviewed.
    pub review_due: bool,
    /// The person who made the entry.
    pub by: PrincipalId,
    /// The reason for the entry.
    pub reason: String,
    /// When the entry was made.
    pub created_at: Timestamp,
    /// When the entry takes effect.
    pub starts_at: Timestamp,
    /// When the entry expires.
    pub expires_at: Timestamp,
    /// The content of the entry.
    pub body: DirectiveBody,
    /// Who has to agree to the entry.
    pub requirement: Requirement,
    /// The decisions so far.
    pub votes: Vec<Vote>,
    /// How many times the entry was used.
    pub uses: u32,
    /// Who ended the entry before its time, and their note; absent if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<DirectiveNoteView>,
    /// Who reviewed the entry, and their note; absent if nobody did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<DirectiveNoteView>,
    /// The digest that a decision on the entry must name.
    pub digest: Digest,
    /// What the caller may do with the entry now.
    #[serde(default)]
    pub standing: EntryStanding,
}

/// What policy allows the caller to do with an entry now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EntryStanding {
    /// Whether the caller may agree to it.
    pub may_agree: bool,
    /// Whether the caller may deny it.
    pub may_refuse: bool,
    /// Whether the caller may end it early.
    pub may_end: bool,
    /// Whether the caller may record its review.
    pub may_review: bool,
}

/// A note on an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectiveNoteView {
    /// The author of the note.
    pub by: PrincipalId,
    /// When the note was written.
    pub at: Timestamp,
    /// The text of the note.
    pub text: String,
}

/// A request to make an entry in the approval service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectiveRequest {
    /// The entry to make.
    pub arrange: Arrangement,
    /// The reason for the entry.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// When the entry takes effect; absent: now. Only freezes and delegations can start later.
    #[serde(default)]
    pub starts_at: Option<Timestamp>,
    /// How long the entry lasts, in milliseconds.
    pub lasts_ms: u64,
}

/// The content of a new entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrangement {
    /// A standing grant for calls like that of an approval. Proposing it counts as agreeing to it.
    Grant {
        /// The approval that the grant is proposed from.
        approval_id: ApprovalId,
        /// The arguments that the grant covers; absent: exactly those of the approval.
        #[serde(default)]
        pattern: Option<ArgumentPattern>,
        /// How many times the grant may be used.
        #[schemars(range(min = 1, max = 10_000))]
        uses_max: u32,
        /// The digest of what the approver was shown of the approval.
        digest: Digest,
    },
    /// A break-glass record. Another person has to agree.
    BreakGlass(BreakGlass),
    /// A freeze or a lockdown.
    Freeze(Freeze),
    /// A delegation of the caller's own duty as approver.
    Delegation(Delegation),
    /// A revocation of the tokens that a subject has been issued so far.
    Revocation(Revocation),
}

/// An action on an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum DirectiveAct {
    /// Agrees to the entry or denies it.
    Decide {
        /// The decision.
        decision: VoteChoice,
        /// The reason for the decision.
        #[schemars(length(min = 1, max = 2000))]
        reason: String,
        /// The digest of what the approver was shown.
        digest: Digest,
    },
    /// Ends the entry early.
    End {
        /// The reason for ending it.
        #[schemars(length(min = 1, max = 2000))]
        reason: String,
    },
    /// Records the review of an entry.
    Review {
        /// The result of the review.
        #[schemars(length(min = 1, max = 2000))]
        note: String,
    },
}

/// Which entries of the approval service to list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntriesQuery {
    /// Only those of this kind.
    pub kind: Option<DirectiveKind>,
    /// Only those of which something may still become.
    pub only_open: bool,
    /// The newest ones first, instead of the oldest.
    pub newest_first: bool,
    /// Only those that were made before this time.
    pub made_before: Option<Timestamp>,
    /// After this entry, in the order asked for.
    pub after: Option<DirectiveId>,
    /// At most this many.
    pub limit: usize,
}

/// A page of entries of the approval service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "DirectiveList")]
pub struct EntriesPage {
    /// The entries that the caller may see.
    pub entries: Vec<DirectiveView>,
    /// The value of `after` for the next page; absent on the last page. A page that is not full can have a next page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<DirectiveId>,
}
