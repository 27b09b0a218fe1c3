//! The JSON documents that exist only on the HTTP API, mostly lists.
//!
//! Owns their forms, so that clients can read them. The engine makes and filters the content of the lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_approvals::views::{ApprovalView, TimelineStep};
use placet_engine::{
    engine::evidence::CheckpointView,
    views::{RecordView, ToolView},
};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, RecordId, ToolCallId},
};

use crate::problem::Failure;

/// What `GET /v1/tools` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolList {
    /// The tools that some circumstance could let the caller use.
    pub tools: Vec<ToolView>,
}

/// What `GET /v1/approvals` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    /// The approvals the caller may see, oldest first.
    pub approvals: Vec<ApprovalView>,
    /// What to send as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<ApprovalId>,
}

/// What `GET /v1/calls/{id}/timeline` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Timeline {
    /// The call.
    pub call_id: ToolCallId,
    /// What happened, in order.
    pub steps: Vec<TimelineStep>,
    /// Whether some steps are missing: their entries were archived, and the archive is not at hand.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub incomplete: bool,
}

/// What `GET /v1/ledger` answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordList {
    /// The effect records.
    pub records: Vec<RecordView>,
    /// What to send as `after` for the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<RecordId>,
}

/// What `GET /v1/audit/checkpoints` answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointList {
    /// One checkpoint for each log.
    pub checkpoints: Vec<CheckpointView>,
}

/// What `POST /backups` of the admin listener answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupDocument {
    /// The folder that was made, within the one of the configuration. It is a data folder.
    pub folder: String,
    /// The last entry that it holds.
    pub seq: u64,
    /// The chain hash of that entry.
    pub head: String,
    /// How many bytes were copied.
    pub bytes: u64,
}

/// What `GET /.well-known/oauth-protected-resource` answers (RFC 9728): where to get tokens for this service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtectedResourceDocument {
    /// Our name in tokens (`aud`).
    pub resource: String,
    /// `Placet`.
    pub resource_name: String,
    /// Who issues such tokens.
    pub authorization_servers: Vec<String>,
    /// How they are sent: `header`.
    pub bearer_methods_supported: Vec<String>,
    /// Whether a token that is bound to a certificate can be used here.
    pub tls_client_certificate_bound_access_tokens: bool,
}

/// What `GET /errors/{code}` answers: what an error code means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDocument {
    /// The code.
    pub error_code: ErrorCode,
    /// The code in words.
    pub title: String,
    /// The HTTP status that goes with it.
    pub status: u16,
    /// Whether the same request may succeed later without being changed.
    pub retryable: bool,
    /// What to do.
    pub remediation: String,
}

impl ErrorDocument {
    /// What a code means.
    ///
    /// # Errors
    /// [`Failure`] when there is no such code.
    pub fn of(code: &str) -> Result<Self, Failure> {
        let code = ErrorCode::ALL.iter().find(|known| known.as_str() == code);
        let code = code.ok_or_else(|| {
            Failure::new(Refusal::new(ErrorCode::NotFound, "there is no such error code"))
        })?;
        Ok(Self {
            error_code: *code,
            title: code.as_str().to_lowercase().replace('_', " "),
            status: code.http_status(),
            retryable: code.retryable(),
            remediation: code.remediation().to_owned(),
        })
    }
}

/// What `GET /` answers: what this is and where to look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AboutDocument {
    /// `placet`.
    pub service: String,
    /// Its version.
    pub version: String,
    /// In a sentence.
    pub about: String,
    /// Where the API is described.
    pub openapi: String,
    /// Where calls are sent.
    pub calls: String,
    /// Where the caller's tools are listed.
    pub tools: String,
}

impl AboutDocument {
    /// The same for everybody.
    #[must_use]
    pub fn of_this_service() -> Self {
        Self {
            service: "placet".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            about: "A policy-governed execution engine for the tool calls of AI agents.".to_owned(),
            openapi: "/openapi.json".to_owned(),
            calls: "/v1/calls".to_owned(),
            tools: "/v1/tools".to_owned(),
        }
    }
}
