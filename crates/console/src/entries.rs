//! The lists of what is arranged in the approval service: grants, break-glass records, delegations.
//!
//! Owns the three pages with their forms for new entries. Invariant: the newest come first, and what does not fit on a page is on the next.

use axum::{extract::State, response::Response};
use maud::{Markup, html};
use placet_approvals::views::{DirectiveView, EntriesPage, EntriesQuery};
use placet_types::{
    clock::Timestamp,
    directive::{DirectiveBody, DirectiveKind},
    text::visible,
};

use super::{
    ConsoleState,
    grant::{lasts, reason_field},
    page::{Frame, token},
    session::Visitor,
    visitor::{PageQuery, Trouble},
    words::{self, Tone},
};

/// How many entries a page has.
const PAGE: usize = 100;

/// What is above a list and below it.
struct Words<'a> {
    title: &'a str,
    /// Where the list is.
    path: &'static str,
    lede: &'a str,
    none: &'a str,
}

async fn page(
    app: &ConsoleState,
    visitor: &Visitor,
    query: &PageQuery,
    kind: DirectiveKind,
    words: Words<'_>,
    form: Option<Markup>,
) -> Result<Response, Trouble> {
    let is_all = query.get("state") == Some("all");
    let wanted = EntriesQuery {
        kind: Some(kind),
        only_open: !is_all,
        newest_first: true,
        after: query.read("after"),
        limit: PAGE,
        ..EntriesQuery::default()
    };
    let found = app.api.engine.approvals().entries(&visitor.caller, &wanted).await?;
    let (title, place, now) = (words.title, words.path, app.console.now());
    let content = html! {
        h1 { (title) }
        p.lede { (words.lede) }
        nav.row.small aria-label="Which entries" {
            a href=(words.path) aria-current=[(!is_all).then_some("true")] { "Active" }
            a href={ (words.path) "?state=all" } aria-current=[is_all.then_some("true")] { "All" }
        }
        div #list data-live {
            (list(&found.entries, if wanted.after.is_some() { "There is nothing older." } else { words.none }, now))
            (pages(words.path, query, &found))
        }
        @if let Some(form) = &form { (form) }
    };
    Ok(Frame { title, place, now }.page(visitor, &content))
}

/// Links to older entries, and back to the first page.
fn pages(path: &str, query: &PageQuery, found: &EntriesPage) -> Markup {
    let goes_on = query.get("after").is_some();
    html! {
        @if goes_on || found.next_after.is_some() {
            nav.row aria-label="Pages" {
                @if goes_on { a.button href=(query.address(path, None)) { "The newest" } }
                @if let Some(after) = &found.next_after {
                    a.button rel="next" href=(query.address(path, Some(("after", after.as_str())))) { "Older ones" }
                }
            }
        }
    }
}

/// `GET /grants`.
pub(super) async fn grants(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let words = Words {
        title: "Standing grants",
        path: "/grants",
        lede: "Calls that people agreed to in advance, for a time and a number of uses. One is proposed from the page of a call that waits.",
        none: "There is no standing grant.",
    };
    page(&app, &visitor, &query, DirectiveKind::Grant, words, None).await
}

/// `GET /break-glass`.
pub(super) async fn break_glass(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let words = Words {
        title: "Break-glass",
        path: "/break-glass",
        lede: "For an incident: somebody declares it with a ticket, another person confirms it, and policies that allow for it let calls pass \
               for at most eight hours. Somebody who took no part reviews it afterwards.",
        none: "No active break-glass session.",
    };
    let form = declare_form(&visitor);
    page(&app, &visitor, &query, DirectiveKind::BreakGlass, words, Some(form)).await
}

/// `GET /delegations`.
pub(super) async fn delegations(
    State(app): State<ConsoleState>,
    visitor: Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let words = Words {
        title: "Delegations",
        path: "/delegations",
        lede: "Hand your duty as an approver over to a colleague for a while. Each decision of theirs in your place names both of you, and \
               counts once. It is for calls of your own tenant: what other tenants ask of your groups is decided by their members, and not handed over.",
        none: "Nothing is handed over.",
    };
    let form = delegation_form(&visitor);
    page(&app, &visitor, &query, DirectiveKind::Delegation, words, Some(form)).await
}

