//! The page of one call: who, for whom, what exactly will run, why it was held, and what a decision does.
//!
//! Owns the page and its decision form. Invariant: the form names the digest of what the page shows, so that an outdated page decides
//! nothing.

use std::collections::BTreeSet;

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use placet_api::problem::Failure;
use placet_approvals::views::{ApprovalDetail, FreezeView};
use placet_types::{
    caller::CallerIdentity,
    clock::Timestamp,
    error::Refusal,
    ids::{ApprovalId, PrincipalId},
    text::visible,
};

use super::{
    ConsoleState,
    page::{Frame, freeze_notice, token},
    session::Visitor,
    tree::{self, Preview},
    visitor::{PageId, PageQuery, Trouble},
    words::{self, Tense, Tone},
};

pub(super) use evidence::taint;
pub(super) use people::{decisions, line as vote_line, needs};

mod evidence;
pub(super) mod outcome;
mod people;
pub(super) mod withdraw;

/// The notice at the top of a page.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) status: StatusCode,
    pub(super) class: &'static str,
    pub(super) title: String,
    pub(super) text: String,
}

impl Notice {
    /// A notice that something was done.
    pub(super) fn of(class: &'static str, title: &str, text: &str) -> Self {
        Self { status: StatusCode::OK, class, title: title.to_owned(), text: text.to_owned() }
    }

    /// That something was refused, and why.
    pub(super) fn refused(title: &str, failure: &Failure) -> Self {
        failure.log();
        let document = failure.document();
        Self {
            status: StatusCode::from_u16(document.status).unwrap_or(StatusCode::FORBIDDEN),
            class: "notice bad",
            title: title.to_owned(),
            text: words::sentence(&document.detail),
        }
    }

    /// The notice as markup.
    pub(super) fn shown(&self) -> Markup {
        html! {
            div class=(self.class) role=(if self.status.is_success() { "status" } else { "alert" }) {
                h2 { (self.title) }
                p { (self.text) }
            }
        }
    }
}

/// The call's page after an action, with the notice `done`, or `refused` and the reason.
async fn after<T>(
    app: &ConsoleState,
    visitor: &Visitor,
    id: &ApprovalId,
    tried: Result<T, Refusal>,
    done: &str,
    refused: &str,
) -> Result<Response, Trouble> {
    match tried.map_err(Failure::from) {
        Ok(_) => Ok(Redirect::to(&format!("/approvals/{id}?done={done}")).into_response()),
        Err(failure) if failure.document().status < 500 => {
            page(app, visitor, id, Some(Notice::refused(refused, &failure)), "").await
        }
        Err(failure) => Err(Trouble(failure)),
    }
}

/// `GET /approvals/{id}`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(id): PageId<ApprovalId>,
    query: PageQuery,
) -> Result<Response, Trouble> {
    // Says what the reader did, and nothing of what became of the call: that is on the page, and changes with it.
    let done = match query.get("done") {
        Some("approve") => Some(("Your approval is recorded", "The state of the call is below.")),
        Some("deny") => Some(("Your denial is recorded", "The state of the call is below.")),
        Some("edit") => Some(("The arguments are changed", "Others decide on them now.")),
        Some("withdraw") => Some(("The call is withdrawn", "It did not run.")),
        Some("resolve") => Some(("The outcome is recorded", "It stands below, with your name.")),
        Some("fresh") => Some(("You have signed in again", "Now you can decide.")),
        Some(_) | None => None,
    };
    let notice = done.map(|(title, text)| Notice::of("notice note", title, text));
    page(&app, &visitor, &id, notice, "").await
}

/// The page, with a notice above it and words that somebody wrote already.
pub(super) async fn page(
    app: &ConsoleState,
    visitor: &Visitor,
    id: &ApprovalId,
    notice: Option<Notice>,
    reason: &str,
) -> Result<Response, Trouble> {
    let detail = app.api.engine.approvals().approval(&visitor.caller, id).await?;
    Ok(view(&detail, visitor, app.console.now(), notice, reason))
}

