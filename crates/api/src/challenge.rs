//! What a caller without valid credentials is told: where to get them (RFC 6750, RFC 9728).
//!
//! Owns the `WWW-Authenticate` header and the metadata document. Does not reveal why a token was refused. Invariant: the document contains
//! only public facts.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use http::{HeaderMap, HeaderValue, StatusCode, header};

use crate::{answer, config::ServerConfig, documents::ProtectedResourceDocument, state::ApiState};

/// Where the document is.
pub(crate) const METADATA_PATH: &str = "/.well-known/oauth-protected-resource";

/// Our origin as seen from outside, as far as the configuration or the request tells. The guard has already checked that the `Host` is one
/// of ours.
fn origin(config: &ServerConfig, headers: &HeaderMap) -> Option<String> {
    if let Some(url) = &config.public_url {
        return Some(url.origin().ascii_serialization());
    }
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(format!("{}://{host}", config.scheme()))
}

/// `GET /.well-known/oauth-protected-resource`.
pub(crate) async fn metadata(State(api): State<ApiState>, headers: HeaderMap) -> Response {
    let config = api.config();
    let ours = origin(config, &headers).unwrap_or_default();
    answer::json(&ProtectedResourceDocument {
        resource: config.resource.clone().unwrap_or(ours),
        resource_name: "Placet".to_owned(),
        authorization_servers: config.authorization_servers.clone(),
        bearer_methods_supported: vec!["header".to_owned()],
        tls_client_certificate_bound_access_tokens: config.is_tls,
    })
}

/// Adds the challenge to every answer that asks for credentials.
pub(crate) async fn challenge(
    State(config): State<Arc<ServerConfig>>,
    request: Request,
    next: Next,
) -> Response {
    let shown = request.headers().contains_key(header::AUTHORIZATION);
    let ours = origin(&config, request.headers());
    let mut response = next.run(request).await;
    let asks_for_more = response.status() == StatusCode::FORBIDDEN
        && response.headers().contains_key(header::WWW_AUTHENTICATE);
    if response.status() != StatusCode::UNAUTHORIZED && !asks_for_more {
        return response;
    }
    let plain = HeaderValue::from_static("Bearer");
    let said = response.headers().get(header::WWW_AUTHENTICATE).unwrap_or(&plain);
    let mut parts = Vec::new();
    let said = said.to_str().unwrap_or("Bearer");
    if let Some(ours) = ours {
        parts.push(format!("resource_metadata=\"{ours}{METADATA_PATH}\""));
    }
    if shown && !said.contains("error=") {
        parts.push("error=\"invalid_token\"".to_owned());
    }
    let separator = if said.eq_ignore_ascii_case("bearer") { " " } else { ", " };
    let whole = format!("{said}{separator}{}", parts.join(", "));
    if let Ok(value) = HeaderValue::from_str(whole.trim_end()) {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, value);
    }
    response
}
