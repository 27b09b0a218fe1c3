//! Policy decisions about calls: a list with filters, and each with what explains it.
//!
//! Owns both pages. The engine determines who may see which.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_engine::views::decisions::{
    CallOutcome, DecisionVerdict, DecisionView, DecisionsPage, DecisionsQuery,
};
use placet_types::{clock::Timestamp, ids::DecisionId, mode::ApprovalMode, text::visible};

use super::{
    ConsoleState,
    inbox::choice,
    page::Frame,
    session::Visitor,
    visitor::{PageId, PageQuery, Trouble, encoded, invalid},
    words::{self, Tone},
};

/// The ranges to choose from: the name in the query, the label, and milliseconds.
const RANGES: [(&str, &str, i64); 4] = [
    ("hour", "Last hour", 3_600_000),
    ("day", "Last 24 hours", 86_400_000),
    ("week", "Last 7 days", 7 * 86_400_000),
    ("month", "Last 31 days", 31 * 86_400_000),
];
/// The longest text in a filter, in bytes.
const FILTER_BYTES_MAX: usize = 200;

/// `GET /decisions`.
pub(super) async fn list(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let now = app.console.now();
    let text = |name| query.get(name).filter(|text| text.len() <= FILTER_BYTES_MAX);
    let range = RANGES.into_iter().find(|(name, ..)| query.get("range") == Some(*name));
    let range = range.unwrap_or(RANGES[1]);
    let wanted = DecisionsQuery {
        agent: filter(&query, "agent", |name| name.parse().ok())?,
        tool: text("tool").map(str::to_owned),
        verdict: filter(&query, "verdict", |name| name.parse().ok())?,
        outcome: filter(&query, "outcome", |name| name.parse().ok())?,
        policy: text("policy").map(str::to_owned),
        run: filter(&query, "run", |name| name.parse().ok())?,
        directive: filter(&query, "entry", |id| id.parse().ok())?,
        from: Some(now.plus_ms(range.2.saturating_neg())),
        to: query.read::<i64>("to").map(Timestamp::from_ms),
        ..DecisionsQuery::default()
    };
    let found = app.api.engine.decisions(&visitor.caller, wanted.clone()).await?;
    let title = "Decisions";
    let content = html! {
        h1 { (title) }
        p.lede { "What the policies decided about calls, from the audit chain. You see those that you may see: operators and auditors all of their tenant, others those of their agents, those made for them, and those that relied on a break-glass record that they review." }
        (filters(&wanted, &query, range.0))
        @if found.incomplete {
            p.card role="note" { "Many entries of the audit chain were read. There may be further decisions: go on, or choose a shorter range." }
        }
        (table(&found, now))
        @if let Some(next) = found.next_to {
            nav.row aria-label="Pages" { a.button rel="next" href=(query.address("/decisions", Some(("to", &next.as_ms().to_string())))) { "Older ones" } }
        }
    };
    Ok(Frame { title, place: "/decisions", now }.page(&visitor, &content))
}

