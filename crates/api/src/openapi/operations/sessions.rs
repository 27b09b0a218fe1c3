//! The operations on sessions in the document.
//!
//! Owns their texts, parameters and answers.

use schemars::SchemaGenerator;
use utoipa::openapi::{ResponseBuilder, path::OperationBuilder};

use placet_engine::runs::{
    batch_views::Batch,
    sessions::{OpenSession, SessionResults, SessionView},
};

use super::{body, identified, ok, start};

pub(in crate::openapi) fn open(docs: &mut SchemaGenerator) -> OperationBuilder {
    start("openSession", "sessions", "Opens a session for the caller on this node")
        .description(Some(
            "A session is a run with the same id that keeps its calls and their results. `RUN_TAKEN` if the session or run is already open.",
        ))
        .request_body(Some(body::<OpenSession>(docs)))
        .response("200", ok::<SessionView>(docs, "The session"))
}

pub(in crate::openapi) fn get(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getSession", "sessions", "Lists the calls of a session, with their results"))
        .response("200", ok::<SessionView>(docs, "The session"))
}

pub(in crate::openapi) fn close(_docs: &mut SchemaGenerator) -> OperationBuilder {
    let closed = ResponseBuilder::new().description("The session is closed").build();
    identified(start("closeSession", "sessions", "Closes a session; safe to repeat"))
        .response("204", closed)
}

pub(in crate::openapi) fn execute(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("executeInSession", "sessions", "Executes calls in a session, in order, and keeps them"))
        .description(Some(
            "Each call sees the results of those before it, also within a request. The same calls under the same `batch_id` take effect once.",
        ))
        .request_body(Some(body::<Batch>(docs)))
        .response("200", ok::<SessionResults>(docs, "The outcome of each call, in order"))
}

pub(in crate::openapi) fn simulate(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("simulateInSession", "sessions", "Simulates calls, without keeping them in the session"))
        .description(Some(
            "Tools that change something are not called, unless a model simulates them, and nobody is asked to approve anything. `batch_id` and \
             `idempotency_key` are ignored: a simulation never counts as the call it simulates.",
        ))
        .request_body(Some(body::<Batch>(docs)))
        .response("200", ok::<SessionResults>(docs, "The outcome of each call, in order"))
}
