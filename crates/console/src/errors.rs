//! What an error code means, as a page for browsers; programs get the API's document.
//!
//! Owns the page. It depends on nothing but the code, and is the same for everybody.

use axum::{
    Json,
    extract::Path,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, StatusCode};
use maud::html;
use placet_api::{documents::ErrorDocument, problem::Failure};
use placet_types::clock::Timestamp;

use super::{home::wants_page, page::Frame};

/// `GET /errors/{code}`.
pub(super) async fn show(
    Path(code): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let document = ErrorDocument::of(&code)?;
    if !wants_page(&headers) {
        return Ok(Json(document).into_response());
    }
    let content = html! {
        div.card.narrow {
            h1 { code { (document.error_code) } }
            dl.facts {
                dt { "What to do" } dd { (document.remediation) }
                dt { "HTTP status" } dd { (document.status) }
                dt { "Retryable" }
                dd { (if document.retryable { "Yes: the same request may succeed later." } else { "No: the same request gives the same answer." }) }
            }
            p.small.soft { "The docs have a page for each code, with its meaning and what operators do." }
        }
    };
    let frame = Frame { title: &document.title, place: "", now: Timestamp::from_ms(0) };
    Ok(frame.open_page(StatusCode::OK, &content))
}
