//! One entry of the approval service: what it arranges, who agreed, and what can be done with it.
//!
//! Owns the page and its forms: agreeing or not, ending, reviewing.

use axum::{
    extract::State,
    response::{IntoResponse as _, Redirect, Response},
};
use http::StatusCode;
use maud::{Markup, html};
use placet_api::problem::Failure;
use placet_approvals::views::{DirectiveAct, DirectiveView};
use placet_types::{
    clock::Timestamp,
    directive::{
        DirectiveBody,
        pattern::{ArgumentPattern, ArgumentRule},
    },
    ids::DirectiveId,
    text::visible,
};

use super::{
    ConsoleState,
    call::{self, Notice},
    decide, entries,
    form::{Fields, Form},
    page::{Frame, token},
    session::Visitor,
    tree,
    visitor::{PageId, PageQuery, Trouble, invalid},
    words::{self, Tone},
};

/// `GET /entries/{id}`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    PageId(id): PageId<DirectiveId>,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let notice = query.get("done").map(|_| Notice::of("notice good", "Done", "It is recorded."));
    page(&app, &visitor, &id, notice).await
}

async fn page(
    app: &ConsoleState,
    visitor: &Visitor,
    id: &DirectiveId,
    notice: Option<Notice>,
) -> Result<Response, Trouble> {
    let entry = app.api.engine.approvals().entry(&visitor.caller, id).await?;
    Ok(view(&entry, visitor, app.console.now(), notice))
}

/// The page for this entry.
pub(super) fn view(
    entry: &DirectiveView,
    visitor: &Visitor,
    now: Timestamp,
    notice: Option<Notice>,
) -> Response {
    let (place, list) = match entry.body {
        DirectiveBody::Grant(_) => ("/grants", "Standing grants"),
        DirectiveBody::BreakGlass(_) => ("/break-glass", "Break-glass"),
        DirectiveBody::Freeze(_) => ("/calendar", "Calendar"),
        DirectiveBody::Delegation(_) => ("/delegations", "Delegations"),
        DirectiveBody::Revocation(_) => ("/", "Inbox"),
    };
    let title = entries::name(&entry.body);
    let content = html! {
        p.crumb { a href=(place) { (list) } " › " (entry.directive_id) }
        @if let Some(notice) = &notice { (notice.shown()) }
        div #entry data-live {
            h1 data-told { (title) " " (words::state(&entry.state)) @if entry.review_due { " " (words::mark(Tone::Warn, "review due")) } }
            div.card {
                dl.facts {
                    dt { "Made by" } dd { (entry.by) ", " (words::relative(entry.created_at, now)) }
                    dt { "Why" } dd { (words::quotation(&entry.reason)) }
                    dt { "Counts" } dd { "from " (words::exact(entry.starts_at)) " until " (words::exact(entry.expires_at)) }
                    (facts(entry))
                    dt { "Digest" } dd { code { (entry.digest) } }
                }
            }
            @if let DirectiveBody::Grant(grant) = &entry.body { (covers(&grant.pattern)) }
            section.card aria-labelledby="votes-title" {
                h2 #votes-title { "Who agreed" }
                @if entry.votes.is_empty() { p { "Nobody has decided on it." } }
                @else { ul.list { @for vote in &entry.votes { (call::vote_line(vote, now)) } } }
                @if entry.state == "proposed" { ul.reasons { @for need in call::needs(&entry.requirement) { li { (need) } } } }
            }
            @for (title, note) in entry.end.iter().map(|note| ("What was said at its end", note)).chain(entry.review.iter().map(|note| ("Its review", note))) {
                section.card aria-label=(title) { h2 { (title) } p { strong { (note.by) } ", " (words::relative(note.at, now)) } (words::quotation(&note.text)) }
            }
        }
        div #acts data-live { (acts(entry, visitor)) }
    };
    let status = notice.map_or(StatusCode::OK, |notice| notice.status);
    Frame { title: &title, place, now }.page_with(status, visitor, &content)
}

fn facts(entry: &DirectiveView) -> Markup {
    html! {
        @match &entry.body {
            DirectiveBody::Grant(grant) => {
                dt { "Who calls" } dd { (words::chain(&grant.chain)) }
                dt { "Operation" } dd { (grant.capability) " " (words::mode(grant.mode)) " or weaker" }
                dt { "Used" } dd { (entry.uses) " of " (grant.uses_max) }
                dt { "Contract" } dd { (words::digest(&grant.contract_digest)) }
                dt { "Proposed from" } dd { a href={ "/approvals/" (grant.approval_id) } { (grant.approval_id) } }
            }
            DirectiveBody::BreakGlass(glass) => {
                dt { "Ticket" } dd { (visible(&glass.ticket)) }
                dt { "Used" } dd { a href={ "/decisions?range=month&entry=" (entry.directive_id) } { "Calls that relied on it" } }
                dt { "For" }
                dd {
                    @match &glass.agent { Some(agent) => { "the agent " strong { (agent) } }, None => "every agent" }
                    @match &glass.capability { Some(capability) => { ", the operation " strong { (capability) } }, None => ", every operation that policies let it open" }
                }
            }
            DirectiveBody::Freeze(freeze) => {
                @if freeze.lockdown { dt { "What" } dd { (words::lockdown(&freeze.adapters)) } }
                dt { "For" }
                dd { @if freeze.adapters.is_empty() { "every adapter" } @for (at, adapter) in freeze.adapters.iter().enumerate() { @if at > 0 { ", " } (adapter) } }
            }
            DirectiveBody::Delegation(delegation) => {
                dt { "To" } dd { (delegation.to) }
                dt { "For" } dd { @for (at, group) in delegation.groups.iter().enumerate() { @if at > 0 { ", " } (group) } }
            }
            DirectiveBody::Revocation(revocation) => {
                dt { "Tokens of" } dd { (visible(&revocation.subject)) }
                dt { "Issued by" } dd { @match &revocation.issuer { Some(issuer) => (visible(issuer)), None => "any issuer" } ", before this was entered" }
            }
        }
    }
}

