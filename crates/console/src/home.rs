//! `/`: the inbox for a browser, what this service is for everybody else.
//!
//! Owns the choice between the two.

use axum::{
    Json,
    extract::{FromRequestParts as _, Request, State},
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, header};
use placet_api::documents::AboutDocument;

use super::{ConsoleState, inbox, session::Visitor, visitor::PageQuery};

/// `GET /`.
pub(super) async fn home(State(app): State<ConsoleState>, request: Request) -> Response {
    if !wants_page(request.headers()) {
        return Json(AboutDocument::of_this_service()).into_response();
    }
    let (mut parts, _) = request.into_parts();
    let visitor = match Visitor::from_request_parts(&mut parts, &app).await {
        Ok(visitor) => visitor,
        Err(to_sign_in) => return to_sign_in,
    };
    let query = match PageQuery::from_request_parts(&mut parts, &app).await {
        Ok(query) => query,
        Err(trouble) => return trouble.into_response(),
    };
    inbox::show(&app, &visitor, &query).await.unwrap_or_else(|trouble| trouble.into_response())
}

/// Programs ask for JSON or for anything; browsers name HTML.
pub(super) fn wants_page(headers: &HeaderMap) -> bool {
    let mut accepted =
        headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| {
        value.split(',').any(|kind| {
            let essence = kind.split(';').next().unwrap_or_default().trim();
            essence.eq_ignore_ascii_case("text/html")
        })
    })
}
