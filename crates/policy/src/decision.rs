//! The record of how a verdict came about.
//!
//! Owns [`Decision`]: it names policies and is for the audit, the evidence and operators; a caller gets the code of its
//! [`DenialKind`] and nothing else.

use placet_types::{
    digest::Digest,
    error::ErrorCode,
    ids::{CapabilityId, DecisionId},
    mode::ApprovalMode,
};
use serde::{Deserialize, Serialize};

/// How a verdict came about. For the audit, the evidence and operators; never for the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// Its id: the same in envelope, span and audit.
    pub id: DecisionId,
    /// The bundle that decided.
    pub bundle_digest: Digest,
    /// The epoch of the snapshot that decided.
    pub epoch: u64,
    /// The operation.
    pub capability: CapabilityId,
    /// The digest of the request that was decided.
    pub request_digest: Digest,
    /// The mode the caller asked for.
    pub mode_requested: ApprovalMode,
    /// The mode the call has.
    pub mode_effective: ApprovalMode,
    /// The strongest mode that its contract allows for.
    pub mode_highest: ApprovalMode,
    /// The policies that lowered the mode from the contract's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lowered_by: Vec<Determining>,
    /// The policies that made the difference.
    pub determining: Vec<Determining>,
    /// Policies that could not be evaluated, and facts that could not be passed to them.
    pub errors: Vec<String>,
    /// What the engine itself found, in words: the floor under every bundle.
    pub notes: Vec<String>,
    /// The outcome.
    pub outcome: Outcome,
}

impl Decision {
    /// Whether the caller asked for another mode than the call has.
    pub fn is_misclassified(&self) -> bool {
        self.mode_requested != self.mode_effective
    }
}

/// The outcome of a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The call may be dispatched.
    Allow,
    /// The call waits for people.
    Hold,
    /// The call does not happen, for this reason.
    Deny(DenialKind),
}

/// A policy that made the difference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Determining {
    /// Its `@id`.
    pub policy: String,
    /// Whether it permits or forbids.
    pub effect: PolicyEffect,
    /// Whose evaluation it was.
    pub link: Link,
    /// Its `@reason`, if it has one.
    pub reason: Option<String>,
    /// Whether a refusal tells the caller the reason (`@tell("agent")`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tells_agent: bool,
    /// What a refusal tells the caller to do instead (`@feedback`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feedback: Option<String>,
}

placet_types::named_enum! {
    /// What a policy does.
    pub enum PolicyEffect {
        /// Permits.
        Permit = "permit",
        /// Forbids.
        Forbid = "forbid",
    }
}

/// A link of the principal chain; each is evaluated on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// The calling workload.
    Actor,
    /// The user it calls for.
    User,
}

impl Link {
    /// How the link is named to readers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Actor => "the caller",
            Self::User => "the user it acts for",
        }
    }
}

placet_types::named_enum! {
    /// Why a call was denied.
    pub enum DenialKind {
        /// The engine is in lockdown.
        Lockdown = "lockdown",
        /// The run's budget is used up; with more of it the call would not be denied.
        Budget = "budget",
        /// The call is stronger than the run's ceiling.
        Ceiling = "ceiling",
        /// The call is stronger than the mode it asked for (TM-15).
        ModeUpgraded = "mode_upgraded",
        /// A policy forbids it, or none permits it.
        Policy = "policy",
        /// A person said no.
        ApprovalRefused = "approval_refused",
        /// The approval has expired.
        ApprovalExpired = "approval_expired",
        /// What was approved is not what would run.
        ApprovalChanged = "approval_changed",
        /// A policy asks a group that does not exist: its tenant is not configured, or has no such group.
        NobodyToAsk = "nobody_to_ask",
        /// A policy could not be evaluated (trap T1).
        Error = "error",
    }
}

impl DenialKind {
    /// The code that the caller gets.
    pub const fn code(self) -> ErrorCode {
        match self {
            Self::Lockdown | Self::Ceiling | Self::Policy | Self::NobodyToAsk => {
                ErrorCode::PolicyDenied
            }
            Self::Budget => ErrorCode::BudgetExhausted,
            Self::ModeUpgraded => ErrorCode::ModeUpgraded,
            Self::ApprovalRefused => ErrorCode::ApprovalDenied,
            Self::ApprovalExpired => ErrorCode::ApprovalExpired,
            Self::ApprovalChanged => ErrorCode::ApprovalVoid,
            Self::Error => ErrorCode::PolicyError,
        }
    }
}
