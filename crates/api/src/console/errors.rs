//! What an error code means: where the `type` of a problem document leads (RFC 9457, section 3.1.1).
//!
//! Owns the page and the document. They depend on nothing but the code, and are the same for everybody.

use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::html;
use placet_types::{
    clock::Timestamp,
    error::{ErrorCode, Refusal},
};

use super::{
    headers::protect,
    home::wants_page,
    page::{Frame, Place},
};
use crate::{answer, documents::ErrorDocument, problem::Failure, query::Params, request::Id};

/// `GET /errors/{code}`.
pub(crate) async fn show(
    Id(code): Id<String>,
    headers: HeaderMap,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    let known = ErrorCode::ALL.iter().find(|known| known.as_str() == code);
    let code = *known.ok_or_else(|| {
        Failure::new(Refusal::new(ErrorCode::NotFound, "there is no such error code"))
    })?;
    let document = ErrorDocument {
        error_code: code,
        title: code.as_str().to_lowercase().replace('_', " "),
        status: code.http_status(),
        retryable: code.retryable(),
        remediation: code.remediation().to_owned(),
    };
    let mut response =
        if wants_page(&headers) { protect(page(&document)).await } else { answer::json(&document) };
    let vary = HeaderValue::from_static("accept");
    response.headers_mut().insert(header::VARY, vary);
    Ok(response)
}

fn page(document: &ErrorDocument) -> Response {
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
    let frame =
        Frame { title: &document.title, place: Place::Elsewhere, now: Timestamp::from_ms(0) };
    frame.open_page(StatusCode::OK, &content)
}
