//! Asking a server whether a token's effect happened.
//!
//! Owns the probe, a `tools/call` of the tool that the contract names for it, and the parsing of its answer. Invariants: only a tool
//! that is declared read-only and is still as reviewed is called; whatever is not clearly one of the declared states is unknown.

use rmcp::model::{
    CallToolRequest, CallToolRequestParams, CallToolResult, ClientRequest, Extensions,
};
use serde_json::Value;

use placet_adapter::outcome::{Answer, Probe};
use placet_types::{
    contract::{
        Capability, Contract, Dedup, LiveTool,
        file::{ProbeFile, ResultForm},
    },
    ids::CapabilityName,
    mode::ApprovalMode,
};

use crate::{
    answer::{self, Keeping},
    http::Question,
};

/// How one capability is probed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan<'a> {
    pub(crate) plan: &'a ProbeFile,
    tool: &'a Capability,
}

/// How `capability` is probed, if it can be: its contract says how, and the tool for it may be called.
pub(crate) fn plan<'a>(contract: &'a Contract, capability: &CapabilityName) -> Option<Plan<'a>> {
    let plan = contract.capabilities.get(capability)?.probe()?;
    let tool = contract.capabilities.get(&plan.tool)?;
    // The contract was checked for this when it was read; a question that acts would be worse than none.
    let looks_only = tool.dedup == Dedup::ReadOnly && tool.mode_highest == ApprovalMode::ReadOnly;
    (looks_only && tool.is_callable()).then_some(Plan { plan, tool })
}

impl Plan<'_> {
    /// Whether the tool is still as reviewed.
    pub(crate) fn is_pinned(&self, contract: &Contract, live: &[LiveTool]) -> bool {
        let found = live.iter().find(|tool| tool.name == self.tool.tool);
        found.is_some_and(|tool| self.tool.pin == Some(tool.digest(&contract.adapter)))
    }

    /// The probe for `token`.
    pub(crate) fn question(&self, token: &str) -> ClientRequest {
        let mut args = self.plan.args.clone();
        args.insert(self.plan.argument.clone(), Value::String(token.to_owned()));
        let name = self.tool.tool.clone();
        let mut call = CallToolRequest::new(CallToolRequestParams::new(name).with_arguments(args));
        let mut extensions = Extensions::new();
        extensions.insert(Question);
        call.extensions = extensions;
        ClientRequest::CallToolRequest(call)
    }

    /// The result of a probe; `keeping` is for results of the probed capability.
    pub(crate) fn read(&self, result: &CallToolResult, keeping: Keeping<'_>) -> Probe {
        if result.is_error == Some(true) {
            return Probe::Unknown;
        }
        // The recorded result is inside the answer, so the answer is larger.
        let bytes_max = keeping.bytes_max.saturating_mul(2).saturating_add(65_536);
        let told = answer::of_result(result, Keeping { bytes_max, output_schema: None }).output;
        let Some(state) = told.pointer(&self.plan.state).and_then(Value::as_str) else {
            return Probe::Unknown;
        };
        if self.plan.not_found.contains(state) {
            return Probe::NotFound;
        }
        if !self.plan.committed.contains(state) {
            return Probe::Unknown;
        }
        let Some(pointer) = &self.plan.result else {
            return Probe::Committed(answer::of_unknown_content());
        };
        told.pointer(pointer)
            .and_then(|recorded| self.recorded(recorded, keeping))
            .map_or(Probe::Unknown, Probe::Committed)
    }

    fn recorded(&self, recorded: &Value, keeping: Keeping<'_>) -> Option<Answer> {
        match self.plan.result_form {
            ResultForm::Structured if recorded.is_null() => None,
            ResultForm::Structured => Some(answer::of_structured(recorded, keeping.bytes_max)),
            ResultForm::CallResult => {
                // Without content it is not a result of a call.
                recorded.get("content")?.as_array()?;
                let result: CallToolResult = serde_json::from_value(recorded.clone()).ok()?;
                // An effect that happened and failed is a contradiction.
                (result.is_error != Some(true)).then(|| answer::of_result(&result, keeping))
            }
        }
    }
}
