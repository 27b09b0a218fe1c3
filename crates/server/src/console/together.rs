//! Several calls decided at once: looked at first, each with what exactly will run, then decided and recorded each apart.
//!
//! Owns the two pages. Invariant: only what the first page showed can be decided by the second.

use axum::{extract::State, response::Response};
use http::StatusCode;
use maud::{Markup, html};
use placet_pipeline::views::{
    ApprovalDetail,
    desk::{TOGETHER_MAX, TogetherItem, TogetherRequest, TogetherView},
};
use placet_types::{error::ErrorCode, ids::ApprovalId};

use super::{
    Desk, decide,
    form::Form,
    grant::reason_field,
    page::{Frame, Place, token},
    tree,
    visitor::{Trouble, Visitor, trouble},
    words::{self, Tone},
};
use crate::backend::Backend;

/// `POST /together`: shows the chosen ones; changes nothing.
pub(super) async fn look<B: Backend>(
    State(desk): State<Desk<B>>,
    form: Form<B::Caller>,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let chosen: Vec<ApprovalId> = fields.all("pick").filter_map(|id| id.parse().ok()).collect();
    if chosen.is_empty() || chosen.len() > TOGETHER_MAX {
        let message = format!("choose 1 to {TOGETHER_MAX} calls in the inbox first");
        return Err(trouble(ErrorCode::ValidationError, &message));
    }
    let mut details = Vec::new();
    for id in &chosen {
        match desk.door.read(desk.door.backend.approval(&visitor.caller, id)).await {
            Ok(detail) => details.push(detail),
            Err(failure) if failure.document().error_code == ErrorCode::NotFound => {}
            Err(failure) => return Err(Trouble(failure)),
        }
    }
    let (title, now) = ("Decide together", desk.console.now());
    let open: Vec<&ApprovalDetail> = details
        .iter()
        .filter(|detail| detail.standing.may_approve || detail.standing.may_deny)
        .collect();
    let content = html! {
        p.crumb { a href="/" { "Inbox" } " › " (title) }
        h1 { (title) }
        p.lede {
            "You decide on " (words::count(open.len(), "call", "calls")) " with one reason. Each is recorded apart, and each only as it is shown here."
        }
        @if open.len() < chosen.len() {
            p.notice.warn { (words::count(chosen.len().saturating_sub(open.len()), "chosen call is", "chosen calls are")) " not yours to decide any more and left out." }
        }
        @if !open.is_empty() { (decision(&open, &visitor)) }
    };
    Ok(Frame { title, place: Place::Inbox, now }.page(&visitor, &content))
}

fn decision<C>(details: &[&ApprovalDetail], visitor: &Visitor<C>) -> Markup {
    html! {
        form method="post" action="/together/decision" {
            (token(visitor))
            @for detail in details {
                section.card aria-label={ (detail.approval.capability_id) ", " (detail.approval.approval_id) } {
                    h2 { (detail.approval.capability_id) " " (words::mode(detail.approval.mode)) }
                    p { (words::chain(&detail.approval.principal_chain)) " · " a href={ "/approvals/" (detail.approval.approval_id) } { "its own page" } }
                    (tree::arguments(detail.preview()))
                    input type="hidden" name="item" value={ (detail.approval.approval_id) " " (detail.approval.digest) };
                }
            }
            div.card {
                (reason_field())
                div.row.wide-button {
                    button.yes type="submit" name="decision" value="approve" { "Approve all " (details.len()) }
                    button.no type="submit" name="decision" value="deny" { "Deny all " (details.len()) }
                }
            }
        }
    }
}

/// `POST /together/decision`.
pub(super) async fn decide<B: Backend>(
    State(desk): State<Desk<B>>,
    form: Form<B::Caller>,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let item = |text: &str| {
        let (id, digest) = text.split_once(' ')?;
        Some(TogetherItem { approval_id: id.parse().ok()?, digest: digest.parse().ok()? })
    };
    let approvals: Option<Vec<TogetherItem>> = fields.all("item").map(item).collect();
    let approvals = approvals.filter(|items| (1..=TOGETHER_MAX).contains(&items.len()));
    let approvals = approvals.ok_or_else(|| {
        trouble(ErrorCode::ValidationError, "the list of what is decided is missing or malformed")
    })?;
    let request =
        TogetherRequest { decision: decide::choice(&fields)?, reason: fields.reason()?, approvals };
    let (backend, caller) = (desk.door.backend.clone(), visitor.caller.clone());
    let done = desk.door.write(async move { backend.decide_together(&caller, request).await });
    let done = done.await?;
    let (title, now) = ("Decided together", desk.console.now());
    let status = if done.refused.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let content = html! {
        p.crumb { a href="/" { "Inbox" } " › " (title) }
        h1 { (title) }
        (results(&done))
        p { a.button href="/" { "Back to the inbox" } }
    };
    // Looking at the answer again sends nothing again: the browser asks before it repeats a form.
    Ok(Frame { title, place: Place::Inbox, now }.page_with(status, &visitor, &content))
}

fn results(done: &TogetherView) -> Markup {
    html! {
        @if !done.decided.is_empty() {
            section.card aria-labelledby="decided" {
                h2 #decided { (words::count(done.decided.len(), "decision is recorded", "decisions are recorded")) }
                ul.list {
                    @for approval in &done.decided {
                        li { a href={ "/approvals/" (approval.approval_id) } { (approval.capability_id) } " " (words::state(&approval.state)) }
                    }
                }
            }
        }
        @if !done.refused.is_empty() {
            section.card aria-labelledby="refused" {
                h2 #refused { (words::count(done.refused.len(), "was not decided", "were not decided")) }
                ul.list {
                    @for refusal in &done.refused {
                        li { (words::mark(Tone::Bad, "not decided")) " " a href={ "/approvals/" (refusal.approval_id) } { (refusal.approval_id) } ": " (words::sentence(&refusal.message)) }
                    }
                }
            }
        }
    }
}