fn declare_form(visitor: &Visitor) -> Markup {
    html! {
        section.card aria-labelledby="new-title" {
            h2 #new-title { "Declare an emergency" }
            form method="post" action="/break-glass" {
                (token(visitor))
                div.fields {
                    div.field { label for="ticket" { "Ticket of the incident" } input #ticket name="ticket" required maxlength="200"; }
                    div.field { label for="agent" { "Only for this agent (may be empty)" } input #agent name="agent" maxlength="128"; }
                    div.field { label for="capability" { "Only for this operation (may be empty)" } input #capability name="capability" maxlength="200" placeholder="adapter/operation"; }
                }
                (lasts("1", "hours"))
                (reason_field())
                button.no type="submit" { "Declare it" }
            }
        }
    }
}

fn delegation_form(visitor: &Visitor) -> Markup {
    html! {
        section.card aria-labelledby="new-title" {
            h2 #new-title { "Hand over" }
            form method="post" action="/delegations" {
                (token(visitor))
                div.fields {
                    div.field { label for="to" { "To whom" } input #to name="to" required maxlength="128"; }
                    div.field {
                        label for="groups" { "For which of your groups" }
                        input #groups name="groups" required maxlength="1000" placeholder="approvers, finance";
                    }
                    div.field { label for="starts" { "From when on, UTC (empty: now)" } input #starts type="datetime-local" name="starts"; }
                }
                (lasts("1", "days"))
                (reason_field())
                button.yes type="submit" { "Hand over" }
            }
        }
    }
}

fn list(entries: &[DirectiveView], none: &str, now: Timestamp) -> Markup {
    html! {
        @if entries.is_empty() { p.card { (none) } }
        @else {
            table.table.folds {
                caption.unseen { "Entries, newest first" }
                thead { tr {
                    th scope="col" { "What" } th scope="col" { "State" } th scope="col" { "By" }
                    th scope="col" { "From" } th scope="col" { "Until" } th scope="col" { (last_column(entries.first())) }
                } }
                tbody { @for entry in entries { (line(entry, now)) } }
            }
        }
    }
}

/// What a list ends with: how much of a grant is used up; of anything else, who agreed to it.
fn last_column(entry: Option<&DirectiveView>) -> &'static str {
    if entry.is_some_and(|entry| matches!(entry.body, DirectiveBody::Grant(_))) {
        "Used"
    } else {
        "Agreed"
    }
}

fn line(entry: &DirectiveView, now: Timestamp) -> Markup {
    // One that was ended did not last until its time.
    let ended = entry.end.as_ref().map(|note| note.at);
    let until = ended.map_or(entry.expires_at, |at| at.min(entry.expires_at));
    html! {
        tr data-href={ "/entries/" (entry.directive_id) } {
            th scope="row" { a href={ "/entries/" (entry.directive_id) } { (name(&entry.body)) } }
            td data-label="State" {
                (words::state(&entry.state))
                @if entry.review_due { " " (words::mark(Tone::Warn, "review due")) }
            }
            td data-label="By" { (entry.by) }
            td.nowrap data-label="From" { (words::relative(entry.starts_at, now)) }
            td.nowrap data-label="Until" { (words::relative(until, now)) }
            td data-label=(last_column(Some(entry))) {
                @match &entry.body {
                    DirectiveBody::Grant(grant) => { (entry.uses) " of " (grant.uses_max) " times" }
                    DirectiveBody::BreakGlass(_) | DirectiveBody::Freeze(_) | DirectiveBody::Delegation(_) | DirectiveBody::Revocation(_) => {
                        @if entry.votes.is_empty() { span.soft { "–" } }
                        @for (at, vote) in entry.votes.iter().enumerate() { @if at > 0 { ", " } (vote.approver) }
                    }
                }
            }
        }
    }
}

/// The name of an entry in a list and in titles.
pub(super) fn name(body: &DirectiveBody) -> String {
    match body {
        DirectiveBody::Grant(grant) => format!("{} by {}", grant.capability, grant.chain.actor.id),
        DirectiveBody::BreakGlass(glass) => format!("Break-glass {}", visible(&glass.ticket)),
        DirectiveBody::Freeze(freeze) => {
            format!("{}{}", if freeze.lockdown { "Lockdown: " } else { "" }, visible(&freeze.name))
        }
        DirectiveBody::Delegation(delegation) => {
            let groups: Vec<&str> = delegation.groups.iter().map(|group| group.as_str()).collect();
            format!("{} to {}", groups.join(", "), delegation.to)
        }
        DirectiveBody::Revocation(revocation) => {
            format!("Tokens of {}", visible(&revocation.subject))
        }
    }
}
