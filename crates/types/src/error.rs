//! Error codes and refusals: one code per cause, the same on every API.
//!
//! Owns the list of codes, what each says about the effect, and [`Refusal`] with its two messages: one for the caller,
//! one for the log. Does not know the bodies of HTTP or MCP responses; only the status number that belongs to a code.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::json::place;

/// What is known about the effect of a call that did not succeed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Execution {
    /// The adapter was not called, or declares that nothing happened.
    NotExecuted,
    /// The adapter was called and reported a failure.
    ExecutedAndFailed,
    /// It is not known whether the effect happened.
    Unknown,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $variant:ident = $text:literal, $status:literal, $retryable:literal, $hint:literal;)*) => {
        crate::named_enum! {
            /// Why a call was refused or failed. Each has a page in `docs/src/errors/`.
            #[derive(JsonSchema)]
            pub enum ErrorCode { $($(#[$doc])* $variant = $text,)* }
        }

        impl ErrorCode {
            /// The HTTP status that goes with the code (RFC 9110).
            pub const fn http_status(self) -> u16 {
                match self { $(Self::$variant => $status,)* }
            }

            /// Whether the same request may succeed later without being changed.
            pub const fn retryable(self) -> bool {
                match self { $(Self::$variant => $retryable,)* }
            }

            /// What the caller should do, in one sentence.
            pub const fn remediation(self) -> &'static str {
                match self { $(Self::$variant => $hint,)* }
            }
        }
    };
}

codes! {
    /// The request or its arguments do not match the contract.
    ValidationError = "VALIDATION_ERROR", 400, false, "Correct the fields named in the error and send the call again.";
    /// The live definition of the tool differs from the reviewed one (TM-14).
    ToolChanged = "TOOL_CHANGED", 409, false, "Do not repeat the call; tell the operator, who has to review the changed tool.";
    /// The caller has no tool of this name.
    ToolNotFound = "TOOL_NOT_FOUND", 404, false, "List the tools you may call with GET /v1/tools.";
    /// There is no such call, approval or record that the caller may see.
    NotFound = "NOT_FOUND", 404, false, "Check the path and the id; ids of other callers answer the same.";
    /// The caller's identity could not be verified.
    Unauthenticated = "UNAUTHENTICATED", 401, false, "Send a valid bearer token for this service in the Authorization header; a token in Placet-Delegation has to be valid as well, and meant for that caller.";
    /// The caller's identity cannot be verified at present: the issuer's keys are not available.
    IdentityUnavailable = "IDENTITY_UNAVAILABLE", 503, true, "Wait for the time named in Retry-After and repeat the same request with the same token.";
    /// Policy denies the call.
    PolicyDenied = "POLICY_DENIED", 403, false, "Do not repeat the call as it is; ask the operator if it should be allowed.";
    /// A policy could not be evaluated, so the call is refused.
    PolicyError = "POLICY_ERROR", 500, false, "Report the policy_decision_id to the operator, who has to fix the policy bundle.";
    /// The call waits for approval.
    ApprovalPending = "APPROVAL_PENDING", 202, true, "Wait for the approval; repeat the same call or poll the Location to collect the result.";
    /// The approvers denied the call.
    ApprovalDenied = "APPROVAL_DENIED", 403, false, "Do not repeat the call; people have denied it.";
    /// The approval expired before enough approvers agreed.
    ApprovalExpired = "APPROVAL_EXPIRED", 403, false, "Ask again with a new step or request id if the call is still wanted.";
    /// The call was withdrawn before it was sent.
    ApprovalWithdrawn = "APPROVAL_WITHDRAWN", 403, false, "Do not repeat the call; if it is wanted again, send it with a new step or request id.";
    /// What was approved is no longer what would run.
    ApprovalVoid = "APPROVAL_VOID", 409, false, "Send the call again; it needs a new approval.";
    /// The call needs a stronger mode than it requested.
    ModeUpgraded = "MODE_UPGRADED", 403, false, "Request the mode that the tool needs and send the call again.";
    /// The idempotency key was already used with other arguments.
    IdempotencyConflict = "IDEMPOTENCY_CONFLICT", 422, false, "Use a new key for a new call, or the original arguments for a retry.";
    /// The same call is being executed now.
    InProgress = "IN_PROGRESS", 409, true, "Wait and repeat the same call with the same key to collect its result.";
    /// The idempotency key is known, but its result is no longer kept.
    ResultExpired = "RESULT_EXPIRED", 410, false, "The call was made before; look up its effect in the target system.";
    /// The idempotency key is older than the ledger's memory.
    KeyTooOld = "KEY_TOO_OLD", 410, false, "Use a fresh key if the call is really new.";
    /// It is not known whether the effect happened.
    OutcomeUnknown = "OUTCOME_UNKNOWN", 409, false, "Do not repeat the call; an operator has to find out whether the effect happened.";
    /// The credential for the target, or the caller's delegation, has expired.
    CredentialExpired = "CREDENTIAL_EXPIRED", 401, true, "Get a new token for the same principal and repeat the same call.";
    /// The target system or its token service does not grant the access that the call needs.
    CredentialRefused = "CREDENTIAL_REFUSED", 403, false, "Bring tokens that allow the call, or ask the operator what is granted to its caller.";
    /// No credential can be obtained for the call until an operator fixes the cause; the caller cannot.
    CredentialMisconfigured = "CREDENTIAL_MISCONFIGURED", 502, true, "Tell the operator to fix the tool's credential; then repeat the same call.";
    /// Too many calls within the rate limit's window.
    RateLimited = "RATE_LIMITED", 429, true, "Wait for the time named in Retry-After and repeat the same call.";
    /// The run has used up its budget.
    BudgetExhausted = "BUDGET_EXHAUSTED", 403, false, "With Retry-After, wait for the time it names; else start a new run, or ask the operator for a larger budget.";
    /// The call ran out of time before anything was sent.
    DeadlineExceeded = "DEADLINE_EXCEEDED", 504, true, "Repeat the same call, with a larger latency budget if the tool is slow.";
    /// The target system reported a failure.
    AdapterFailed = "ADAPTER_FAILED", 502, false, "Read the tool's own error in the output; change the call if that helps.";
    /// The target system cannot be reached. Nothing was sent.
    AdapterUnavailable = "ADAPTER_UNAVAILABLE", 503, true, "Wait and repeat the same call.";
    /// The caller has no open run of this name on this node.
    RunNotFound = "RUN_NOT_FOUND", 404, false, "Open it again under the same id with POST /v1/runs, or POST /v1/sessions: what it may use up and has used up is kept.";
    /// A run of this name is open already.
    RunTaken = "RUN_TAKEN", 409, false, "Go on with the run that is open, close it with DELETE /v1/sessions/{id}, or open one under another id.";
    /// The batch contains a call that must be alone in its batch, so none of its calls was executed.
    ControlConflict = "CONTROL_CONFLICT", 409, false, "Call the other tools first, and the tool that takes control alone in a batch after that.";
    /// The engine is overloaded.
    Overloaded = "OVERLOADED", 503, true, "Wait and repeat the same call.";
    /// The ledger cannot be written, so nothing is executed.
    LedgerUnavailable = "LEDGER_UNAVAILABLE", 503, true, "Repeat the same call with the same key when the service is ready again; it is never executed twice.";
    /// An internal error of the engine.
    Internal = "INTERNAL", 500, true, "Repeat the same call with the same key; it is never executed twice.";
}

impl ErrorCode {
    /// Whether it means that a call has no credential that its target accepts, no matter who can fix that.
    pub const fn lacks_credential(self) -> bool {
        matches!(self, Self::CredentialRefused | Self::CredentialMisconfigured)
    }
}

/// A part of a request that is wrong, and how to fix it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Problem {
    /// The place in the request, as a JSON Pointer (RFC 6901).
    pub pointer: String,
    /// What is wrong there, in words that let a model repair it.
    pub problem: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pointer.as_str() {
            "" => f.write_str(&self.problem),
            pointer => write!(f, "{}: {}", place(pointer), self.problem),
        }
    }
}

