//! The tools of the contracts: their states, and how their calls went in the last day.
//!
//! Owns both pages. The states are the engine's, the numbers those of the report.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_engine::{
    report::{ReportNumbers, ReportRange, ReportView},
    tool_states::{ServerState, ToolState, ToolStateView},
};
use placet_types::{
    error::ErrorCode,
    ids::CapabilityId,
    text::{visible, visible_json},
};

use super::{
    ConsoleState,
    page::Frame,
    session::Visitor,
    visitor::{PageId, Trouble, encoded, trouble},
    words::{self, Tone},
};

/// `GET /tools`.
pub(super) async fn list(
    State(app): State<ConsoleState>,
    visitor: Visitor,
) -> Result<Response, Trouble> {
    let engine = &app.api.engine;
    let tools = engine.tool_states(&visitor.caller).await?;
    let report = engine.report(&visitor.caller, ReportRange::default()).await?;
    let (title, now) = ("Tools", app.console.now());
    let content = html! {
        h1 { (title) }
        p.lede { "The tools of your tenant’s contracts, whether each can be called, and how its calls of the last 24 hours went." }
        table.table.folds {
            caption.unseen { "Tools by server" }
            thead { tr {
                th scope="col" { "Tool" } th scope="col" { "State" } th scope="col" { "Server" } th scope="col" { "Mode" }
                th.number scope="col" { "Calls" } th.number scope="col" { "Failed" } th.number scope="col" { "Refused" }
            } }
            tbody { @for tool in &tools { (line(tool, numbers(&report, &tool.tool.capability_id))) } }
        }
    };
    Ok(Frame { title, place: "/tools", now }.page(&visitor, &content))
}

/// The numbers of one tool, where it was called.
fn numbers<'a>(report: &'a ReportView, id: &CapabilityId) -> Option<&'a ReportNumbers> {
    let row = report.rows.iter().find(|row| {
        row.adapter == id.adapter().as_str() && row.capability == id.capability().as_str()
    });
    row.map(|row| &row.numbers)
}

fn line(one: &ToolStateView, numbers: Option<&ReportNumbers>) -> Markup {
    let path = format!("/tools/{}", encoded(&one.tool.tool));
    let count = |of: fn(&ReportNumbers) -> u64| numbers.map_or(0, of);
    html! {
        tr data-href=(path) {
            th scope="row" { a href=(path) { (visible(&one.tool.tool)) }
                @if let Some(alias) = &one.tool.alias { br; span.small.soft { "also " (visible(alias)) } } }
            td data-label="State" { (state(one.state)) }
            td data-label="Server" { (server(one.server)) }
            td data-label="Mode" { (words::mode(one.tool.mode_highest)) }
            td.number data-label="Calls" { (count(|numbers| numbers.calls)) }
            td.number data-label="Failed" { (count(|numbers| numbers.failed.saturating_add(numbers.unknown))) }
            td.number data-label="Refused" { (count(|numbers| numbers.refused)) }
        }
    }
}

fn state(state: ToolState) -> Markup {
    let (tone, word) = match state {
        ToolState::Callable => (Tone::Good, "callable"),
        ToolState::Disabled => (Tone::Plain, "disabled"),
        ToolState::Unpinned => (Tone::Warn, "not pinned"),
        ToolState::Quarantined => (Tone::Bad, "quarantined"),
        ToolState::Drifted => (Tone::Bad, "changed"),
    };
    words::mark(tone, word)
}

fn server(state: ServerState) -> Markup {
    let (tone, word) = match state {
        ServerState::Connected => (Tone::Good, "connected"),
        ServerState::Idle => (Tone::Plain, "not used lately"),
        ServerState::Unreachable => (Tone::Bad, "unreachable"),
        ServerState::BreakerOpen => (Tone::Bad, "failing, gets no calls for a while"),
    };
    words::mark(tone, word)
}

/// `GET /tools/{id}`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(name): PageId<String>,
) -> Result<Response, Trouble> {
    let tools = app.api.engine.tool_states(&visitor.caller).await?;
    let one = tools.iter().find(|one| one.tool.tool == name);
    let one = one.ok_or_else(|| trouble(ErrorCode::NotFound, "there is no such tool"))?;
    let (title, now) = (visible(&name), app.console.now());
    let tool = &one.tool;
    let decisions = format!("/decisions?range=week&tool={}", encoded(&tool.tool));
    let content = html! {
        p.crumb { a href="/tools" { "Tools" } " › " (title) }
        h1 { (title) " " (state(one.state)) }
        @if let Some(why) = &one.why { p.card role="note" { (words::sentence(&visible(why))) } }
        div.card {
            @if !tool.description.is_empty() { (words::quotation(&tool.description)) }
            dl.facts {
                dt { "Operation" } dd { (tool.capability_id) }
                @if let Some(alias) = &tool.alias { dt { "Alias" } dd { (visible(alias)) } }
                dt { "Server" } dd { (one.adapter) " " (server(one.server)) }
                dt { "Mode" } dd { (words::mode(tool.mode_highest)) }
                dt { "Decisions" } dd { a href=(decisions) { "What was decided about its calls" } }
            }
        }
        (schema("Arguments", &tool.input_schema))
        @if let Some(output) = &tool.output_schema { (schema("Result", output)) }
    };
    Ok(Frame { title: &title, place: "/tools", now }.page(&visitor, &content))
}

fn schema(title: &str, schema: &serde_json::Value) -> Markup {
    let text = serde_json::to_string_pretty(schema).unwrap_or_default();
    html! {
        section.card {
            h2 { (title) }
            pre tabindex="0" role="region" aria-label=(title) { code { (visible_json(&text)) } }
        }
    }
}