/// The value of a filter; one that names nothing is refused, not dropped.
fn filter<T>(
    query: &PageQuery,
    name: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, Trouble> {
    let Some(value) = query.get(name) else { return Ok(None) };
    let unknown = || invalid(&format!("`{value}` is no {name} to filter by"));
    read(value).map(Some).ok_or_else(unknown)
}

fn filters(wanted: &DecisionsQuery, query: &PageQuery, range: &str) -> Markup {
    let texts = [
        ("agent", "Agent"),
        ("tool", "Tool"),
        ("policy", "Policy"),
        ("run", "Run"),
        ("entry", "Break-glass or grant"),
    ];
    html! {
        form.card method="get" action="/decisions" role="search" aria-label="Filter the decisions" {
            div.fields {
                @for (name, label) in texts {
                    div.field {
                        label for=(name) { (label) }
                        input #(name) name=(name) maxlength=(FILTER_BYTES_MAX) value=(query.get(name).unwrap_or_default());
                    }
                }
                (choice("verdict", "Verdict", std::iter::once(("", "Any", wanted.verdict.is_none())).chain(
                    DecisionVerdict::ALL.iter().map(|one| (one.as_str(), verdict(*one).1, wanted.verdict == Some(*one))))))
                (choice("outcome", "Outcome", std::iter::once(("", "Any", wanted.outcome.is_none())).chain(
                    CallOutcome::ALL.iter().map(|one| (one.as_str(), outcome(*one).1, wanted.outcome == Some(*one))))))
                (choice("range", "When", RANGES.iter().map(|(name, label, _)| (*name, *label, *name == range))))
                div.field { button type="submit" { "Show" } }
            }
        }
    }
}

const fn verdict(verdict: DecisionVerdict) -> (Tone, &'static str) {
    match verdict {
        DecisionVerdict::Allow => (Tone::Good, "allowed"),
        DecisionVerdict::Hold => (Tone::Note, "held for people"),
        DecisionVerdict::Deny => (Tone::Bad, "denied"),
    }
}

const fn outcome(outcome: CallOutcome) -> (Tone, &'static str) {
    match outcome {
        CallOutcome::Succeeded => (Tone::Good, "succeeded"),
        CallOutcome::Failed => (Tone::Bad, "failed"),
        CallOutcome::Unknown => (Tone::Warn, "outcome unknown"),
        CallOutcome::NotExecuted => (Tone::Plain, "not executed"),
    }
}

fn table(found: &DecisionsPage, now: Timestamp) -> Markup {
    html! {
        @if found.decisions.is_empty() { p.card { "There are no such decisions in this range." } }
        @else {
            table.table.folds {
                caption.unseen { "Decisions, newest first" }
                thead { tr {
                    th scope="col" { "Operation" } th scope="col" { "Verdict" } th scope="col" { "Outcome" } th scope="col" { "Who, for whom" }
                    th scope="col" { "Policies" } th scope="col" { "When" }
                } }
                tbody { @for one in &found.decisions { (line(one, now)) } }
            }
        }
    }
}

fn line(one: &DecisionView, now: Timestamp) -> Markup {
    let path = format!("/decisions/{}", one.decision_id);
    let (tone, word) = verdict(one.verdict);
    html! {
        tr data-href=(path) {
            th scope="row" { a href=(path) { (one.capability_id) } br; span.small.soft.mono { (one.decision_id) } }
            td data-label="Verdict" { (words::mark(tone, word)) }
            td data-label="Outcome" { @match one.outcome.map(outcome) { Some((tone, word)) => { (words::mark(tone, word)) }, None => { span.soft { "–" } } } }
            td data-label="Who" { (words::chain(&one.principal_chain)) }
            td data-label="Policies" {
                @if one.policies.is_empty() { span.soft { (one.denial.as_deref().unwrap_or("–")) } }
                @for (at, policy) in one.policies.iter().enumerate() { @if at > 0 { ", " } (visible(&policy.policy)) }
            }
            td.nowrap data-label="When" { (words::relative(one.at, now)) }
        }
    }
}

/// The mode that was asked for and the contract's, where the call has another.
fn modes(one: &DecisionView) -> Markup {
    html! { span.small.soft {
        @if one.mode_requested != one.mode_effective { " Asked for as " (one.mode_requested) "." }
        @if one.mode_highest != one.mode_effective { " The contract's is " (one.mode_highest) "." }
        @for policy in &one.lowered_by { " Lowered by " code { (visible(&policy.policy)) } " for " (policy.about) "." }
    } }
}

/// `GET /decisions/{id}`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(id): PageId<DecisionId>,
) -> Result<Response, Trouble> {
    let one = app.api.engine.decision(&visitor.caller, &id).await?;
    let now = app.console.now();
    let (tone, word) = verdict(one.verdict);
    let title = format!("{} · {word}", one.capability_id);
    let content = html! {
        p.crumb { a href="/decisions" { "Decisions" } " › " (one.decision_id) }
        h1 { (one.capability_id) " " (words::mark(tone, word)) }
        div.card {
            dl.facts {
                dt { "Who" } dd { (words::chain(&one.principal_chain)) }
                dt { "When" } dd { (words::relative(one.at, now)) " " span.small.soft { "(" (words::exact(one.at)) ")" } }
                dt { "Mode" } dd { (words::mode(one.mode_effective)) (modes(&one)) }
                @if let Some(denial) = &one.denial { dt { "Denied by" } dd { (words::spaced(denial)) } }
                @if let Some((tone, word)) = one.outcome.map(outcome) { dt { "Outcome" } dd { (words::mark(tone, word)) } }
                @if let Some(code) = one.code { dt { "The agent got" } dd { code { (code) } } }
                dt { "Call" } dd {
                    @if has_timeline(&one) { a href={ "/calls/" (one.call_id) "/timeline" } { (one.call_id) } }
                    @else { (one.call_id) }
                }
                @if let Some(run) = &one.run_id {
                    dt { "Run" } dd { a href={ "/decisions?range=week&run=" (encoded(run.as_str())) } { (visible(run.as_str())) } }
                }
                @if let Some(trace) = &one.trace_id { dt { "Trace" } dd { code { (trace) } } }
                @if let Some(approval) = &one.approval_id { dt { "Approval" } dd { a href={ "/approvals/" (approval) } { (approval) } } }
            }
        }
        (explanation(&one))
        details #place.card {
            summary { "Where it stands, and its digests" }
            dl.facts.small {
                dt { "Log" } dd { code { (one.log) } ", entry " (one.seq) }
                dt { "Hash" } dd { code { (one.hash) } }
                dt { "Policies that decided" } dd { code { (one.bundle_digest) } }
            }
        }
    };
    Ok(Frame { title: &title, place: "/decisions", now }.page(&visitor, &content))
}

/// Whether the call has a record, which its timeline is read from: it was held, or it changes something and was permitted.
fn has_timeline(one: &DecisionView) -> bool {
    let writes = one.mode_effective != ApprovalMode::ReadOnly;
    one.approval_id.is_some() || (writes && one.verdict == DecisionVerdict::Allow)
}

/// Why this was decided.
fn explanation(one: &DecisionView) -> Markup {
    html! {
        section.card aria-labelledby="explanation-title" {
            h2 #explanation-title { "Why" }
            @if one.policies.is_empty() && one.notes.is_empty() && one.errors.is_empty() {
                p { "No policy permits it." }
            }
            ul.reasons {
                @for policy in &one.policies {
                    li {
                        "Policy " strong { (visible(&policy.policy)) } (if policy.permits { " permits it" } else { " stands against it" })
                        " for " (policy.about) "."
                        @if let Some(reason) = &policy.reason { " " span.soft { (visible(reason)) } }
                    }
                }
                @for note in one.notes.iter().chain(&one.errors) { li { (words::with_code(&words::sentence(note))) } }
            }
        }
    }
}
