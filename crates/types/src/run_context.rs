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

/// The run of a call, as its caller describes it. The caller's identity comes from its token, not from here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunRequest {
    /// The id of the run. The same in every retry. Ids that begin with `placet/` are reserved.
    pub run_id: RunId,
    /// The conversation that the run belongs to. Runs of one agent for one user in the same conversation share their taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The strongest mode that any call of the run may have; fixed by the first call. If absent in the first call: the strongest mode that
    /// the agent's classes allow, or `read_only` if no class sets a limit. If absent later: unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub safety_mode: Option<ApprovalMode>,
    /// The ceiling of the run if this call opens it and `safety_mode` is absent. A listener sets it; in no document is it read or written.
    #[serde(skip)]
    pub ceiling_if_new: Option<ApprovalMode>,
    /// The maximum duration of one adapter call if this call opens the run and its budget names none. As for `ceiling_if_new`.
    #[serde(skip)]
    pub tool_latency_ms_if_new: Option<u64>,
    /// The budget of the run; fixed by the first call.
    #[serde(
        default,
        deserialize_with = "json::object",
        skip_serializing_if = "BudgetRequest::is_empty"
    )]
    pub run_budget: BudgetRequest,
    /// What the run has in its context so far, as its caller knows it. Taint is never removed: a later call that leaves it out does not
    /// clear it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
}

impl RunRequest {
    /// The budget of the run if this call opens it.
    pub fn budget_if_new(&self) -> RunBudget {
        let base = RunBudget::default();
        let tool_latency_ms_max = self.tool_latency_ms_if_new.unwrap_or(base.tool_latency_ms_max);
        self.run_budget.over(RunBudget { tool_latency_ms_max, ..base })
    }
}

/// The run budget that a caller requests. Absent fields are unchanged; in the first call they take the defaults: 1,000 calls, 0 cents,
/// 30,000 ms per call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// The maximum number of calls that the run may dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000))]
    pub calls_max: Option<u32>,
    /// The maximum cost of the run, in cents, counted at the cost that the contracts state for each call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_cents_max: Option<u64>,
    /// The maximum duration of one adapter call, in milliseconds (TM-11).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 600_000))]
    pub tool_latency_ms_max: Option<u64>,
}

impl BudgetRequest {
    /// Whether it requests nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is requested, with `base` for what is absent.
    pub fn over(self, base: RunBudget) -> RunBudget {
        RunBudget {
            calls_max: self.calls_max.unwrap_or(base.calls_max),
            cost_cents_max: self.cost_cents_max.unwrap_or(base.cost_cents_max),
            tool_latency_ms_max: self.tool_latency_ms_max.unwrap_or(base.tool_latency_ms_max),
        }
    }
}

/// The budget of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunBudget {
    /// The maximum number of calls that the run may dispatch.
    #[schemars(range(max = 1_000_000))]
    pub calls_max: u32,
    /// The maximum cost of the run, in cents, counted at the cost that the contracts state for each call.
    pub cost_cents_max: u64,
    /// The maximum duration of one adapter call, in milliseconds (TM-11).
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
    /// How the user's authority was proved.
    pub auth_type: AuthType,
    /// The scopes that the user granted.
    pub scopes: Vec<String>,
    /// The user's subject, as the token's issuer names it.
    pub subject: String,
    /// An opaque handle to the user's token. Never the token itself.
    pub token_ref: String,
}

/// The user a run acts for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunUser {
    /// The id of the user.
    pub user_id: PrincipalId,
    /// How the user's authority reached the agent.
    pub delegation: Delegation,
}

/// The agent of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunAgent {
    /// The id of the agent.
    pub agent_id: PrincipalId,
    /// The agent as a URN.
    pub agent_urn: String,
    /// The agent's workload identity, as a SPIFFE id; absent if it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload_identity: Option<String>,
    /// The agent's role: its first class in the directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// An opaque handle to the agent's token. Never the token itself.
    pub token_ref: String,
    /// Whether the agent may act: `active`, `suspended`, or `unlisted` if it is not in the directory.
    pub lifecycle: String,
}

/// The fixed properties of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunContext {
    /// The id of the run.
    pub run_id: RunId,
    /// The trace of the current call (W3C trace id, 32 hex digits).
    pub trace_id: String,
    /// The tenant of the run.
    pub tenant_id: TenantId,
    /// The user that the run acts for; absent if the agent acts on its own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<RunUser>,
    /// The agent of the run.
    pub agent: RunAgent,
    /// The strongest mode that any call of the run may have.
    pub safety_mode: ApprovalMode,
    /// The budget of the run.
    pub run_budget: RunBudget,
    /// What the run had in its context when the call was made, as the caller declared it.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub taint: BTreeSet<Taint>,
    /// What the run remembered of its successful calls when the call was made.
    #[serde(default, skip_serializing_if = "RunHistory::is_empty")]
    pub history: RunHistory,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_listener_sets_counts_where_the_caller_names_none() {
        let latency = |budget: serde_json::Value, if_new: Option<u64>| {
            let run = json!({ "run_id": "r", "run_budget": budget });
            let mut run: RunRequest = serde_json::from_value(run).unwrap();
            run.tool_latency_ms_if_new = if_new;
            run.budget_if_new().tool_latency_ms_max
        };
        assert_eq!(latency(json!({}), None), 30_000);
        assert_eq!(latency(json!({ "calls_max": 5 }), Some(60_000)), 60_000);
        assert_eq!(latency(json!({ "tool_latency_ms_max": 90_000 }), Some(60_000)), 90_000);
    }
}
