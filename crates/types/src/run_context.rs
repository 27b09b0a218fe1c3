//! The Run Context (TM-04): what one agent run is, on whose behalf, under which ceiling and budget.
//!
//! Owns the wire form. Identity in it comes from verified tokens: the engine fills `user` and `agent`, a caller sends
//! only [`RunRequest`].

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ids::{PrincipalId, RunId, SessionId, TenantId},
    json,
    mode::ApprovalMode,
    proof::AuthType,
    run_history::RunHistory,
    taint::Taint,
};

/// What a caller says about its run. Says nothing about who it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The run; stable over retries. Not `placet/…`, which is reserved.
    pub run_id: RunId,
    /// The conversation it belongs to. Runs of one agent for one user in the same conversation share their taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The strongest mode any call of the run may have; fixed by the first call. Absent: as before, and in the first call the strongest that
    /// the agent's classes allow, or `read_only` where no class sets a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_mode: Option<ApprovalMode>,
    /// The ceiling of the run if this call opens it and `safety_mode` is absent. A listener sets it; in no document is it read or written.
    #[serde(skip)]
    pub ceiling_if_new: Option<ApprovalMode>,
    /// What the run may use up; fixed by the first call.
    #[serde(
        default,
        deserialize_with = "json::object",
        skip_serializing_if = "BudgetRequest::is_empty"
    )]
    pub run_budget: BudgetRequest,
    /// What the run has in its context by now, as far as its caller knows. It sticks to the run; what is left out later stays.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
}

/// What a caller says about its run's budget. What is absent is as before, and in the first call as in [`RunBudget::default`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// The most calls that may be dispatched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000))]
    pub calls_max: Option<u32>,
    /// The most that may be spent, in cents, as the contracts state each call's cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_cents_max: Option<u64>,
    /// How long one call of an adapter may take, in milliseconds (TM-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600_000))]
    pub tool_latency_ms_max: Option<u64>,
}

impl BudgetRequest {
    /// Whether it requests nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is requested, with `base` for what is absent.
    #[must_use]
    pub fn over(self, base: RunBudget) -> RunBudget {
        RunBudget {
            calls_max: self.calls_max.unwrap_or(base.calls_max),
            cost_cents_max: self.cost_cents_max.unwrap_or(base.cost_cents_max),
            tool_latency_ms_max: self.tool_latency_ms_max.unwrap_or(base.tool_latency_ms_max),
        }
    }
}

/// What one run may use up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunBudget {
    /// The most calls that may be dispatched.
    #[schemars(range(max = 1_000_000))]
    pub calls_max: u32,
    /// The most that may be spent, in cents, as the contracts state each call's cost.
    pub cost_cents_max: u64,
    /// How long one call of an adapter may take, in milliseconds (TM-11).
    #[schemars(range(min = 1, max = 600_000))]
    pub tool_latency_ms_max: u64,
}

impl Default for RunBudget {
    fn default() -> Self {
        Self { calls_max: 1_000, cost_cents_max: 0, tool_latency_ms_max: 30_000 }
    }
}

/// How a user's authority reached the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delegation {
    /// What the user's authority was proved with.
    pub auth_type: AuthType,
    /// Scopes the user granted.
    pub scopes: Vec<String>,
    /// The subject as its issuer names it.
    pub subject: String,
    /// An opaque handle to the token; never the token.
    pub token_ref: String,
}

/// The user a run acts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunUser {
    /// The user.
    pub user_id: PrincipalId,
    /// How the authority was delegated.
    pub delegation: Delegation,
}

/// The agent that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAgent {
    /// The agent.
    pub agent_id: PrincipalId,
    /// The agent as a URN.
    pub agent_urn: String,
    /// Its workload identity as a SPIFFE id, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<String>,
    /// What it does, by its first class in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// An opaque handle to its token; never the token.
    pub token_ref: String,
    /// Whether it may act: `active`, `suspended`, or `unlisted` where the directory does not know it.
    pub lifecycle: String,
}

/// Everything that is fixed for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunContext {
    /// The run.
    pub run_id: RunId,
    /// The trace of the call that is being made (W3C trace id, 32 hex digits).
    pub trace_id: String,
    /// The tenant.
    pub tenant_id: TenantId,
    /// The user it acts for; absent when the agent acts on its own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RunUser>,
    /// The agent.
    pub agent: RunAgent,
    /// The run's ceiling.
    pub safety_mode: ApprovalMode,
    /// What the run may use up.
    pub run_budget: RunBudget,
    /// What the caller said that the run has in its context, when it made the call.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// What the run had done in batches, when it made the call.
    #[serde(default, skip_serializing_if = "RunHistory::is_empty")]
    pub history: RunHistory,
}
