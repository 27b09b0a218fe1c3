//! What became of a call: its outcome in words, its result, and what an operator does where the outcome is unknown.
//!
//! Owns the card and its form. The engine determines who may record an outcome.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_approvals::views::{ApprovalDetail, OutcomeView};
use placet_engine::views::{ResolutionRequest, ResolvedOutcome};
use placet_types::{
    clock::Timestamp,
    ids::{ApprovalId, RecordId},
};
use serde_json::Value;

use crate::{
    ConsoleState,
    form::{Fields, Form},
    page::token,
    session::Visitor,
    tree,
    visitor::{PageId, Trouble, invalid},
    words,
};

/// The outcome; empty while people are asked.
pub(super) fn card(detail: &ApprovalDetail, visitor: &Visitor, now: Timestamp) -> Markup {
    let state = detail.approval.state.as_str();
    let Some(outcome) = detail.outcome.as_ref().filter(|_| state != "pending") else {
        return html! {};
    };
    html! {
        section.card aria-labelledby="outcome-title" {
            h2 #outcome-title { "Result" }
            p {
                span data-told { (words::state(state)) }
                " " span.small.soft { (words::relative(outcome.updated_at, now)) }
                @if let Some(code) = outcome.code { " " code { (code) } }
            }
            @if let Some(by) = &outcome.resolved_by { p { "The outcome was unknown; recorded by " (by) "." } }
            p { (words::end(state)) }
            @if state == "unknown" { (resolving(detail, outcome, visitor)) }
            @if let Some(output) = &outcome.output {
                details #output open { summary { "Its output" } (tree::value(output)) }
            }
        }
    }
}

/// What is to be done about an unknown outcome, and the form where the reader may do it.
fn resolving(detail: &ApprovalDetail, outcome: &OutcomeView, visitor: &Visitor) -> Markup {
    html! {
        p.notice.warn {
            "The call is not sent again. An operator looks at the target, finds out whether it took effect, and records that"
            @if outcome.may_resolve { " below." } @else { "." }
        }
        @if outcome.may_resolve {
            form method="post" action={ "/approvals/" (detail.approval.approval_id) "/outcome" } {
                (token(visitor))
                input type="hidden" name="record" value=(outcome.record_id);
                div.field {
                    label for="found" { "What you found at the target" }
                    select #found name="outcome" required {
                        option value="" { "Choose" }
                        option value="happened" { "It took effect" }
                        option value="did_not_happen" { "It did not take effect" }
                    }
                }
                div.field {
                    label for="evidence" { "How you know" }
                    textarea #evidence name="reason" required maxlength="2000" aria-describedby="evidence-hint" {}
                    p #evidence-hint.hint { "Kept with your name for the auditor." }
                }
                div.row.wide-button { button.yes type="submit" { "Record the outcome" } }
            }
        }
        p.small.soft { "On the command line: " code { "placet ledger resolve " (outcome.record_id) } }
    }
}

/// `POST /approvals/{id}/outcome`.
pub(crate) async fn resolve(
    State(app): State<ConsoleState>,
    PageId(id): PageId<ApprovalId>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let record: RecordId = fields.needed("record", "the record")?;
    let request = ResolutionRequest {
        outcome: found(&fields)?,
        evidence: fields.reason()?,
        output: Value::Null,
    };
    let resolved = app.api.engine.resolve(&visitor.caller, record, request).await;
    super::after(&app, &visitor, &id, resolved, "resolve", "Nothing was recorded").await
}

fn found(fields: &Fields) -> Result<ResolvedOutcome, Trouble> {
    match fields.get("outcome") {
        Some("happened") => Ok(ResolvedOutcome::Happened),
        Some("did_not_happen") => Ok(ResolvedOutcome::DidNotHappen),
        Some(_) | None => Err(invalid("choose whether it took effect or not")),
    }
}
