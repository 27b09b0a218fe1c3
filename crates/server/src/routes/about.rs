//! The two open routes: what this is, and how to talk to it.
//!
//! Owns their text. Says nothing that depends on who asks.

use std::sync::LazyLock;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, header};

use crate::{
    answer::{self, JSON},
    documents::AboutDocument,
    openapi::openapi_json,
};

/// Made once: the document depends on nothing but the code.
static DESCRIPTION: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi_json()));

/// `GET /openapi.json`.
pub(crate) async fn describe() -> Response {
    let body = Body::from(DESCRIPTION.clone());
    ([(header::CONTENT_TYPE, HeaderValue::from_static(JSON))], body).into_response()
}

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
