//! What the listeners show of policy decisions about calls.
//!
//! Owns the forms. No argument of a call is in them.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_ledger::audit::AuditKind;
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    error::ErrorCode,
    ids::{ApprovalId, CapabilityId, DecisionId, DirectiveId, PrincipalId, RunId, ToolCallId},
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
    /// Only those that relied on this standing grant or break-glass record.
    pub directive: Option<DirectiveId>,
    /// From this moment on; absent: a day before the end, or the start of `directive`.
    pub from: Option<Timestamp>,
    /// Before this moment; absent: until now.
    pub to: Option<Timestamp>,
    /// How many at most; 0: 50.
    pub limit: usize,
}

placet_types::named_enum! {
    /// The result of a policy decision.
    #[derive(JsonSchema)]
    pub enum DecisionVerdict {
        /// The call may be sent.
        Allow = "allow",
        /// The call waits for approval.
        Hold = "hold",
        /// The call is refused.
        Deny = "deny",
    }
}

placet_types::named_enum! {
    /// How a call ended that was sent.
    #[derive(JsonSchema)]
    pub enum CallOutcome {
        /// The call was executed and succeeded.
        Succeeded = "succeeded",
        /// The call was executed and failed.
        Failed = "failed",
        /// It was not known, when the attempt ended, whether the effect happened.
        Unknown = "unknown",
        /// The call was sent, but it is known that nothing happened.
        NotExecuted = "not_executed",
    }
}

impl CallOutcome {
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

/// A page of policy decisions, newest first.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionsPage {
    /// The decisions.
    pub decisions: Vec<DecisionView>,
    /// The value of `to` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_to: Option<Timestamp>,
    /// Whether the search ended early because many audit entries had been read. Continue with `next_to`.
    pub incomplete: bool,
}

/// A policy decision about a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionView {
    /// The id of the decision.
    pub decision_id: DecisionId,
    /// When the decision was recorded.
    pub at: Timestamp,
    /// The result of the decision.
    pub verdict: DecisionVerdict,
    /// Why the call was denied; absent if it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub denial: Option<String>,
    /// How the call ended. Present if it was sent and its end is in the same log before `to`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<CallOutcome>,
    /// The error code that the caller got; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// The id of the call.
    pub call_id: ToolCallId,
    /// The run that the call belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// The trace that the call belongs to (W3C trace id, 32 hex digits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The approval that the call waits for or was decided under; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval_id: Option<ApprovalId>,
    /// The standing grant and the break-glass records that it relied on.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub directives: BTreeSet<DirectiveId>,
    /// The capability that is called.
    pub capability_id: CapabilityId,
    /// The caller, and the user it acts for.
    pub principal_chain: PrincipalChain,
    /// The approval mode that the caller requested.
    pub mode_requested: ApprovalMode,
    /// The approval mode that governs the call.
    pub mode_effective: ApprovalMode,
    /// The approval mode that the contract states: the strongest that the call can have.
    pub mode_highest: ApprovalMode,
    /// The policies that lowered the mode from the contract's; absent if none did.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lowered_by: Vec<DecisionPolicy>,
    /// The policies that determined the result.
    pub policies: Vec<DecisionPolicy>,
    /// The policies that could not be evaluated.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// Findings of the engine itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The digest of the policy bundle that decided.
    pub bundle_digest: Digest,
    /// The log that holds the audit entry.
    pub log: String,
    /// The sequence number of the entry in its log.
    pub seq: u64,
    /// The hash of the entry, by which its inclusion can be proved.
    pub hash: String,
}

/// A policy that determined the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DecisionPolicy {
    /// The id of the policy (`@id`).
    pub policy: String,
    /// Whether the policy permits the call. If not, it forbids it or requires approval.
    pub permits: bool,
    /// Whom the policy was evaluated for: the caller, or the user it acts for.
    pub about: String,
    /// The reason that the policy states (`@reason`); absent if it states none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
