//! The operations on runs in the document.
//!
//! Owns their texts, parameters and answers.

use schemars::SchemaGenerator;
use serde_json::{Value, json};
use utoipa::openapi::path::OperationBuilder;

use placet_engine::runs::{
    batch_views::{Batch, BatchHistory, BatchView, OpenRuns},
    views::{OpenRun, RunTools, RunView, ToolsChange, ToolsChanged},
};

use placet_types::ids::RunId;

use super::{body, header, identified, identifier, ok, query, start, text};
use crate::routes::runs::FORMATS;

pub(in crate::openapi) fn open(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("openRun", "runs", "Opens a run for the caller on this node")
        .description(Some(
            "Fixes the run's ceiling and budget, as a first call does. `RUN_TAKEN` if the run is already open. The tools of a run are kept \
             in this node's memory: after a restart, or an hour without a request for the run, it is `RUN_NOT_FOUND` until it is opened \
             again.",
        ))
        .request_body(Some(body::<OpenRun>(docs)))
        .response("200", ok::<RunView>(docs, "The run"))
}

pub(in crate::openapi) fn list(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("listRuns", "runs", "Lists the open runs of this node that the caller may see")
        .description(Some(
            "Operators and auditors see all runs of their tenant, other people those of their agents and those that act for them, an \
             agent its own. At most 200, the most recently used first.",
        ))
        .parameter(query(
            "run_id",
            "Only runs with this id, with their batches",
            identifier::<RunId>(),
        ))
        .response("200", ok::<OpenRuns>(docs, "The runs"))
}

pub(in crate::openapi) fn get(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getRun", "runs", "Returns the state of an open run"))
        .response("200", ok::<RunView>(docs, "The run"))
}

pub(in crate::openapi) fn tools(docs: &mut SchemaGenerator) -> OperationBuilder {
    let names: Vec<Value> = FORMATS.iter().map(|(name, _)| Value::from(*name)).collect();
    let format = json!({ "type": "string", "enum": names, "default": "plain" });
    identified(start("listRunTools", "runs", "Lists the tools for the next turn of a run's model"))
        .parameter(query("format", "The format of the definitions", format))
        .response("200", ok::<RunTools>(docs, "Definitions and prompts"))
}

pub(in crate::openapi) fn change(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("changeRunTools", "runs", "Forces or excludes tools of a run"))
        .description(Some("All or nothing. Forcing a tool ends its exclusion."))
        .request_body(Some(body::<ToolsChange>(docs)))
        .response("200", ok::<ToolsChanged>(docs, "The result of the change"))
}

pub(in crate::openapi) fn batch(docs: &mut SchemaGenerator) -> OperationBuilder {
    let key = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let trace = |name| header(name, "W3C Trace Context; passed on to the adapters.", text());
    identified(start("sendBatch", "runs", "Sends the calls of one turn of a run's model"))
        .description(Some(
            "Equal calls are made once, the others in parallel; each has its own outcome. A tool that takes control must be the only call, \
             or nothing of the batch is executed. A batch that is repeated under the same id takes effect once: the response has the \
             outcomes of its calls.",
        ))
        .parameter(header("Idempotency-Key", "The id of the batch; the body may carry it instead.", key))
        .parameter(trace("traceparent"))
        .parameter(trace("tracestate"))
        .request_body(Some(body::<Batch>(docs)))
        .response("200", ok::<BatchView>(docs, "The outcome of each call, in order"))
}

pub(in crate::openapi) fn batches(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("listBatches", "runs", "Lists the batches of a run, with their calls"))
        .response("200", ok::<BatchHistory>(docs, "The batches, oldest first"))
}
