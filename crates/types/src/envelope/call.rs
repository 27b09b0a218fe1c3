//! `contextos.tool_call.v1` (TM-02).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    digest::{Digest, DigestBuilder},
    ids::{CapabilityId, DecisionId, IdempotencyKey, RunId, SessionId, ToolCallId},
    mode::ApprovalMode,
    principal::PrincipalChain,
};

/// The version tag of a call envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum CallVersion {
    /// The only version.
    #[serde(rename = "contextos.tool_call.v1")]
    V1,
}

/// One call in the pipeline (TM-02). It carries references to credentials, never a credential.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCallEnvelope {
    /// `contextos.tool_call.v1`.
    pub envelope_version: CallVersion,
    /// The id of the call.
    pub tool_call_id: ToolCallId,
    /// The run that the call belongs to.
    pub run_id: RunId,
    /// The trace that the call belongs to (W3C trace id, 32 hex digits).
    pub trace_id: String,
    /// The conversation that the call belongs to; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The capability that is called.
    pub capability_id: CapabilityId,
    /// The arguments, validated and with defaults filled in.
    pub args: Map<String, Value>,
    /// The caller, and the user it acts for.
    pub principal_chain: PrincipalChain,
    /// The approval mode that the planner requested.
    pub approval_mode_requested: ApprovalMode,
    /// The approval mode that governs the call.
    pub approval_mode_effective: ApprovalMode,
    /// The strongest approval mode that the contract declares for the capability.
    pub approval_mode_highest: ApprovalMode,
    /// The policy decision that let the call through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_decision_id: Option<DecisionId>,
    /// The evidence that the planner offers: ids of earlier calls of the same run whose results it relies on.
    pub evidence_refs: Vec<String>,
    /// The idempotency key: the effect happens at most once per key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// References to the tokens that came with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_ref: Option<AuthRef>,
    /// Free-form labels from the planner. No decision depends on them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// Opaque handles to the tokens of a call (TM-10). Never the tokens themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthRef {
    /// The handle of the token that carries the user's delegation; absent if the call is not for a user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_user_token_ref: Option<String>,
    /// The handle of the agent's own token.
    pub agent_token_ref: String,
}

impl AuthRef {
    /// One digest for both of them.
    pub fn digest(&self) -> Digest {
        let user = self.delegated_user_token_ref.as_deref();
        DigestBuilder::new("placet.auth_ref.v1")
            .field("agent", &self.agent_token_ref)
            .optional("user", user.map(str::as_bytes))
            .finish()
    }
}
