//! How the desk is doing, in three charts.
//!
//! Owns the page; the drawing is [`super::charts`]'s.

use axum::{extract::State, response::Response};
use maud::html;
use placet_pipeline::views::desk::InboxQuery;

use super::{
    Desk, charts,
    page::{Frame, Place},
    visitor::{Trouble, Visitor},
};
use crate::backend::Backend;

/// `GET /load`.
pub(super) async fn show<B: Backend>(
    State(desk): State<Desk<B>>,
    visitor: Visitor<B::Caller>,
) -> Result<Response, Trouble> {
    let query = InboxQuery { limit: 1, ..InboxQuery::default() };
    let inbox = desk.door.read(desk.door.backend.inbox(&visitor.caller, query)).await?;
    let (title, now) = ("Load of the desk", desk.console.now());
    let load = &inbox.load;
    let content = html! {
        h1 { (title) }
        p.lede { "How long calls wait for people, how long decisions take, and which groups have most to do." }
        div #charts.tiles data-live {
            (charts::by_age(load).draw("by-age"))
            (charts::to_decision(load).draw("to-decision"))
            (charts::by_group(load).draw("by-group"))
            @if let Some(words) = charts::decision_words(load) { p.card { (words) } }
        }
    };
    Ok(Frame { title, place: Place::Load, now }.page(&visitor, &content))
}
