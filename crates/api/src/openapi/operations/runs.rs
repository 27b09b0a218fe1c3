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
    start("openRun", "runs", "Opens a run of the caller on this node")
        .description(Some(
            "Fixes its ceiling and budget as a first call does. A run that is open already is `RUN_TAKEN`. Which tools a run has is kept in \
             the memory of this node: after a restart, or an hour in which nobody asked about it, it is `RUN_NOT_FOUND` until it is opened \
             again.",
        ))
        .request_body(Some(body::<OpenRun>(docs)))
        .response("200", ok::<RunView>(docs, "The run"))
}

pub(in crate::openapi) fn list(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("listRuns", "runs", "The open runs of this node that the caller may see")
        .description(Some(
            "Operators and auditors see all of their tenant, other people those of their agents and those that act for them, an agent its \
             own: 200 at most, the ones used last first.",
        ))
        .parameter(query(
            "run_id",
            "Only runs of this name, with their batches",
            identifier::<RunId>(),
        ))
        .response("200", ok::<OpenRuns>(docs, "The runs"))
}

pub(in crate::openapi) fn get(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getRun", "runs", "Says how an open run stands"))
        .response("200", ok::<RunView>(docs, "The run"))
}

pub(in crate::openapi) fn tools(docs: &mut SchemaGenerator) -> OperationBuilder {
    let names: Vec<Value> = FORMATS.iter().map(|(name, _)| Value::from(*name)).collect();
    let format = json!({ "type": "string", "enum": names, "default": "plain" });
    identified(start("listRunTools", "runs", "What the model of a run is offered at its next turn"))
        .parameter(query("format", "The form of the definitions", format))
        .response("200", ok::<RunTools>(docs, "Definitions and prompts"))
}

pub(in crate::openapi) fn change(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("changeRunTools", "runs", "Forces and excludes tools of a run"))
        .description(Some("All or nothing. A tool that is forced is excluded no more."))
        .request_body(Some(body::<ToolsChange>(docs)))
        .response("200", ok::<ToolsChanged>(docs, "What became of them"))
}

pub(in crate::openapi) fn batch(docs: &mut SchemaGenerator) -> OperationBuilder {
    let key = json!({ "type": "string", "minLength": 1, "maxLength": 256 });
    let trace = |name| header(name, "W3C Trace Context; handed on to the adapters.", text());
    identified(start("sendBatch", "runs", "Makes the calls of one turn of a run's model"))
        .description(Some(
            "Equal calls are made once, a tool that takes control only alone, the others in parallel; each has its own outcome. The same batch \
             under the same id acts once: it is answered with what became of its calls.",
        ))
        .parameter(header("Idempotency-Key", "The id of the batch; the body may say it instead.", key))
        .parameter(trace("traceparent"))
        .parameter(trace("tracestate"))
        .request_body(Some(body::<Batch>(docs)))
        .response("200", ok::<BatchView>(docs, "What became of each call, in order"))
}

pub(in crate::openapi) fn batches(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("listBatches", "runs", "The batches of a run, with how their calls stood"))
        .response("200", ok::<BatchHistory>(docs, "The batches, oldest first"))
}
