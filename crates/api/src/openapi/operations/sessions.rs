//! The operations on sessions.
//!
//! Owns their rows: texts, parameters and answers.

use utoipa::openapi::ResponseBuilder;

use placet_engine::runs::{
    batch_views::Batch,
    sessions::{OpenSession, SessionResults, SessionView},
};

use crate::{
    openapi::table::{Route, delete, get, post},
    routes::sessions,
};

pub(in crate::openapi) fn routes() -> Vec<Route> {
    let closed = ResponseBuilder::new().description("The session is closed").build();
    vec![
        post("/v1/sessions", sessions::open, "openSession", "sessions", "Opens a session for the caller on this node")
            .about(
                "A session is a run with the same id that keeps its calls and their results. `RUN_TAKEN` if the session or run is already open.",
            )
            .body::<OpenSession>()
            .ok::<SessionView>("The session"),
        get("/v1/sessions/{id}", sessions::get, "getSession", "sessions", "Lists the calls of a session, with their results")
            .ok::<SessionView>("The session"),
        delete("/v1/sessions/{id}", sessions::close, "closeSession", "sessions", "Closes a session; safe to repeat")
            .other("204", closed),
        post("/v1/sessions/{id}/execute", sessions::execute, "executeInSession", "sessions", "Executes calls in a session, in order, and keeps them")
            .about(
                "Each call sees the results of those before it, also within a request. The same calls under the same `batch_id` take effect once.",
            )
            .body::<Batch>()
            .ok::<SessionResults>("The outcome of each call, in order"),
        post("/v1/sessions/{id}/simulate", sessions::simulate, "simulateInSession", "sessions", "Simulates calls, without keeping them in the session")
            .about(
                "Tools that change something are not called, unless a model simulates them, and nobody is asked to approve anything. `batch_id` and \
                 `idempotency_key` are ignored: a simulation never counts as the call it simulates.",
            )
            .body::<Batch>()
            .ok::<SessionResults>("The outcome of each call, in order"),
    ]
}
