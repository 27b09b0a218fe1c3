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

/// An entry of the approval service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DirectiveView {
    /// The entry.
    pub directive_id: DirectiveId,
    /// `proposed`, `active`, `denied`, `ended` or `reviewed`; and, by the clock, `expired`, `used_up` or `scheduled` instead of `active`.
    pub state: String,
    /// Whether it counts now.
    pub in_force: bool,
    /// Whether it waits for a review afterwards.
    pub review_due: bool,
    /// Who made it.
    pub by: PrincipalId,
    /// Why.
    pub reason: String,
    /// When it was made.
    pub created_at: Timestamp,
    /// From when on it counts.
    pub starts_at: Timestamp,
    /// When it ends by itself.
    pub expires_at: Timestamp,
    /// What it arranges.
    pub body: DirectiveBody,
    /// Who has to agree.
    pub requirement: Requirement,
    /// Who decided what.
    pub votes: Vec<Vote>,
    /// How often it was used.
    pub uses: u32,
    /// Who ended or reviewed it, and with what words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<DirectiveNoteView>,
    /// The digest a decision on it must name.
    pub digest: Digest,
    /// What the caller may do with it now.
    #[serde(default)]
    pub standing: EntryStanding,
}

/// What the caller may do with an entry of the approval service now, as policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct EntryStanding {
    /// Agree to it.
    pub may_agree: bool,
    /// Say no to it.
    pub may_refuse: bool,
    /// End it before its time.
    pub may_end: bool,
    /// Record the review of it.
    pub may_review: bool,
}

/// A word about an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DirectiveNoteView {
    /// Who.
    pub by: PrincipalId,
    /// When.
    pub at: Timestamp,
    /// What they said.
    pub text: String,
}

/// What somebody wants to arrange in the approval service.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DirectiveRequest {
    /// What.
    pub arrange: Arrangement,
    /// Why.
    #[schemars(length(min = 1, max = 2000))]
    pub reason: String,
    /// From when on; absent: now. Only a freeze and a delegation begin later.
    #[serde(default)]
    pub starts_at: Option<Timestamp>,
    /// For how long, in milliseconds.
    pub lasts_ms: u64,
}

/// What can be arranged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrangement {
    /// A standing grant for calls like the one of an approval; the one who proposes it agrees to it.
    Grant {
        /// The approval.
        approval_id: ApprovalId,
        /// Which arguments; absent: exactly those of the approval.
        #[serde(default)]
        pattern: Option<ArgumentPattern>,
        /// How often.
        #[schemars(range(min = 1, max = 10_000))]
        uses_max: u32,
        /// The digest of what was shown of the approval.
        digest: Digest,
    },
    /// A break-glass record; somebody else has to agree.
    BreakGlass(BreakGlass),
    /// A freeze window.
    Freeze(Freeze),
    /// A delegation of the caller's own duty.
    Delegation(Delegation),
    /// A revocation of the tokens that a subject had until now.
    Revocation(Revocation),
}

/// What somebody does with an entry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum DirectiveAct {
    /// Agrees to it or not.
    Decide {
        /// Yes or no.
        decision: VoteChoice,
        /// Why.
        #[schemars(length(min = 1, max = 2000))]
        reason: String,
        /// The digest of what was shown.
        digest: Digest,
    },
    /// Ends it before its time.
    End {
        /// Why.
        #[schemars(length(min = 1, max = 2000))]
        reason: String,
    },
    /// Looks at it afterwards.
    Review {
        /// With what result.
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
    /// The entries the caller may see.
    pub entries: Vec<DirectiveView>,
    /// What to send as `after` for the next page, which may be there although this one is not full; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<DirectiveId>,
}
