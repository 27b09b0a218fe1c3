//! Refusals as problem documents (RFC 9457): the one place where a refusal becomes an HTTP response.
//!
//! Owns the document's form, the status and the headers that go with a code. Does not write the two messages of a refusal;
//! its invariant is that only the caller's is in the document, while the other goes to the log.

use axum::{
    Json,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use placet_engine::{
    answer::{Answer, RefusedCall},
    attempts::Attempt,
};
use placet_types::{
    envelope::result::ToolResultEnvelope,
    error::{ErrorCode, Execution, Problem, Refusal},
    ids::{DecisionId, ToolCallId},
};

/// The media type of a problem document.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// An error answer: why a request was refused (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ProblemDocument {
    /// The path of the documentation page about the error code.
    #[serde(rename = "type")]
    pub type_path: String,
    /// The error code in plain words.
    pub title: String,
    /// The HTTP status of the answer.
    #[schemars(range(min = 200, max = 599))]
    pub status: u16,
    /// What went wrong with this request.
    pub detail: String,
    /// The error code.
    pub error_code: ErrorCode,
    /// Whether the same request, unchanged, may succeed later.
    pub retryable: bool,
    /// What the caller should do.
    pub remediation: String,
    /// What is known about the effect of the call.
    pub execution: Execution,
    /// The parts of the request to correct.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    /// How long to wait before trying again, in milliseconds; the `Retry-After` header gives the same in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// The id of the call that the error is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<ToolCallId>,
    /// The id of the policy decision behind the error, for the operator to look up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy_decision_id: Option<DecisionId>,
    /// The trace id of the call (W3C trace id, 32 hex digits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
    /// The result envelope of the call (TM-03); absent if the request was refused before it became a call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToolResultEnvelope>,
}

impl ProblemDocument {
    fn of_refusal(refusal: &Refusal, status: StatusCode) -> Self {
        Self {
            type_path: format!("/errors/{}", refusal.code),
            title: refusal.code.as_str().to_lowercase().replace('_', " "),
            status: status.as_u16(),
            detail: refusal.message.clone(),
            error_code: refusal.code,
            retryable: refusal.code.retryable(),
            remediation: refusal.code.remediation().to_owned(),
            execution: refusal.execution,
            problems: refusal.problems.clone(),
            retry_after_ms: refusal.retry_after_ms,
            call_id: None,
            policy_decision_id: None,
            trace_id: None,
            result: None,
        }
    }
}

/// A request that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure(Box<Parts>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct Parts {
    document: ProblemDocument,
    detail: Option<String>,
    scopes_needed: Vec<String>,
    attempt: Option<Attempt>,
}

impl Failure {
    /// A refusal with the status of its code.
    pub fn new(refusal: Refusal) -> Self {
        let status = StatusCode::from_u16(refusal.code.http_status())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        Self::with_status(refusal, status)
    }

    /// A path that does not exist.
    pub fn unknown_route() -> Self {
        let refusal =
            Refusal::new(ErrorCode::NotFound, "there is no such route, see /openapi.json");
        let mut failure = Self::new(refusal);
        failure.0.document.remediation =
            "Check the path, and the address: backups, health and metrics are at `admin_listen`, everything else at `listen`."
                .to_owned();
        failure
    }

    /// A refusal for which HTTP has a more exact status than that of its code.
    pub fn with_status(refusal: Refusal, status: StatusCode) -> Self {
        let document = ProblemDocument::of_refusal(&refusal, status);
        let Refusal { detail, scopes_needed, .. } = refusal;
        Self(Box::new(Parts { document, detail, scopes_needed, attempt: None }))
    }

    /// The same, to be counted for the audit: the router reads it from the response.
    pub(crate) fn counted(mut self, attempt: Option<Attempt>) -> Self {
        self.0.attempt = attempt;
        self
    }

    /// The refusal of one call.
    pub(crate) fn of_call(refused: &RefusedCall) -> Self {
        Self::new(refused.refusal.clone()).about(&refused.result)
    }

    /// Stops waiting for a call, which goes on without the caller: their credential is no longer valid.
    pub(crate) fn of_wait(refusal: Refusal, standing: &Answer) -> Self {
        let execution = match standing {
            Answer::Held(_) => Execution::NotExecuted,
            Answer::InProgress(_) | Answer::Finished(_) | Answer::Refused(_) => Execution::Unknown,
        };
        Self::new(refusal.with_execution(execution)).about(standing.envelope())
    }

