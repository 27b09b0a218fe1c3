//! The open route that says what this is.
//!
//! Owns its text. Says nothing that depends on who asks.

use axum::response::Response;

use crate::{answer, documents::AboutDocument};

/// `GET /`.
pub(crate) async fn about() -> Response {
    answer::json(&AboutDocument {
        service: "placet".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        about: "A policy-governed execution engine for the tool calls of AI agents.".to_owned(),
        openapi: "/openapi.json".to_owned(),
        calls: "/v1/calls".to_owned(),
        tools: "/v1/tools".to_owned(),
    })
}
