//! What the listeners show of policy decisions about calls.
//!
//! Owns the forms. No argument of a call is in them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_ledger::audit::AuditKind;
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    error::ErrorCode,
    ids::{ApprovalId, CapabilityId, DecisionId, PrincipalId, RunId, ToolCallId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};

/// The most decisions on one page, apart from those of the same millisecond.
pub const DECISIONS_PAGE_MAX: usize = 200;

/// What to show of the decisions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionsQuery {
    /// Only about calls of this agent.
    pub agent: Option<PrincipalId>,
    /// Only about this tool, `adapter/operation` or `adapter__operation`.
    pub tool: Option<String>,
    /// Only with this verdict.
    pub verdict: Option<DecisionVerdict>,
    /// Only about calls that ended so.
    pub outcome: Option<CallOutcome>,
    /// Only those in which this policy made the difference.
    pub policy: Option<String>,
    /// Only about calls of runs of this name.
    pub run: Option<RunId>,
    /// From this moment on; absent: a day before the end.
    pub from: Option<Timestamp>,
    /// Before this moment; absent: until now.
    pub to: Option<Timestamp>,
    /// How many at most; 0: 50.
    pub limit: usize,
}

/// What came out of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionVerdict {
    /// The call may be sent.
    Allow,
    /// The call waits for people.
    Hold,
    /// The call does not happen.
    Deny,
}

impl DecisionVerdict {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Hold, Self::Deny];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Hold => "hold",
            Self::Deny => "deny",
        }
    }
}

/// How a call that was sent ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallOutcome {
    /// It was executed.
    Succeeded,
    /// It was executed and failed.
    Failed,
    /// Nobody could say when its attempt ended.
    Unknown,
    /// It was sent, and it is certain that nothing happened.
    NotExecuted,
}

impl CallOutcome {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Succeeded, Self::Failed, Self::Unknown, Self::NotExecuted];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Unknown => "unknown",
            Self::NotExecuted => "not_executed",
        }
    }

    /// What the end of an attempt says in the audit chain; nothing for other events.
    pub(crate) fn of_event(
        kind: AuditKind,
        note: Option<&str>,
        code: Option<ErrorCode>,
    ) -> Option<Self> {
        match (kind, note, code) {
            (AuditKind::Settled, Some("succeeded"), _) | (AuditKind::ReadSettled, _, None) => {
                Some(Self::Succeeded)
            }
            (AuditKind::Settled, Some("failed_final"), _)
            | (AuditKind::ReadSettled, _, Some(ErrorCode::AdapterFailed)) => Some(Self::Failed),
            (AuditKind::Settled, Some("indeterminate"), _) => Some(Self::Unknown),
            (AuditKind::Settled | AuditKind::ReadSettled, ..) => Some(Self::NotExecuted),
            _ => None,
        }
    }
}

/// A page of decisions, the newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionsPage {
    /// The decisions.
    pub decisions: Vec<DecisionView>,
    /// What to send as `to` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_to: Option<Timestamp>,
    /// Whether the search ended because many entries of the audit chain were read. `next_to` goes on.
    pub incomplete: bool,
}

/// A policy decision about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionView {
    /// The decision.
    pub decision_id: DecisionId,
    /// When it was recorded.
    pub at: Timestamp,
    /// What came out of it.
    pub verdict: DecisionVerdict,
    /// What stood against the call, where it was denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<String>,
    /// How the call ended, where it was sent and its end is in the same log before `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<CallOutcome>,
    /// The error code that its caller got.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The call.
    pub call_id: ToolCallId,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The trace it belongs to (W3C trace id, 32 hex digits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The approval it waits for, or was decided under.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The operation.
    pub capability_id: CapabilityId,
    /// Who calls, for whom.
    pub principal_chain: PrincipalChain,
    /// The mode the caller asked for.
    pub mode_requested: ApprovalMode,
    /// The mode the call has.
    pub mode_effective: ApprovalMode,
    /// The policies that made the difference.
    pub policies: Vec<DecisionPolicy>,
    /// Policies that could not be evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// What the engine itself found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The policies, contracts and directory that decided.
    pub bundle_digest: Digest,
    /// The log of the audit chain it stands in.
    pub log: String,
    /// Its place there.
    pub seq: u64,
    /// The hash of the entry, by which it can be proved.
    pub hash: String,
}

/// A policy that made the difference.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionPolicy {
    /// Its `@id`.
    pub policy: String,
    /// Whether it permits; otherwise it forbids, or asks people.
    pub permits: bool,
    /// Whom it was evaluated for: the caller, or the user it acts for.
    pub about: String,
    /// Its `@reason`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