/// A refusal at some stage, with separate messages for the caller and for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{code}: {message}")]
pub struct Refusal {
    /// The cause.
    pub code: ErrorCode,
    /// For the caller. Names no policy, host, other tenant or hidden tool.
    pub message: String,
    /// For the log and the audit only; never sent to a caller.
    pub detail: Option<String>,
    /// Places to correct, for [`ErrorCode::ValidationError`].
    pub problems: Vec<Problem>,
    /// What is known about the effect.
    pub execution: Execution,
    /// When to try again, in milliseconds from now, where that is known.
    pub retry_after_ms: Option<u64>,
    /// The scopes that a token needs for this, all of them, if the caller's lacks one.
    pub scopes_needed: Vec<String>,
}

impl Refusal {
    /// A refusal before anything was executed; for a call that is or was in progress, its execution is unknown.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let unknown = matches!(code, ErrorCode::OutcomeUnknown | ErrorCode::InProgress);
        let execution = if unknown { Execution::Unknown } else { Execution::NotExecuted };
        Self {
            code,
            message: message.into(),
            detail: None,
            problems: Vec::new(),
            execution,
            retry_after_ms: None,
            scopes_needed: Vec::new(),
        }
    }

    /// Adds a detail for the log only.
    #[must_use]
    pub fn with_detail(mut self, detail: impl fmt::Display) -> Self {
        self.detail = Some(detail.to_string());
        self
    }

    /// Adds the places to correct.
    #[must_use]
    pub fn with_problems(mut self, problems: Vec<Problem>) -> Self {
        self.problems = problems;
        self
    }

    /// Adds one place to correct.
    #[must_use]
    pub fn with_problem(self, pointer: impl Into<String>, problem: impl Into<String>) -> Self {
        self.with_problems(vec![Problem { pointer: pointer.into(), problem: problem.into() }])
    }

    /// Says which scopes a token has to have.
    #[must_use]
    pub fn with_scopes_needed(mut self, scopes: Vec<String>) -> Self {
        self.scopes_needed = scopes;
        self
    }

    /// Says what is known about the effect.
    #[must_use]
    pub fn with_execution(mut self, execution: Execution) -> Self {
        self.execution = execution;
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn with_retry_after_ms(mut self, ms: u64) -> Self {
        self.retry_after_ms = Some(ms);
        self
    }
}
