//! The names of span attributes, and the targets of spans.
//!
//! Owns the spelling, in one place, so that a dashboard and a test mean the same thing. Does not create spans (see
//! [`crate::trace`]). Where a semantic convention of OpenTelemetry has a name, it is used.

/// The `tracing` target of every span that may be exported. Spans with another target are not.
pub const TARGET: &str = "placet::call";

/// The `tracing` target of the spans within a call, which are made only where spans are exported.
pub const DETAIL_TARGET: &str = "placet::call::detail";

/// The keys of attributes.
pub mod attribute {
    /// The approval mode that governs the call after policy (TM-20).
    pub const MODE_EFFECTIVE: &str = "contextos.action.approval_mode_effective";
    /// The decision that let the call pass or refused it (TM-20).
    pub const POLICY_DECISION_ID: &str = "contextos.action.policy_decision_id";
    /// What the model does; always `execute_tool` here.
    pub const OPERATION_NAME: &str = "gen_ai.operation.name";
    /// The tool, as the caller names it.
    pub const TOOL_NAME: &str = "gen_ai.tool.name";
    /// The method of the Model Context Protocol.
    pub const MCP_METHOD: &str = "mcp.method.name";
    /// The MCP server, by the name of its contract.
    pub const MCP_SERVER_ID: &str = "mcp.server.id";
    /// The adapter, by the name of its contract.
    pub const ADAPTER: &str = "placet.adapter";
    /// The attempt, from 1.
    pub const ATTEMPT: &str = "placet.attempt";
    /// The call.
    pub const TOOL_CALL_ID: &str = "placet.tool_call_id";
    /// The run that the call belongs to.
    pub const RUN_ID: &str = "placet.run_id";
    /// The tenant.
    pub const TENANT: &str = "placet.tenant";
    /// The approval record.
    pub const APPROVAL_ID: &str = "approval.id";
    /// The result of the approval.
    pub const APPROVAL_RESULT: &str = "approval.result";
    /// The status of the result.
    pub const STATUS: &str = "placet.status";
    /// Why the call was refused or failed.
    pub const ERROR_CODE: &str = "placet.error_code";
    /// Whether the result was replayed from the ledger.
    pub const REPLAYED: &str = "placet.replayed";
    /// The kind of span, for the OpenTelemetry layer.
    pub const OTEL_KIND: &str = "otel.kind";
    /// The status of the span, for the OpenTelemetry layer.
    pub const OTEL_STATUS: &str = "otel.status_code";
}
