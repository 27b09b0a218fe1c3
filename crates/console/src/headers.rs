//! The headers that every answer of the console has.
//!
//! Owns them. `Referrer-Policy` is `same-origin`, not `no-referrer`: with the latter, browsers send `Origin: null` with our own forms, and
//! the origin check would have nothing to check. Neither sends a referrer to other sites.

use axum::response::Response;
use http::{HeaderName, HeaderValue, header};

/// Nothing from other origins, nothing inline, no framing.
pub(super) const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self'; \
     form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, POLICY),
    (header::REFERRER_POLICY, "same-origin"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    (
        HeaderName::from_static("permissions-policy"),
        "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    ),
    (header::VARY, "Accept, Cookie"),
];

pub(super) async fn protect(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
