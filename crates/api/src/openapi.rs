//! The OpenAPI document, made from the table of routes and from the types themselves.
//!
//! Owns the assembly. Cannot omit a route (the router is made from the same table) nor misdescribe a type (the schemas are generated from
//! it).

mod operations;
mod schemas;
pub(crate) mod table;

use std::sync::LazyLock;

use axum::{
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderValue, Method, header};
use utoipa::openapi::{
    HttpMethod, InfoBuilder, LicenseBuilder, OpenApi, OpenApiBuilder, PathsBuilder,
    path::PathItem,
    security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use crate::answer::JSON;

/// The security scheme of the caller's own token.
const BEARER: &str = "bearer";

/// Made once: the document depends on nothing but the code.
static DESCRIPTION: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi_json()));

/// `GET /openapi.json`.
pub(crate) async fn describe() -> Response {
    let body = Body::from(DESCRIPTION.clone());
    ([(header::CONTENT_TYPE, HeaderValue::from_static(JSON))], body).into_response()
}

/// The document (OpenAPI 3.1).
fn openapi() -> OpenApi {
    let info = InfoBuilder::new()
        .title("Placet")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(
            "Governed tool calls: an agent proposes, Placet decides, asks people where it must, executes at most once \
             and records. Every refusal is a problem document with an `error_code`.",
        ))
        .license(Some(LicenseBuilder::new().name("Apache-2.0").identifier(Some("Apache-2.0")).build()))
        .build();
    let mut docs = schemas::generator();
    let mut paths = PathsBuilder::new();
    for route in table::all() {
        let method = match route.method {
            Method::POST => HttpMethod::Post,
            Method::DELETE => HttpMethod::Delete,
            _ => HttpMethod::Get,
        };
        paths = paths.path(route.path, PathItem::new(method, route.description(&mut docs)));
    }
    let mut components = schemas::components(docs);
    let scheme = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some("The access token of the agent, service or person that calls."))
        .build();
    components.add_security_scheme(BEARER, SecurityScheme::Http(scheme));
    OpenApiBuilder::new().info(info).paths(paths.build()).components(Some(components)).build()
}

/// The document as JSON, its members in alphabetical order, so that it is the same in every build.
pub fn openapi_json() -> String {
    // The document has only string keys and integers: serializing it cannot fail.
    let mut document = serde_json::to_value(openapi()).unwrap_or_default();
    document.sort_all_objects();
    format!("{document:#}\n")
}

#[cfg(test)]
mod tests;
