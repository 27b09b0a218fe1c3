//! What people do: approvers and operators.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteSent {
    /// Numbers the decisions of a run.
    pub(crate) vote: u64,
    pub(crate) approval_id: String,
    pub(crate) tenant: String,
    pub(crate) approver: String,
    pub(crate) approve: bool,
}

/// The answer to a decision. A decision without an answer may or may not have counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct VoteReply {
    pub(crate) vote: u64,
    pub(crate) status: u16,
    /// The state of the approval in the answer.
    pub(crate) state: Option<String>,
}

/// A standing grant was requested, from what was shown of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct GrantAsked {
    pub(crate) approval_id: String,
    pub(crate) tenant: String,
    /// Who requests it, and thereby agrees to it.
    pub(crate) approver: String,
    pub(crate) uses_max: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OperatorAct {
    pub(crate) record_id: String,
    pub(crate) tenant: String,
    pub(crate) operator: String,
    pub(crate) act: Act,
    /// The HTTP status of the answer; `None`: it was lost, and may or may not have counted.
    pub(crate) status: Option<u16>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Act {
    /// States that the effect happened.
    Happened,
    /// States that it did not, and will not.
    DidNotHappen,
    /// Requests that it be sent again, or agrees to that.
    Rearm,
}