    /// Adds the call and its state.
    fn about(mut self, result: &ToolResultEnvelope) -> Self {
        let document = &mut self.0.document;
        document.call_id = Some(result.tool_call_id.clone());
        document.policy_decision_id.clone_from(&result.policy_decision_id);
        document.trace_id = Some(result.trace_id.clone()).filter(|trace_id| !trace_id.is_empty());
        document.result = Some(result.clone());
        self
    }

    /// A call that is still being executed.
    pub(crate) fn in_progress(result: &ToolResultEnvelope) -> Self {
        let mut refusal = Refusal::new(ErrorCode::InProgress, "the call is being executed");
        refusal.retry_after_ms = result.error.as_ref().and_then(|error| error.retry_after_ms);
        Self::new(refusal).about(result)
    }

    /// What every call, approval and record that the caller may not see is answered with, and every malformed id.
    pub fn unknown() -> Self {
        Self::new(Refusal::new(ErrorCode::NotFound, "there is nothing of this id that you may see"))
    }

    /// A request that is malformed for this API.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(Refusal::new(ErrorCode::ValidationError, message))
    }

    /// A request that took too long; its kind determines whether it may have had an effect.
    pub(crate) fn timed_out(message: &str, execution: Execution) -> Self {
        Self::new(Refusal::new(ErrorCode::DeadlineExceeded, message).with_execution(execution))
    }

    /// An internal fault. What the request did until then is unknown here.
    pub fn internal(detail: &str) -> Self {
        Self::new(
            Refusal::new(ErrorCode::Internal, "the service failed to handle the request")
                .with_execution(Execution::Unknown)
                .with_detail(detail),
        )
    }

    /// The document.
    pub fn document(&self) -> &ProblemDocument {
        &self.0.document
    }

    /// Logs the detail, and of the caller's message only its code.
    pub fn log(&self) {
        let Parts { document, detail, .. } = &*self.0;
        // The caller's message may quote the caller's arguments: it is not for the log.
        let detail = detail.as_deref().unwrap_or_default();
        let (code, status) = (document.error_code.as_str(), document.status);
        if status >= 500 {
            tracing::warn!(error_code = code, status, detail, "refused");
        } else {
            tracing::debug!(error_code = code, status, detail, "refused");
        }
    }
}

impl From<Refusal> for Failure {
    /// What a caller may not see gets the same message as a malformed id.
    fn from(refusal: Refusal) -> Self {
        if refusal.code != ErrorCode::NotFound {
            return Self::new(refusal);
        }
        let mut unknown = Self::unknown();
        unknown.0.detail = refusal.detail;
        unknown
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        self.log();
        let document = self.document();
        let status =
            StatusCode::from_u16(document.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(document)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if document.status == StatusCode::UNAUTHORIZED.as_u16() {
            headers.insert(header::WWW_AUTHENTICATE, challenge(document.error_code));
        }
        headers.extend(
            step_up(&self.0.scopes_needed).map(|challenge| (header::WWW_AUTHENTICATE, challenge)),
        );
        if let Some(ms) = document.retry_after_ms {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(ms.div_ceil(1_000).max(1)));
        }
        if let (ErrorCode::InProgress, Some(call_id)) = (document.error_code, &document.call_id) {
            headers.extend(call_location(call_id).map(|location| (header::LOCATION, location)));
        }
        if let Some(attempt) = self.0.attempt {
            response.extensions_mut().insert(attempt);
        }
        response
    }
}

/// What the caller is to bring (RFC 6750, section 3): a new token of the same principal, or any at all.
fn challenge(code: ErrorCode) -> HeaderValue {
    if code == ErrorCode::CredentialExpired {
        HeaderValue::from_static(
            "Bearer error=\"invalid_token\", error_description=\"get a new token for the same principal and repeat the same call\"",
        )
    } else {
        HeaderValue::from_static("Bearer")
    }
}

/// The scopes that a token needs, all of them (RFC 6750, section 3.1). Contracts allow no scope that this header could not hold.
fn step_up(scopes: &[String]) -> Option<HeaderValue> {
    if scopes.is_empty() {
        return None;
    }
    let scopes = scopes.join(" ");
    HeaderValue::from_str(&format!("Bearer error=\"insufficient_scope\", scope=\"{scopes}\"")).ok()
}

/// The URL of a call. An id contains only characters that a header accepts.
pub(crate) fn call_location(call_id: &ToolCallId) -> Option<HeaderValue> {
    HeaderValue::try_from(format!("/v1/calls/{call_id}")).ok()
}

#[cfg(test)]
mod tests;
