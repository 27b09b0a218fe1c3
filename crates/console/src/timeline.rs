//! A call's way from plan to effect, step by step, from the audit chain.
//!
//! Owns the page.

use axum::{extract::State, response::Response};
use maud::html;
use placet_approvals::views::TimelineView;
use placet_types::{clock::Timestamp, ids::ToolCallId, principal, taint};

use super::{
    ConsoleState,
    page::Frame,
    session::Visitor,
    visitor::{PageId, Trouble},
    words,
};

/// `GET /calls/{id}/timeline`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(id): PageId<ToolCallId>,
) -> Result<Response, Trouble> {
    let timeline = app.api.engine.approvals().timeline(&visitor.caller, &id).await?;
    Ok(view(&timeline, &visitor, app.console.now()))
}

/// The page of what was read.
pub(super) fn view(timeline: &TimelineView, visitor: &Visitor, now: Timestamp) -> Response {
    let TimelineView { call_id, steps, incomplete } = timeline;
    let title = "Timeline";
    let content = html! {
        p.crumb { a href="/" { "Inbox" } " › " (call_id) }
        h1 { (title) }
        p.lede { "The steps that the audit chain holds of this call, in order. Each can be proved by its hash." }
        div #timeline data-live data-name="The timeline" {
            @if *incomplete {
                p.card { "So much was written to the chain meanwhile, or so much of it is not kept here any more, that not all of it was looked through: there may be further steps between these." }
            }
            @if steps.is_empty() && !incomplete { p.card { "The chain holds no step of this call." } }
            ol.timeline {
                @for step in steps {
                    li {
                        strong { (words::spaced(&step.kind)) }
                        @if let Some(by) = &step.by { " by " strong { (by) } }
                        @if let Some(code) = step.code { " " code { (code) } }
                        br;
                        span.small.soft { (words::exact(step.at)) " · " (words::relative(step.at, now)) }
                        @if !step.taint.is_empty() { br; span.small { "In the run’s context: " (taint::listed(&step.taint)) } }
                        @if !step.audiences.is_empty() { br; span.small { "With a token for several services: " (principal::listed(&step.audiences)) } }
                        @if let Some(note) = &step.note { (words::quotation(note)) }
                        details #{ "step-" (step.log) "-" (step.seq) } {
                            summary.small { "Where it stands, and its digests" }
                            dl.facts.small {
                                dt { "Log" } dd { code { (step.log) } ", entry " (step.seq) }
                                dt { "Hash" } dd { code { (step.hash) } } @for id in &step.directives { dt { "Under" } dd { code { (id) } } }
                                @for (name, digest) in &step.digests { dt { (words::spaced(name)) } dd { code { (digest) } } }
                            }
                        }
                    }
                }
            }
        }
    };
    Frame { title, place: "", now }.page(visitor, &content)
}
