//! The JSON documents that exist only on the HTTP API, mostly lists.
//!
//! Owns their forms, so that clients can read them. The engine makes and filters the content of the lists.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_approvals::views::ApprovalView;
use placet_engine::{
    engine::evidence::CheckpointView,
    views::{RecordView, ToolView},
};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::{ApprovalId, RecordPlace},
};

use crate::problem::Failure;

/// The answer of `GET /v1/tools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolList {
    /// The tools that the caller may be able to use: policies permit each of them in at least some circumstances.
    pub tools: Vec<ToolView>,
}

/// The answer of `GET /v1/approvals`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalList {
    /// The approvals that the caller may see, oldest first.
    pub approvals: Vec<ApprovalView>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<ApprovalId>,
}

/// The answer of `GET /v1/ledger`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordList {
    /// The effect records.
    pub records: Vec<RecordView>,
    /// The value of `after` for the next page; absent on the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_after: Option<RecordPlace>,
}

/// The answer of `GET /v1/audit/checkpoints`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointList {
    /// One checkpoint per log.
    pub checkpoints: Vec<CheckpointView>,
}

/// The answer of `POST /backups` on the admin listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackupDocument {
    /// The folder of the backup, inside the configured backup folder. It is a complete data folder.
    pub folder: String,
    /// The sequence number of the last journal entry in the backup.
    pub seq: u64,
    /// The chain hash of that entry.
    pub head: String,
    /// The number of bytes copied.
    pub bytes: u64,
}

/// The answer of `GET /.well-known/oauth-protected-resource` (RFC 9728): where to get tokens for this service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProtectedResourceDocument {
    /// The name of this service in tokens (`aud`).
    pub resource: String,
    /// The display name of this service: `Placet`.
    pub resource_name: String,
    /// The issuers of tokens for this service.
    pub authorization_servers: Vec<String>,
    /// How tokens are sent: `header`.
    pub bearer_methods_supported: Vec<String>,
    /// Whether certificate-bound tokens are accepted (RFC 8705).
    pub tls_client_certificate_bound_access_tokens: bool,
}

/// The answer of `GET /errors/{code}`: what an error code means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDocument {
    /// The error code.
    pub error_code: ErrorCode,
    /// The error code in plain words.
    pub title: String,
    /// The HTTP status of answers with this code.
    pub status: u16,
    /// Whether the same request, unchanged, may succeed later.
    pub retryable: bool,
    /// What the caller should do.
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

/// The answer of `GET /`: the service, its version and the main paths.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AboutDocument {
    /// The name of the service: `placet`.
    pub service: String,
    /// The version of the service.
    pub version: String,
    /// What the service is, in one sentence.
    pub about: String,
    /// The path of the OpenAPI document.
    pub openapi: String,
    /// The path to which calls are sent.
    pub calls: String,
    /// The path that lists the caller's tools.
    pub tools: String,
}

impl AboutDocument {
    /// The same for everybody.
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