/// The page for this detail.
pub(super) fn view(
    detail: &ApprovalDetail,
    visitor: &Visitor,
    now: Timestamp,
    notice: Option<Notice>,
    reason: &str,
) -> Response {
    let approval = &detail.approval;
    let title = format!("{} · {}", approval.capability_id, approval.state);
    let form = decision_form(detail, visitor, reason);
    let content = html! {
        p.crumb { a href="/" { "Inbox" } " › " (approval.approval_id) }
        @if let Some(notice) = &notice { (notice.shown()) }
        // The address to refresh the page from: after a refused decision the page has the form's address.
        div #head data-live data-address={ "/approvals/" (approval.approval_id) } { (head(detail, now)) }
        div.split {
            div {
                div #what data-live data-name="What will run" { (what(detail)) }
                div #why data-live data-name="Why it was held" { (why(detail)) }
            }
            div.side {
                div #decide data-live { (form) }
                div #people data-live data-name="Agreement" { (people::progress(detail, now)) (people::votes(detail, now)) }
                div #outcome data-live data-name="Outcome" { (outcome::card(detail, visitor, now)) }
                div #withdrawal data-live { (withdraw::form(detail, visitor)) }
            }
            div.below #further data-live { (evidence::further(detail, now)) }
        }
    };
    let status = notice.map_or(StatusCode::OK, |notice| notice.status);
    Frame { title: &title, place: "", now }.page_with(status, visitor, &content)
}

fn head(detail: &ApprovalDetail, now: Timestamp) -> Markup {
    let approval = &detail.approval;
    html! {
        h1 data-told { (approval.capability_id) " " (words::state(&approval.state)) }
        (frozen(&detail.standing.freezes, now))
        @if let Some(withdrawn) = &approval.withdrawn {
            p.notice { "Withdrawn by " strong { (withdrawn.by) } " " (words::relative(withdrawn.at, now)) ". It did not run." }
        }
        @if approval.unreachable {
            p.notice.warn {
                strong { "The tool cannot be reached." }
                " The call is approved, and is tried again until it expires " (words::relative(approval.expires_at, now)) ". Tell an operator."
            }
        }
        @if let Some(reason) = &approval.void_reason { p.notice.warn { "It is void: " (visible(reason)) } }
        div.card { dl.facts { (facts(detail, now)) } }
    }
}

/// The freezes that are in force, above what they hold.
pub(super) fn frozen(freezes: &[FreezeView], now: Timestamp) -> Markup {
    html! { @for freeze in freezes.iter().filter(|freeze| !freeze.lockdown) { (freeze_notice(freeze, now)) } }
}

/// Who, what it does, where, until when.
pub(super) fn facts(detail: &ApprovalDetail, now: Timestamp) -> Markup {
    let (approval, proposal) = (&detail.approval, detail.proposal.as_ref());
    let call = proposal.map(|proposal| &proposal.call);
    let other = call.filter(|call| call.approval_mode_requested != call.approval_mode_effective);
    html! {
        dt { "Who" } dd { (words::chain(&approval.principal_chain)) }
        @if let Some(caller) = proposal.and_then(|proposal| proposal.evidence.caller.as_ref()) { (identity(caller)) }
        dt { "What it does" }
        dd {
            (words::mode(approval.mode)) " " (words::mode_hint(approval.mode))
            @if let Some(call) = other { " " span.small.soft { "Asked for as " (call.approval_mode_requested) "." } }
            @if !detail.description().is_empty() { br; span.soft { (visible(detail.description())) } }
        }
        @if let Some(part) = &detail.part {
            dt { "Asked by" }
            dd { "tenant " strong { (part.asked_by) } ". You are shown what you need to decide, and nothing else of it." }
        }
        @if let Some(proposal) = proposal { dt { "Where" } dd { (visible(&proposal.evidence.target)) } }
        dt { "Asked" } dd { (words::relative(approval.created_at, now)) " " span.small.soft { "(" (words::exact(approval.created_at)) ")" } }
        @if Tense::of(&approval.state) == Tense::Ahead {
            dt { "Ends" }
            dd { (words::relative(approval.expires_at, now)) " " span.small.soft { "(" (words::exact(approval.expires_at)) ")" } }
        }
    }
}