/// The rules of a grant, in words.
fn covers(pattern: &ArgumentPattern) -> Markup {
    html! {
        section.card aria-labelledby="covers-title" {
            h2 #covers-title { "Which arguments it covers" }
            dl.facts {
                @for (place, rule) in &pattern.0 {
                    dt { code { (visible(place)) } }
                    dd {
                        @match rule {
                            ArgumentRule::Equals(value) => { "exactly" (tree::value(value)) }
                            ArgumentRule::OneOf(values) => { "one of" (tree::value(&serde_json::Value::Array(values.clone()))) }
                            ArgumentRule::AtMost(most) => { "a whole number from 0 to " strong { (most) } }
                            ArgumentRule::StartsWith(start) => { "a text that begins with “" code.exact { (visible(start)) } "”" }
                            ArgumentRule::Any(_) => "anything",
                        }
                    }
                }
            }
            p.hint { "What no rule speaks of is not covered." }
        }
    }
}

/// What the reader can do with an entry.
fn acts(entry: &DirectiveView, visitor: &Visitor) -> Markup {
    let may = entry.standing;
    let is_open = matches!(entry.state.as_str(), "active" | "scheduled" | "proposed");
    let own = entry.by == visitor.principal().id;
    html! {
        @if may.may_agree || may.may_refuse {
            (act(entry, visitor, "decide", "Agree or not", html! {
                @if may.may_agree { button.yes type="submit" name="decision" value="approve" { "Agree" } }
                @if may.may_refuse { button.no type="submit" name="decision" value="deny" { "Refuse" } }
            }))
        } @else if entry.state == "proposed" {
            p.card.soft { (if own { "You proposed this: somebody else has to agree." } else { "It is not for you to agree to this." }) }
        }
        @if may.may_review { (act(entry, visitor, "review", "Review it", html! { button.yes type="submit" { "Record the review" } })) }
        @else if entry.review_due { p.card.soft { "It waits for a review by somebody who took no part and may review it." } }
        @if may.may_end { (act(entry, visitor, "end", "End it before its time", html! { button.no type="submit" { "End it" } })) }
        @else if is_open { p.card.soft { "You don't have permission to end this early." } }
    }
}

fn act(
    entry: &DirectiveView,
    visitor: &Visitor,
    name: &str,
    title: &str,
    buttons: Markup,
) -> Markup {
    let field = format!("reason-{name}");
    html! {
        section.card aria-labelledby={ (name) "-title" } {
            h2 #{ (name) "-title" } { (title) }
            form method="post" action={ "/entries/" (entry.directive_id) } {
                (token(visitor))
                input type="hidden" name="act" value=(name);
                input type="hidden" name="digest" value=(entry.digest);
                div.field {
                    label for=(field) { (if name == "review" { "What you found" } else { "Why" }) }
                    textarea #(field) name="reason" required maxlength="2000" {}
                }
                div.row.wide-button { (buttons) }
            }
        }
    }
}

/// `POST /entries/{id}`.
pub(super) async fn act_on(
    State(app): State<ConsoleState>,
    PageId(id): PageId<DirectiveId>,
    form: Form,
) -> Result<Response, Trouble> {
    let Form { visitor, fields } = form;
    let wanted = wanted(&fields)?;
    let done = app.api.engine.approvals().act(&visitor.caller, &id, wanted).await;
    match done.map_err(Failure::from) {
        Ok(_) => Ok(Redirect::to(&format!("/entries/{id}?done=1")).into_response()),
        Err(failure) if failure.document().status < 500 => {
            let notice = Notice::refused("Nothing was changed", &failure);
            page(&app, &visitor, &id, Some(notice)).await
        }
        Err(failure) => Err(Trouble(failure)),
    }
}

fn wanted(fields: &Fields) -> Result<DirectiveAct, Trouble> {
    let reason = fields.reason()?;
    match fields.get("act") {
        Some("decide") => Ok(DirectiveAct::Decide {
            decision: decide::choice(fields)?,
            reason,
            digest: fields.needed("digest", "the digest of what was shown")?,
        }),
        Some("end") => Ok(DirectiveAct::End { reason }),
        Some("review") => Ok(DirectiveAct::Review { note: reason }),
        Some(_) | None => Err(invalid("it is not said what to do")),
    }
}
