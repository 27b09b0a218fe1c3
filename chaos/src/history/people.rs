//! What people do: approvers and operators.

use serde::{Deserialize, Serialize};

/// A decision was sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteSent {
    /// Numbers the decisions of a run.
    pub vote: u64,
    /// On which approval.
    pub approval_id: String,
    /// In which tenant.
    pub tenant: String,
    /// Who decides.
    pub approver: String,
    /// Whether it approves.
    pub approve: bool,
}

/// The answer to a decision. A decision without an answer may or may not have counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteReply {
    /// Which decision.
    pub vote: u64,
    /// The HTTP status.
    pub status: u16,
    /// The state of the approval in the answer.
    pub state: Option<String>,
}

/// A standing grant was requested, from what was shown of an approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantAsked {
    /// The approval.
    pub approval_id: String,
    /// In which tenant.
    pub tenant: String,
    /// Who requests it, and thereby agrees to it.
    pub approver: String,
    /// How often it is to be used at most.
    pub uses_max: u32,
}

/// An operator acted on a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorAct {
    /// The record.
    pub record_id: String,
    /// In which tenant.
    pub tenant: String,
    /// Who.
    pub operator: String,
    /// What.
    pub act: Act,
    /// The HTTP status of the answer; `None`: it was lost, and may or may not have counted.
    pub status: Option<u16>,
}

/// What an operator does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Act {
    /// States that the effect happened.
    Happened,
    /// States that it did not, and will not.
    DidNotHappen,
    /// Requests that it be sent again, or agrees to that.
    Rearm,
}
