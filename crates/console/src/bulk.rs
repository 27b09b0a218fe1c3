//! Several calls decided at once: first a page that shows what exactly each will run, then the decisions, each recorded separately.
//!
//! Owns the two pages. Invariants: the second page decides only what the first one showed, each under the digest of what was shown; for
//! each call it shows what the call's own page says about what runs, who changed it, why it waits and what a decision does.

use axum::{
    extract::State,
    response::{Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use placet_approvals::views::{
    ApprovalDetail, BULK_MAX, BulkDecisionRequest, BulkDecisionView, BulkItem,
};
use placet_types::{clock::Timestamp, error::ErrorCode, ids::ApprovalId};

use super::{
    ConsoleState, call, decide,
    form::Form,
    grant::reason_field,
    page::{Frame, token},
    session::Visitor,
    visitor::{Trouble, invalid},
    words::{self, Tone},
};

/// `GET` of either page: there is nothing to show without a selection.
pub(super) async fn back() -> Redirect {
    Redirect::to("/")
}

/// `POST /together`: shows the chosen ones; changes nothing.
pub(super) async fn look(State(app): State<ConsoleState>, form: Form) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let chosen: Vec<ApprovalId> = fields.all("pick").filter_map(|id| id.parse().ok()).collect();
    if chosen.is_empty() || chosen.len() > BULK_MAX {
        let message = format!("choose 1 to {BULK_MAX} calls in the inbox first");
        return Err(invalid(&message));
    }
    let mut details = Vec::new();
    for id in &chosen {
        match app.api.engine.approvals().approval(&visitor.caller, id).await {
            Ok(detail) => details.push(detail),
            Err(refusal) if refusal.code == ErrorCode::NotFound => {}
            Err(refusal) => return Err(refusal.into()),
        }
    }
    Ok(view(&details, chosen.len(), &visitor, app.console.now()))
}

/// The page with the calls that could be read, of this many selected.
pub(super) fn view(
    details: &[ApprovalDetail],
    chosen: usize,
    visitor: &Visitor,
    now: Timestamp,
) -> Response {
    let title = "Decide together";
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
        @if open.len() < chosen {
            p.notice.warn { (words::count(chosen.saturating_sub(open.len()), "chosen call is", "chosen calls are")) " not yours to decide any more and left out." }
        }
        @if !open.is_empty() { (warnings(&open)) (decision(&open, visitor, now)) }
    };
    Frame { title, place: "/", now }.page(visitor, &content)
}

/// Warnings that have to be read first.
fn warnings(details: &[&ApprovalDetail]) -> Markup {
    let edited = details.iter().filter(|detail| call::is_edited(detail)).count();
    let unapprovable = details.iter().filter(|detail| !detail.standing.may_approve).count();
    html! {
        @if edited > 0 {
            p.notice.warn {
                strong { (words::count(edited, "call of these runs", "calls of these run")) " with changed arguments." }
                " What differs from what the agent asked for is marked in each."
            }
        }
        @if unapprovable > 0 {
            p.notice.note { (words::count(unapprovable, "call of these is", "calls of these are")) " only yours to deny; an approval of all leaves that undecided." }
        }
    }
}

fn decision(details: &[&ApprovalDetail], visitor: &Visitor, now: Timestamp) -> Markup {
    let may_approve = details.iter().any(|detail| detail.standing.may_approve);
    let may_deny = details.iter().any(|detail| detail.standing.may_deny);
    html! {
        form method="post" action="/together/decision" {
            (token(visitor))
            @for (at, detail) in details.iter().enumerate() { (item(at, detail, now)) }
            div.card {
                (reason_field())
                div.row.wide-button {
                    @if may_approve { button.yes type="submit" name="decision" value="approve" { "Approve all " (details.len()) } }
                    @if may_deny { button.no type="submit" name="decision" value="deny" { "Deny all " (details.len()) } }
                }
                p.hint { "Each decision is bound to what this page shows of the call, by its digest. One that changes meanwhile is not decided." }
            }
        }
    }
}

/// One of the calls, with the parts of its own page that matter for the decision.
fn item(at: usize, detail: &ApprovalDetail, now: Timestamp) -> Markup {
    let (approval, standing) = (&detail.approval, &detail.standing);
    let path = format!("/approvals/{}", approval.approval_id);
    html! {
        section.card.item aria-labelledby={ "item-" (at) } {
            h2 #{ "item-" (at) } {
                (at.saturating_add(1)) ". " (approval.capability_id)
                @if call::is_edited(detail) { " " (words::mark(Tone::Warn, "edited")) }
            }
            p.small { code { (approval.approval_id) } " · " a href=(path) { "its own page" } " with earlier calls, the credential and all digests" }
            dl.facts {
                (call::facts(detail, now))
                @if let Some(proposal) = &detail.proposal { dt { "In the run’s context" } dd { (call::taint(&proposal.evidence.taint)) } }
                dt { "Digest" } dd { (words::digest(&approval.digest)) }
            }
            h3 { "What exactly will run" }
            (call::runs(detail))
            h3 { "Why it waits for people" }
            (call::held(detail))
            h3 { "Decisions so far" }
            (call::decisions(detail, now))
            h3 { "What your decision does" }
            @if standing.needs_fresh_auth {
                p.notice.note { "This call wants somebody who has just proved who they are: to approve it, sign in again on " a href=(path) { "its own page" } "." }
            }
            @if let Some(why_not) = &standing.why_not {
                p.notice { (words::mark(Tone::Plain, "you cannot approve")) " " (words::sentence(why_not)) }
            }
            (call::on_decision(detail))
            input type="hidden" name="item" value={ (approval.approval_id) " " (approval.digest) };
        }
    }
}

/// `POST /together/decision`.
pub(super) async fn decide(
    State(app): State<ConsoleState>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let item = |text: &str| {
        let (id, digest) = text.split_once(' ')?;
        Some(BulkItem { approval_id: id.parse().ok()?, digest: digest.parse().ok()? })
    };
    let approvals: Option<Vec<BulkItem>> = fields.all("item").map(item).collect();
    let approvals = approvals.filter(|items| (1..=BULK_MAX).contains(&items.len()));
    let approvals =
        approvals.ok_or_else(|| invalid("the list of what is decided is missing or malformed"))?;
    let request = BulkDecisionRequest {
        decision: decide::choice(&fields)?,
        reason: fields.reason()?,
        approvals,
    };
    let done = app.api.engine.approvals().decide_bulk(&visitor.caller, request).await?;
    let (title, now) = ("Decided together", app.console.now());
    let status = if done.refused.is_empty() { StatusCode::OK } else { StatusCode::CONFLICT };
    let content = html! {
        p.crumb { a href="/" { "Inbox" } " › " (title) }
        h1 { (title) }
        (results(&done))
        p { a.button href="/" { "Back to the inbox" } }
    };
    // Looking at the answer again sends nothing again: the browser asks before it repeats a form.
    Ok(Frame { title, place: "/", now }.page_with(status, &visitor, &content))
}

fn results(done: &BulkDecisionView) -> Markup {
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