/// How the caller and its user proved who they are; no token is among it.
fn identity(caller: &CallerIdentity) -> Markup {
    html! {
        dt { "Identity" }
        dd #identity {
            code { (visible(&caller.agent_urn)) } " proved by " code { (caller.auth_type.as_str()) } " "
            @if !caller.attested { (words::mark(Tone::Warn, "not attested")) " " }
            @if caller.lifecycle != "active" { (words::mark(Tone::Warn, &caller.lifecycle)) " " }
            @if let Some(id) = &caller.workload_identity { br; "workload " code { (visible(id)) } " " }
            @if let Some(role) = &caller.role { br; "role " code { (visible(role)) } }
        }
        @if let Some(delegation) = &caller.delegation {
            dt { "Delegation" }
            dd #delegation {
                "of " code { (visible(&delegation.subject)) } " proved by " code { (delegation.auth_type.as_str()) }
                @if delegation.scopes.is_empty() { ", without scopes" } @else {
                    ", scopes " @for (at, scope) in delegation.scopes.iter().enumerate() { @if at > 0 { ", " } code { (visible(scope)) } }
                }
            }
        }
    }
}

/// What exactly will run.
fn what(detail: &ApprovalDetail) -> Markup {
    html! {
        section.card aria-labelledby="what-title" {
            h2 #what-title {
                (match Tense::of(&detail.approval.state) {
                    Tense::Ahead => "What exactly will run",
                    Tense::Now => "What runs",
                    Tense::Past => "What ran",
                    Tense::Never => "What would have run",
                })
            }
            (runs(detail))
        }
    }
}

/// The arguments, with who changed what of them.
pub(super) fn runs(detail: &ApprovalDetail) -> Markup {
    let evidence = detail.proposal.as_ref().map(|proposal| &proposal.evidence);
    let edited = evidence.and_then(|evidence| evidence.edited.as_ref());
    let masked = detail.preview_masked();
    let now = Preview { value: detail.preview(), masked: &masked };
    html! {
        @if let Some(before) = evidence.and_then(|evidence| evidence.sent_before.as_ref()) {
            p.notice.warn { "This call was sent before, at " (before.at) ", and may have taken effect: " (before.reason) "." }
            @for word in &before.operators { p.small.soft { (word.operator) " has it sent again, since:" } (words::quotation(&word.evidence)) }
        }
        @if let Some(part) = &detail.part {
            @if part.edits > 0 { p.notice.note { "An approver of the tenant that asks has changed the arguments." } }
            (masked_changes(&part.edited_masked))
        }
        @match edited {
            None if now.value.is_null() => p { "Retention has deleted the arguments, the result and what approvers were shown." },
            None => { (tree::arguments(now)) }
            Some(edited) => {
                p.notice.warn {
                    strong { (edited.by) }
                    @if let Some(colleague) = &edited.stands_for { " for " strong { (colleague) } }
                    " changed the arguments" @if detail.approval.edits > 1 { " in the last of " (detail.approval.edits) " edits" }
                    "; what differs from what the agent asked for is marked."
                }
                (authorship(&edited.authors))
                (masked_changes(&edited.masked))
                (tree::difference(Preview { value: &edited.preview, masked: &edited.preview_masked }, now))
                p.small.soft { "Why " (edited.by) " changed them, in the editor’s words:" }
                (words::quotation(&edited.reason))
            }
        }
    }
}

/// Whether somebody changed the arguments since the agent asked.
pub(super) fn is_edited(detail: &ApprovalDetail) -> bool {
    let own = detail.proposal.as_ref().is_some_and(|proposal| proposal.evidence.edited.is_some());
    own || detail.part.as_ref().is_some_and(|part| part.edits > 0)
}

/// Whose arguments they are, unless they are only a reduction of the agent's.
fn authorship(authors: &BTreeSet<PrincipalId>) -> Markup {
    let names: Vec<&str> = authors.iter().map(PrincipalId::as_str).collect();
    html! {
        @if !names.is_empty() {
            p.notice.warn {
                "These arguments are not just fewer or smaller ones. " strong { (names.join(", ")) }
                " wrote them, and does not decide on them: somebody else has to agree."
            }
        }
    }
}

