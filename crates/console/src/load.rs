//! The load of the approval service, in three charts.
//!
//! Owns the page; the drawing is [`super::charts`]'s.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_approvals::views::InboxQuery;
use placet_engine::views::status::StatusView;
use placet_types::clock::Timestamp;

use super::{ConsoleState, charts, page::Frame, session::Visitor, visitor::Trouble, words};

/// `GET /load`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
) -> Result<Response, Trouble> {
    let query = InboxQuery { limit: 1, ..InboxQuery::default() };
    let inbox = app.api.engine.approvals().inbox(&visitor.caller, query).await?;
    let (title, now) = ("Approval load", app.console.now());
    let load = &inbox.load;
    let status = app.api.engine.status(&visitor.caller);
    let content = html! {
        h1 { (title) }
        p.lede { "How long calls wait for people, how long decisions take, and which groups have most to do." }
        div #charts.tiles data-live {
            (charts::by_age(load).draw("by-age"))
            (charts::to_decision(load).draw("to-decision"))
            (charts::by_group(load).draw("by-group"))
            @if let Some(words) = charts::decision_words(load) { p.card { (words) } }
            (what_decides(&status, now))
        }
    };
    Ok(Frame { title, place: "/load", now }.page(&visitor, &content))
}

/// What is active, and since when.
fn what_decides(status: &StatusView, now: Timestamp) -> Markup {
    html! {
        div.card #active {
            h2 { "Active policies" }
            p {
                "Policies, contracts, directory and issuers " code { (status.active.short()) }
                ", with the policies " code { (status.bundle.short()) }
                ", epoch " (status.epoch) ", active since " (words::relative(status.since, now)) "."
            }
            @if let Some(epoch) = status.epoch_elsewhere {
                p { "This server decides nothing: another has activated epoch " (epoch) ", which this one does not have." }
            }
        }
    }
}
