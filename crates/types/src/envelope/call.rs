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
    /// The only version there is.
    #[serde(rename = "contextos.tool_call.v1")]
    V1,
}

/// One call as it goes through the pipeline (TM-02). Carries references to credentials, never a credential.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolCallEnvelope {
    /// `contextos.tool_call.v1`.
    pub envelope_version: CallVersion,
    /// The call.
    pub tool_call_id: ToolCallId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The trace it belongs to (W3C trace id, 32 hex digits).
    pub trace_id: String,
    /// The conversation it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// The operation.
    pub capability_id: CapabilityId,
    /// The arguments, validated and with defaults applied.
    pub args: Map<String, Value>,
    /// Who calls, for whom.
    pub principal_chain: PrincipalChain,
    /// The mode the planner asked for.
    pub approval_mode_requested: ApprovalMode,
    /// The mode it got.
    pub approval_mode_effective: ApprovalMode,
    /// The strongest mode the contract declares.
    pub approval_mode_highest: ApprovalMode,
    /// The decision that let it through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_decision_id: Option<DecisionId>,
    /// The evidence that the planner offers: ids of earlier calls of the same run, whose results it relies on.
    pub evidence_refs: Vec<String>,
    /// The key under which the effect happens at most once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idempotency_key: Option<IdempotencyKey>,
    /// References to the tokens that ride with the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_ref: Option<AuthRef>,
    /// Free labels of the planner; never decided upon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
}

/// Opaque handles to the tokens of a call (TM-10); never the tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthRef {
    /// The user's delegation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delegated_user_token_ref: Option<String>,
    /// The agent's own token.
    pub agent_token_ref: String,
}

impl AuthRef {
    /// One digest for both of them.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let user = self.delegated_user_token_ref.as_deref();
        DigestBuilder::new("placet.auth_ref.v1")
            .field("agent", &self.agent_token_ref)
            .optional("user", user.map(str::as_bytes))
            .finish()
    }
}
