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
    start("openSession", "sessions", "Opens a session of the caller on this node")
        .description(Some(
            "A session is a run of the same id that keeps its calls with their results. A session or run that is open already is `RUN_TAKEN`.",
        ))
        .request_body(Some(body::<OpenSession>(docs)))
        .response("200", ok::<SessionView>(docs, "The session"))
}

pub(in crate::openapi) fn get(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("getSession", "sessions", "The calls of a session, with their results"))
        .response("200", ok::<SessionView>(docs, "The session"))
}

pub(in crate::openapi) fn close(_docs: &mut SchemaGenerator) -> OperationBuilder {
    let closed = ResponseBuilder::new().description("It is not open (any more)").build();
    identified(start("closeSession", "sessions", "Ends a session; safe to repeat"))
        .response("204", closed)
}

pub(in crate::openapi) fn execute(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("executeInSession", "sessions", "Makes calls in a session, in order, and keeps them"))
        .description(Some(
            "A call sees what came of those before it, in the same request too. The same calls under the same `batch_id` act once.",
        ))
        .request_body(Some(body::<Batch>(docs)))
        .response("200", ok::<SessionResults>(docs, "What became of each call, in order"))
}

pub(in crate::openapi) fn simulate(docs: &mut SchemaGenerator) -> OperationBuilder {
    identified(start("simulateInSession", "sessions", "Makes calls of which nothing is left in the session"))
        .description(Some(
            "Tools that change something are called only where a model simulates them. `batch_id` is ignored: a simulation is never the call \
             that it is of.",
        ))
        .request_body(Some(body::<Batch>(docs)))
        .response("200", ok::<SessionResults>(docs, "What became of each call, in order"))
}
