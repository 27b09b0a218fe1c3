//! What an approval asks for and what people answered: shared by policy, ledger and the doors.
//!
//! Owns the wire forms of requirement and vote. Does not decide who may vote (policy) nor keep them (ledger).

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    clock::Timestamp,
    digest::Digest,
    ids::{GroupId, PrincipalId},
};

/// Who has to agree, merged from every policy that holds the call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Requirement {
    /// Groups each of which must have at least this many distinct people agree.
    pub groups: BTreeMap<GroupId, u32>,
    /// How many distinct people must agree in all.
    pub quorum: u32,
    /// How many distinct people saying no end the approval. Counted whatever they were shown.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub deny_threshold: u32,
    /// Whom to ask besides after a while of silence, in the order of [`Escalation::after_ms`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub escalations: Vec<Escalation>,
    /// How long ago, in milliseconds, an approver may have proved who they are (`auth_time`, OpenID Connect Core section 2);
    /// absent: it does not matter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fresh_auth_ms: Option<u64>,
    /// Whether people decide on each single call, so that no standing grant ever satisfies it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub once_only: bool,
    /// How long the approval lives, in milliseconds from when it was asked for.
    pub expires_in_ms: u64,
    /// The policies that hold the call, with their reasons, for the approver to read.
    pub reasons: Vec<HoldReason>,
}

impl Requirement {
    /// A requirement of groups and a quorum alone.
    #[must_use]
    pub const fn new(groups: BTreeMap<GroupId, u32>, quorum: u32, expires_in_ms: u64) -> Self {
        Self {
            groups,
            quorum,
            deny_threshold: 1,
            escalations: Vec::new(),
            fresh_auth_ms: None,
            once_only: false,
            expires_in_ms,
            reasons: Vec::new(),
        }
    }
}

/// Another group that is asked when the first ones stay silent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Escalation {
    /// After how long without an end, in milliseconds from when the approval was asked for.
    pub after_ms: u64,
    /// Who is asked then.
    pub group: GroupId,
    /// How many distinct people of it are enough.
    pub people: u32,
    /// The groups they stand in for: each of these counts as agreed once `people` of `group` agreed.
    pub stands_in_for: BTreeSet<GroupId>,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_one(number: &u32) -> bool {
    *number == 1
}

/// One policy that holds a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HoldReason {
    /// The policy's id.
    pub policy: String,
    /// Its `@reason`.
    pub reason: String,
}

/// What somebody decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VoteChoice {
    /// Yes.
    Approve,
    /// No; [`Requirement::deny_threshold`] of them end the approval.
    Deny,
}

/// One person's decision on one approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vote {
    /// Who decided.
    pub approver: PrincipalId,
    /// The colleague who handed their duty over to the approver for a time; the groups are the colleague's then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stands_for: Option<PrincipalId>,
    /// Groups of the tenant the person was in when deciding.
    pub groups: BTreeSet<GroupId>,
    /// When the groups were learnt from a token's claims; redemption wants at most 24 h.
    pub groups_as_of: Timestamp,
    /// When the approver last proved who they are, where the token says so (`auth_time`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authenticated_at: Option<Timestamp>,
    /// Yes or no.
    pub choice: VoteChoice,
    /// Why, in the approver's words.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// The digest of what the approver was shown.
    pub shown_digest: Digest,
}
