//! The style sheet and the script, in the binary, under paths that change with what is in them.
//!
//! Owns the paths. A path with another digest is answered with the present file too, but never kept by a cache.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::{HeaderValue, header};
use placet_types::digest::Digest;

use placet_api::answer::IMMUTABLE;

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");

pub(super) const STYLE_ROUTE: &str = "/assets/{digest}/console.css";
pub(super) const SCRIPT_ROUTE: &str = "/assets/{digest}/console.js";

static STYLE_DIGEST: LazyLock<String> = LazyLock::new(|| Digest::of(STYLE.as_bytes()).short());
static SCRIPT_DIGEST: LazyLock<String> = LazyLock::new(|| Digest::of(SCRIPT.as_bytes()).short());

pub(super) fn style_path() -> String {
    STYLE_ROUTE.replace("{digest}", &STYLE_DIGEST)
}

pub(super) fn script_path() -> String {
    SCRIPT_ROUTE.replace("{digest}", &SCRIPT_DIGEST)
}

/// `GET /assets/{digest}/console.css`.
pub(super) async fn style(Path(digest): Path<String>) -> Response {
    file(STYLE, "text/css; charset=utf-8", digest == *STYLE_DIGEST)
}

/// `GET /assets/{digest}/console.js`.
pub(super) async fn script(Path(digest): Path<String>) -> Response {
    file(SCRIPT, "text/javascript; charset=utf-8", digest == *SCRIPT_DIGEST)
}

fn file(text: &'static str, kind: &'static str, is_this_one: bool) -> Response {
    let kept = if is_this_one { IMMUTABLE } else { "no-store" };
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(kind)),
        (header::CACHE_CONTROL, HeaderValue::from_static(kept)),
    ];
    (headers, text).into_response()
}
