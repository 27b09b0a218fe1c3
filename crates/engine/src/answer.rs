//! What a caller can be told about its call at any moment.
//!
//! Owns the variants, each with the envelope that its caller gets (TM-03). The listeners turn them into HTTP or server-sent events.

use std::sync::Arc;

use placet_types::{
    approval::Requirement,
    envelope::result::ToolResultEnvelope,
    error::Refusal,
    ids::{ApprovalId, ToolCallId},
};

/// How a call stands.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is in flight.
    InProgress(Arc<ToolResultEnvelope>),
    /// It waits for approval.
    Held(Box<Held>),
    /// It was executed, now or before.
    Finished(Arc<ToolResultEnvelope>),
    /// It was not executed, or its outcome is unknown.
    Refused(Box<RefusedCall>),
}

impl Answer {
    /// Whether the answer is final.
    pub const fn is_final(&self) -> bool {
        matches!(self, Self::Finished(_) | Self::Refused(_))
    }

    /// The call.
    pub fn call_id(&self) -> &ToolCallId {
        &self.envelope().tool_call_id
    }

    /// What its caller gets (TM-03).
    pub fn envelope(&self) -> &ToolResultEnvelope {
        match self {
            Self::InProgress(result) | Self::Finished(result) => result,
            Self::Held(held) => &held.result,
            Self::Refused(refused) => &refused.result,
        }
    }

    /// Whether somebody who got `before` learns nothing new from this.
    pub fn is_repeated(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::InProgress(_), Self::InProgress(_)) => true,
            (Self::Held(now), Self::Held(before)) => {
                let told = |held: &Held| {
                    (
                        held.call_id.clone(),
                        held.approval_id.clone(),
                        held.result.pending_approval.clone(),
                    )
                };
                told(now) == told(before)
            }
            _ => self == before,
        }
    }
}

/// A call that waits for approval.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// The call.
    pub call_id: ToolCallId,
    /// The approval it waits for.
    pub approval_id: ApprovalId,
    /// Who has to approve, and which policies ask for it.
    pub requirement: Requirement,
    /// What its caller gets.
    pub result: ToolResultEnvelope,
}

/// A call that was refused, or whose outcome is unknown.
#[derive(Debug, Clone, PartialEq)]
pub struct RefusedCall {
    /// Why, with details that only the log may contain.
    pub refusal: Refusal,
    /// What its caller gets.
    pub result: ToolResultEnvelope,
}
