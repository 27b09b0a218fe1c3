//! `/`: the inbox for a browser, what this service is for everybody else.
//!
//! Owns the choice between the two.

use axum::{
    Json,
    extract::State,
    response::{IntoResponse as _, Response},
};
use http::{HeaderMap, header};
use placet_api::documents::AboutDocument;

use super::{
    ConsoleState, inbox,
    session::Visitor,
    visitor::{PageQuery, Trouble},
};

/// `GET /`.
pub(super) async fn home(
    State(app): State<ConsoleState>,
    headers: HeaderMap,
    visitor: Result<Visitor, Response>,
    query: Result<PageQuery, Trouble>,
) -> Result<Response, Trouble> {
    if !wants_page(&headers) {
        return Ok(Json(AboutDocument::of_this_service()).into_response());
    }
    match visitor {
        Ok(visitor) => inbox::show(&app, &visitor, query?).await,
        Err(to_sign_in) => Ok(to_sign_in),
    }
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