/// Places with changes that nobody is shown.
fn masked_changes(places: &BTreeSet<String>) -> Markup {
    html! {
        @if !places.is_empty() {
            div.notice.bad {
                p { strong { "Masked values were changed too." } " You cannot see what they were or are; they are at:" }
                ul { @for place in places { li { @if place.is_empty() { "all arguments" } @else { code { (visible(place)) } } } } }
            }
        }
    }
}

/// Why it was held, in words.
fn why(detail: &ApprovalDetail) -> Markup {
    html! {
        section.card aria-labelledby="why-title" {
            h2 #why-title { (if detail.approval.state == "pending" { "Why it waits for people" } else { "Why it was held" }) }
            (held(detail))
        }
    }
}

/// The reasons that the policies give, and what they require.
pub(super) fn held(detail: &ApprovalDetail) -> Markup {
    let requirement = &detail.approval.requirement;
    let is_open = detail.approval.state == "pending";
    let needed = match &detail.part {
        Some(part) if is_open => people::needs_of_external_tenants(&part.requirement),
        Some(part) => people::needed(&part.requirement, false),
        None if is_open => people::needs(requirement),
        None => people::needed(requirement, true),
    };
    let whose = if detail.part.is_some() { "the tenant that asks" } else { "your tenant" };
    html! {
        @if requirement.reasons.is_empty() { p { "The policies of " (whose) " ask for it." } }
        ul.reasons {
            @for reason in &requirement.reasons {
                li { (visible(&reason.reason)) " " span.small.soft { "(policy " (reason.policy) ")" } }
            }
        }
        h3 { (if is_open { "What it needs" } else { "What it needed" }) }
        ul.reasons { @for need in needed { li { (need) } } }
    }
}

/// What a decision of the reader does, and in whose name.
pub(super) fn on_decision(detail: &ApprovalDetail) -> Markup {
    html! {
        p { (people::on_approval(detail)) }
        @if let Some(colleague) = &detail.standing.stands_for {
            p.notice.note { "You decide in the place of " strong { (colleague) } ", who handed this over to you. The record will name both." }
        }
    }
}

/// The form to decide with, or why there is none.
fn decision_form(detail: &ApprovalDetail, visitor: &Visitor, reason: &str) -> Markup {
    let (approval, standing) = (&detail.approval, &detail.standing);
    let path = format!("/approvals/{}", approval.approval_id);
    let may_decide = standing.may_approve || standing.may_deny;
    html! {
        section.card aria-labelledby="decide-title" {
            h2 #decide-title { (if approval.state == "pending" { "Decide" } else { "Decided" }) }
            @if standing.needs_fresh_auth {
                p.notice.note {
                    "This call wants somebody who has just proved who they are. "
                    a.button.yes href={ "/sign-in/start?fresh=1&to=" (path) "%3Fdone%3Dfresh" } { "Sign in again" }
                }
            }
            @if approval.state != "pending" { p { (words::end(&approval.state)) " There is nothing left to decide." } }
            @else if let Some(why_not) = &standing.why_not {
                p.notice { (words::mark(Tone::Plain, "you cannot approve")) " " (words::sentence(why_not)) }
            }
            @if may_decide {
                (on_decision(detail))
                form method="post" action={ (path) "/decision" } {
                    (token(visitor))
                    input type="hidden" name="digest" value=(approval.digest);
                    div.field {
                        label for="reason" { "Why" }
                        textarea #reason name="reason" required maxlength="2000" aria-describedby="reason-hint" { (reason) }
                        p #reason-hint.hint { "Kept with your name for the auditor." }
                    }
                    div.row.wide-button {
                        @if standing.may_approve { button.yes type="submit" name="decision" value="approve" { "Approve" } }
                        @if standing.may_deny { button.no type="submit" name="decision" value="deny" { "Deny" } }
                    }
                }
                p.hint { "You decide on what this page shows, digest " (words::digest(&approval.digest)) ". Should it change meanwhile, nothing is decided." }
            } @else if standing.why_not.is_none() && approval.state == "pending" {
                p { "You were not asked about this call." }
            }
            @if standing.may_edit || standing.grantable {
                p.row {
                    @if standing.may_edit { a.button href={ (path) "/edit" } { "Change the arguments" } }
                    @if standing.grantable { a.button href={ (path) "/grant" } { "Propose a standing grant" } }
                }
            }
        }
    }
}
