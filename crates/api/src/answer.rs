//! Answers of the engine as HTTP: the one place where they get a status, headers and a body.
//!
//! Owns the mapping, for plain responses and for events alike. Does not wait for anything.

use axum::{
    Json,
    response::{IntoResponse, Response, sse::Event},
};
use http::{StatusCode, header};
use serde::Serialize;

use placet_engine::answer::Answer;

use crate::problem::{Failure, call_location};

/// The media type of every other document.
pub(crate) const JSON: &str = "application/json";
/// The `Cache-Control` of what never changes under its address.
pub const IMMUTABLE: &str = "public, max-age=31536000, immutable";

/// A document with status 200.
pub(crate) fn json(document: &impl Serialize) -> Response {
    Json(document).into_response()
}

/// A document with another status.
pub(crate) fn json_with_status(status: StatusCode, document: &impl Serialize) -> Response {
    (status, Json(document)).into_response()
}

/// The state of a call, as a response.
pub(crate) fn respond(answer: &Answer) -> Response {
    match answer {
        Answer::Finished(result) => json(result),
        Answer::Held(held) => {
            let mut response = json_with_status(StatusCode::ACCEPTED, &held.result);
            let location =
                call_location(&held.call_id).map(|location| (header::LOCATION, location));
            response.headers_mut().extend(location);
            response
        }
        Answer::InProgress(result) => Failure::in_progress(result).into_response(),
        Answer::Refused(refused) => Failure::of_call(refused).into_response(),
    }
}

/// The state of a call, as an event whose data are the envelope (TM-03).
pub(crate) fn event(answer: &Answer) -> Result<Event, axum::Error> {
    let name = match answer {
        Answer::Finished(_) => "finished",
        Answer::Held(_) => "held",
        Answer::InProgress(_) => "in_progress",
        Answer::Refused(_) => "refused",
    };
    Event::default().event(name).json_data(answer.envelope())
}

#[cfg(test)]
mod tests;
