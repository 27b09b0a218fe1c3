//! The runs that are open, and the turns of each.
//!
//! Owns both pages. The engine determines which runs somebody sees.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_engine::runs::batch_views::{BatchRecord, CallRecord, OpenRunView};
use placet_types::{
    envelope::result::ResultStatus, error::ErrorCode, ids::RunId, taint, text::visible,
};

use super::{
    ConsoleState,
    page::Frame,
    session::Visitor,
    visitor::{PageId, Trouble, encoded, trouble},
    words::{self, Tone},
};

/// `GET /runs`.
pub(super) async fn list(
    State(app): State<ConsoleState>,
    visitor: Visitor,
) -> Result<Response, Trouble> {
    let found = app.api.engine.runs(&visitor.caller, None).await?;
    let (title, now) = ("Runs", app.console.now());
    let content = html! {
        h1 { (title) }
        p.lede { "The runs that are open on this server: tasks of agents whose calls come in turns. Operators and auditors see all of their tenant, others those of their agents and those that act for them." }
        @if found.more { p.card role="note" { "There are more. These were used last." } }
        @if found.runs.is_empty() { p.card { "No run is open." } }
        @else {
            table.table.folds {
                caption.unseen { "Open runs, the ones used last first" }
                thead { tr {
                    th scope="col" { "Run" } th scope="col" { "Agent, for whom" } th.number scope="col" { "Turn" }
                    th.number scope="col" { "Calls" } th.number scope="col" { "Waiting" } th scope="col" { "Ceiling" } th scope="col" { "Last used" }
                } }
                tbody { @for run in &found.runs { (line(run)) } }
            }
        }
    };
    Ok(Frame { title, place: "/runs", now }.page(&visitor, &content))
}

fn address(run: &OpenRunView) -> String {
    format!("/runs/{}", encoded(run.run_id.as_str()))
}

fn line(run: &OpenRunView) -> Markup {
    html! {
        tr data-href=(address(run)) {
            th scope="row" { a href=(address(run)) { (visible(run.run_id.as_str())) } @if run.is_session { " " span.small.soft { "session" } } }
            td data-label="Agent" { (whose(run)) }
            td.number data-label="Turn" { (run.iteration) }
            td.number data-label="Calls" { (run.calls_used) " of " (run.run_budget.calls_max) }
            td.number data-label="Waiting" { (run.pending) }
            td data-label="Ceiling" { (words::mode(run.safety_mode)) }
            td.nowrap data-label="Last used" { (words::length(run.idle_ms)) " ago" }
        }
    }
}

fn whose(run: &OpenRunView) -> Markup {
    html! { (run.agent) @if let Some(user) = &run.on_behalf_of { span.soft { " for " } (user) } }
}

/// `GET /runs/{id}`: every open run of this name.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(id): PageId<RunId>,
) -> Result<Response, Trouble> {
    let found = app.api.engine.runs(&visitor.caller, Some(&id)).await?;
    if found.runs.is_empty() {
        return Err(trouble(ErrorCode::RunNotFound, "there is no such run open here"));
    }
    let (title, now) = (format!("Run {}", visible(id.as_str())), app.console.now());
    let content = html! {
        p.crumb { a href="/runs" { "Runs" } " › " (visible(id.as_str())) }
        @for run in &found.runs {
            h1 { (title) }
            (facts(run))
            section.card aria-label="Turns" {
                h2 { "Turns" }
                @if run.batches.is_empty() { p { "It has made no call yet." } }
                ol.timeline { @for batch in &run.batches { li { (turn(batch)) } } }
            }
        }
    };
    Ok(Frame { title: &title, place: "/runs", now }.page(&visitor, &content))
}

fn facts(run: &OpenRunView) -> Markup {
    let budget = &run.run_budget;
    let decisions = format!("/decisions?range=week&run={}", encoded(run.run_id.as_str()));
    html! {
        div.card {
            dl.facts {
                dt { "Agent" } dd { (whose(run)) }
                dt { "Next turn" } dd { (run.iteration) }
                dt { "Ceiling" } dd { (words::mode(run.safety_mode)) }
                dt { "Budget" } dd { (run.calls_used) " of " (budget.calls_max) " calls, " (run.cents_used) " of " (budget.cost_cents_max) " cents" }
                @if !run.taint.is_empty() { dt { "In its context" } dd { (taint::listed(&run.taint)) } }
                dt { "Last used" } dd { (words::length(run.idle_ms)) " ago" }
                dt { "Decisions" } dd { a href=(decisions) { "What was decided about its calls" } ", with the trace of each" }
            }
        }
    }
}

fn turn(batch: &BatchRecord) -> Markup {
    html! {
        strong { "Turn " (batch.iteration) }
        @if let Some(id) = &batch.batch_id { " " span.small.soft.mono { (visible(id.as_str())) } }
        " " span.small.soft { (words::length(batch.debug.took_ms)) }
        ul.reasons { @for call in &batch.calls { li { (called(call)) } } }
    }
}

fn called(call: &CallRecord) -> Markup {
    html! {
        (visible(&call.tool)) " " (standing(call))
        @if let Some(first) = &call.duplicate_of { " " span.small.soft { "equal to " (visible(first)) } }
        @if let Some(id) = &call.tool_call_id { br; span.small.soft.mono {
            @if call.error_code == Some(ErrorCode::ApprovalPending) { a href={ "/calls/" (id) "/timeline" } { (id) } }
            @else { (id) }
        } }
    }
}

fn standing(call: &CallRecord) -> Markup {
    let (tone, word) = match call.status {
        ResultStatus::Succeeded => (Tone::Good, "succeeded"),
        ResultStatus::Failed => (Tone::Bad, "failed"),
        ResultStatus::Refused => (Tone::Bad, "refused"),
        ResultStatus::Pending => (Tone::Note, "waits"),
        ResultStatus::Unknown => (Tone::Warn, "outcome unknown"),
    };
    html! {
        (words::mark(tone, word))
        @if let Some(code) = call.error_code { " " code { (code) } }
    }
}
