//! What a caller can be told about its call at any moment.
//!
//! Owns the forms. The doors turn them into HTTP, server-sent events or MCP results.

use schemars::JsonSchema;
use serde::Serialize;

use placet_types::{
    approval::Requirement,
    clock::Timestamp,
    envelope::result::ToolResultEnvelope,
    error::Refusal,
    ids::{ApprovalId, DecisionId, ToolCallId},
};

/// How a call stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is being worked on.
    InProgress(ToolCallId),
    /// It waits for people.
    Held(Box<Held>),
    /// It was executed, now or before.
    Finished(Box<ToolResultEnvelope>),
    /// It was not executed, or nobody can say.
    Refused(Box<RefusedCall>),
}

impl Answer {
    /// Whether nothing more will be said.
    #[must_use]
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Refused(_))
    }

    /// The call.
    #[must_use]
    pub fn call_id(&self) -> &ToolCallId {
        match self {
            Self::InProgress(call_id) => call_id,
            Self::Held(held) => &held.call_id,
            Self::Finished(result) => &result.tool_call_id,
            Self::Refused(refused) => &refused.call_id,
        }
    }
}

/// A call that waits for people.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
pub struct Held {
    /// The call.
    pub call_id: ToolCallId,
    /// The approval it waits for.
    pub approval_id: ApprovalId,
    /// `pending`, or `approved` when people agreed and it has not run yet.
    pub state: String,
    /// Whether it waits for its caller to repeat it with a new token, and for nothing else.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaits_credential: bool,
    /// Who has to agree.
    pub requirement: Requirement,
    /// When it ends unanswered.
    pub expires_at: Timestamp,
    /// The trace it belongs to.
    pub trace_id: String,
}

/// A call that was refused, or whose outcome is unknown.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedCall {
    /// The call.
    pub call_id: ToolCallId,
    /// Why.
    pub refusal: Refusal,
    /// The decision behind it, for the operator to look up.
    pub decision_id: Option<DecisionId>,
    /// The trace it belongs to.
    pub trace_id: Option<String>,
}
