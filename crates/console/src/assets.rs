//! The style sheet and the script, in the binary, under paths that change with what is in them.
//!
//! Owns the paths. A path with another digest also returns the current file, but without caching.

use std::sync::LazyLock;

use axum::{
    extract::Path,
    response::{IntoResponse, Response},
};
use http::header;
use placet_types::digest::Digest;

use placet_api::{answer::IMMUTABLE, problem::Failure};

const STYLE: &str = include_str!("assets/console.css");
const SCRIPT: &str = include_str!("assets/console.js");

pub(super) const ROUTE: &str = "/assets/{digest}/{file}";

/// Of both files: they change with the program.
static DIGEST: LazyLock<String> =
    LazyLock::new(|| Digest::of([STYLE, SCRIPT].concat().as_bytes()).short());

/// The path of a file.
pub(super) fn path(file: &str) -> String {
    format!("/assets/{}/{file}", *DIGEST)
}

/// `GET /assets/{digest}/{file}`.
pub(super) async fn file(Path((digest, file)): Path<(String, String)>) -> Response {
    let (text, kind) = match file.as_str() {
        "console.css" => (STYLE, "text/css; charset=utf-8"),
        "console.js" => (SCRIPT, "text/javascript; charset=utf-8"),
        _ => return Failure::unknown_route().into_response(),
    };
    let kept = if digest == *DIGEST { IMMUTABLE } else { "no-store" };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, kept)], text).into_response()
}
