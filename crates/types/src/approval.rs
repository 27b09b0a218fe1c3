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
    /// How long the approval lives, in milliseconds from when it was asked for.
    pub expires_in_ms: u64,
    /// The policies that hold the call, with their reasons, for the approver to read.
    pub reasons: Vec<HoldReason>,
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
    /// No; one is enough.
    Deny,
}

/// One person's decision on one approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vote {
    /// Who decided.
    pub approver: PrincipalId,
    /// Groups of the tenant the person was in when deciding.
    pub groups: BTreeSet<GroupId>,
    /// When the groups were learnt from a token's claims; redemption wants at most 24 h.
    pub groups_as_of: Timestamp,
    /// Yes or no.
    pub choice: VoteChoice,
    /// Why, in the approver's words.
    pub reason: String,
    /// When.
    pub at: Timestamp,
    /// The digest of what the approver was shown.
    pub shown_digest: Digest,
}
