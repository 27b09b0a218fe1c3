//! A call as data: everything needed to take it up again after its caller, or the process, has gone.
//!
//! Owns the form. Stored as content under its digest, so that a changed byte is noticed before anything runs.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use placet_types::{
    binding::RequestBinding,
    clock::Timestamp,
    digest::Digest,
    envelope::call::ToolCallEnvelope,
    evidence::EvidenceItem,
    ids::{ChannelName, GroupId, PrincipalId, RequestId, StepId},
    principal::TokenAudiences,
    proof::CallerProof,
    run_context::RunContext,
};

/// A token that a call was made with, by its issuer's name for the subject: enough to recognise it as revoked, but unusable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkedToken {
    /// Who issued it.
    pub issuer: String,
    /// Its subject.
    pub subject: String,
    /// When it was issued, where it says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Timestamp>,
}

/// Who edited the arguments that a call would run, if approvers did. It stays with the call for as long as it would run them: after its
/// approval was consumed, and under every later arm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkedEdit {
    /// Everybody who edited them.
    pub by: BTreeSet<PrincipalId>,
    /// Where masked values changed, as JSON Pointers (RFC 6901) into the arguments.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub masked: BTreeSet<String>,
}

/// A call that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ParkedCall {
    /// The call exactly as it will run.
    pub envelope: ToolCallEnvelope,
    /// The run it belongs to.
    pub run: RunContext,
    /// The step of the plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_id: Option<StepId>,
    /// The planner's request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<RequestId>,
    /// The channel over which the caller wants to be notified of the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<ChannelName>,
    /// What an approval binds.
    pub binding: RequestBinding,
    /// Who edited the arguments, if they are not the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub edited: Option<ParkedEdit>,
    /// The evidence that it offers, as resolved when it was first decided.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceItem>,
    /// What duplicates are matched by.
    pub requested_digest: Digest,
    /// Groups of the user acted for, from verified claims.
    pub user_groups: BTreeSet<GroupId>,
    /// How the caller and its user proved who they are.
    pub proof: CallerProof,
    /// When the claims were read.
    pub groups_as_of: Timestamp,
    /// When the call was accepted.
    pub accepted_at: Timestamp,
    /// When the agent's own authority ends, from its token.
    pub authority_until: Timestamp,
    /// The tokens that it was made with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bearers: Vec<ParkedToken>,
    /// The audiences of those tokens, where one is for several services.
    #[serde(default, skip_serializing_if = "TokenAudiences::is_empty")]
    pub audiences: TokenAudiences,
    /// The W3C `traceparent` of the call's span, so that what happens later joins the same trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
}
