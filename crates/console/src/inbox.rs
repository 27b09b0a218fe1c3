//! The inbox: what waits, one's own first; and the same list of what has ended.
//!
//! Owns the list's page: filters, search, order, paging, choosing several.

use axum::response::Response;
use maud::{Markup, html};
use placet_approvals::views::{FINISHED, InboxItem, InboxOrder, InboxQuery, InboxView, Whose};
use placet_types::{approval::ApproverGroup, clock::Timestamp, mode::ApprovalMode, text::visible};

use super::{
    ConsoleState, call, charts,
    page::{FINISHED as FINISHED_PAGE, Frame, token},
    session::Visitor,
    visitor::{PageQuery, Trouble},
    words,
};

/// How many lines a page has.
const PAGE: usize = 50;
/// The longest text that is searched for.
const SEARCH_BYTES_MAX: usize = 200;

const STATES: [(&str, &str); 11] = [
    ("pending", "Waiting"),
    ("approved", "Approved, not sent yet"),
    (FINISHED, "All that are finished"),
    ("running", "Running"),
    ("succeeded", "Succeeded"),
    ("failed", "Failed"),
    ("unknown", "Outcome unknown"),
    ("denied", "Denied"),
    ("withdrawn", "Withdrawn"),
    ("expired", "Expired"),
    ("void", "Void"),
];
const WHOSE: [(Whose, &str, &str); 3] = [
    (Whose::All, "all", "All I may see"),
    (Whose::Mine, "mine", "Mine to decide"),
    (Whose::Asked, "asked", "I wait for"),
];
const ORDERS: [(InboxOrder, &str, &str); 4] = [
    (InboxOrder::Urgent, "urgent", "Mine, then by time left"),
    (InboxOrder::Oldest, "oldest", "Oldest first"),
    (InboxOrder::Newest, "newest", "Newest first"),
    (InboxOrder::Risk, "risk", "Strongest first"),
];

/// What the address asks for.
pub(super) struct Wanted {
    asked: PageQuery,
    pub(super) query: InboxQuery,
    state: &'static str,
}

impl Wanted {
    pub(super) fn of(asked: PageQuery) -> Self {
        let query = &asked;
        let named = |name| query.get(name);
        let state = STATES.iter().find(|(name, _)| named("state") == Some(name));
        let state = state.map_or("pending", |(name, _)| *name);
        let whose = WHOSE.iter().find(|(_, name, _)| named("whose") == Some(name));
        let order = ORDERS.iter().find(|(_, name, _)| named("order") == Some(name));
        let search = named("q").filter(|text| text.len() <= SEARCH_BYTES_MAX);
        let query = InboxQuery {
            whose: whose.map_or(Whose::All, |(whose, ..)| *whose),
            state: Some(state.to_owned()),
            mode: query.read("mode"),
            group: query.read("group"),
            search: search.map(str::to_owned),
            order: order.map_or(InboxOrder::Urgent, |(order, ..)| *order),
            offset: query.read("from").unwrap_or_default(),
            after: None,
            limit: PAGE,
        };
        let mut wanted = Self { asked, query, state };
        if wanted.has_ended() {
            // Sorted by age only: the URL may still hold an order that was chosen for pending calls.
            let oldest = wanted.query.order == InboxOrder::Oldest;
            wanted.query.order = if oldest { InboxOrder::Oldest } else { InboxOrder::Newest };
            (wanted.query.offset, wanted.query.after) = (0, wanted.asked.read("after"));
        }
        wanted
    }

    /// The address of another page of the same list.
    fn address(&self, place: Option<(&str, &str)>) -> String {
        self.asked.address("/", place)
    }

    /// Whether there are filters besides the list and the search.
    fn is_narrowed(&self) -> bool {
        let InboxQuery { whose, mode, group, .. } = &self.query;
        *whose != Whose::All || mode.is_some() || group.is_some()
    }

    fn is_waiting(&self) -> bool {
        self.state == "pending"
    }

    /// Whether it lists finished calls only. Such a list does not refresh itself: for somebody who sees little of it, each refresh searches
    /// a lot.
    fn has_ended(&self) -> bool {
        !matches!(self.state, "pending" | "approved")
    }
}

pub(super) async fn show(
    app: &ConsoleState,
    visitor: &Visitor,
    query: PageQuery,
) -> Result<Response, Trouble> {
    let wanted = Wanted::of(query);
    let inbox = app.api.engine.approvals().inbox(&visitor.caller, wanted.query.clone());
    Ok(view(&wanted, &inbox.await?, visitor, app.console.now()))
}

/// The page for this inbox.
pub(super) fn view(
    wanted: &Wanted,
    inbox: &InboxView,
    visitor: &Visitor,
    now: Timestamp,
) -> Response {
    let (place, title) =
        if wanted.is_waiting() { ("/", "Inbox") } else { (FINISHED_PAGE, "Finished calls") };
    let content = html! {
        h1 { (title) }
        div #summary-part data-live[!wanted.has_ended()] { (summary(wanted, inbox, now)) }
        (filters(wanted, inbox))
        form method="post" action="/together" {
            (token(visitor))
            div #list data-live[!wanted.has_ended()] { (list(wanted, inbox, now)) }
        }
    };
    Frame { title, place, now }.page(visitor, &content)
}

fn summary(wanted: &Wanted, inbox: &InboxView, now: Timestamp) -> Markup {
    html! {
        p #summary.lede {
            @if wanted.has_ended() { "Listed by when they were asked for; this list does not change by itself." }
            @else if wanted.is_waiting() {
                (words::count(total_of(inbox), "call waits", "calls wait"))
                @if inbox.mine > 0 { ", " strong { (inbox.mine) " for you to decide" } } @else { ", none for you to decide" }
                "."
            } @else { (words::count(total_of(inbox), "call", "calls")) " in this state." }
        }
        @if wanted.is_waiting() { (call::frozen(&inbox.load.freezes, now)) }
        @if inbox.load.reviews_due > 0 {
            p.notice.warn {
                (inbox.load.reviews_due) " break-glass "
                (if inbox.load.reviews_due == 1 { "record waits" } else { "records wait" })
                " for a review by somebody who took no part. "
                a href="/break-glass" { (if inbox.load.reviews_due == 1 { "Look at it" } else { "Look at them" }) }
            }
        }
    }
}

fn total_of(inbox: &InboxView) -> usize {
    inbox.total.unwrap_or(inbox.approvals.len())
}

fn filters(wanted: &Wanted, inbox: &InboxView) -> Markup {
    let query = &wanted.query;
    html! {
        form.card method="get" action="/" role="search" aria-label="Filter the list" {
            div.fields {
                div.field {
                    label for="search" { "Search" }
                    input #search type="search" name="q" maxlength=(SEARCH_BYTES_MAX) value=(query.search.as_deref().unwrap_or_default()) placeholder="Id, operation, agent or user";
                }
                (choice("state", "Which", STATES.iter().map(|(name, word)| (*name, *word, *name == wanted.state))))
                div.field { button type="submit" { "Show" } }
            }
            details open[wanted.is_narrowed()] {
                summary { "More ways to filter and order" }
                div.fields {
                    (choice("whose", "Whose", WHOSE.iter().map(|(whose, name, word)| (*name, *word, *whose == query.whose))))
                    (choice("mode", "Kind", std::iter::once(("", "Any kind", query.mode.is_none())).chain(
                        ApprovalMode::ALL.iter().rev().map(|mode| (mode.as_str(), mode.as_str(), query.mode == Some(*mode))))))
                    div.field {
                        label for="group" { "Group" }
                        input #group name="group" size="12" list="groups" value=(query.group.as_ref().map(ApproverGroup::to_string).unwrap_or_default());
                        datalist #groups { @for group in inbox.load.waiting_by_group.keys() { option value=(group) {} } }
                    }
                    (choice("order", "Order", ORDERS.iter().filter(|(order, ..)| !wanted.has_ended() || is_by_age(*order)).map(|(order, name, word)| (*name, *word, *order == query.order))))
                }
            }
        }
    }
}

const fn is_by_age(order: InboxOrder) -> bool {
    matches!(order, InboxOrder::Oldest | InboxOrder::Newest)
}

/// A list to choose from, with its label.
pub(super) fn choice<'a>(
    name: &str,
    label: &str,
    options: impl Iterator<Item = (&'a str, &'a str, bool)>,
) -> Markup {
    html! {
        div.field {
            label for=(name) { (label) }
            select #(name) name=(name) {
                @for (value, word, chosen) in options { option value=(value) selected[chosen] { (word) } }
            }
        }
    }
}

fn list(wanted: &Wanted, inbox: &InboxView, now: Timestamp) -> Markup {
    if inbox.approvals.is_empty() {
        return html! {
            p.card {
                @if wanted.is_waiting() { "Nothing waits here. New calls appear by themselves." }
                @else if inbox.incomplete { "None so far." }
                @else { "There are no such calls." }
            }
            (pages(wanted, inbox))
        };
    }
    html! {
        table.table.folds {
            caption.unseen { "Calls, " (inbox.approvals.len()) @if let Some(total) = inbox.total { " of " (total) } }
            thead {
                tr {
                    @if wanted.is_waiting() { th scope="col" { span.unseen { "Choose" } span #pick-all {} } }
                    th scope="col" { "Operation" }
                    th scope="col" { "Who, for whom" }
                    th scope="col" { "Kind" }
                    th scope="col" { (if wanted.is_waiting() { "Agreed" } else { "How it ended" }) }
                    th scope="col" { "Asked" }
                    th scope="col" { (if wanted.is_waiting() { "Ends" } else { "Decided by" }) }
                }
            }
            tbody { @for item in &inbox.approvals { (line(wanted, item, now)) } }
        }
        (pages(wanted, inbox))
        @if wanted.is_waiting() {
            div.sticky.row.spread {
                span.small.soft { "Choose several of the same kind to decide on them together; you see each before." }
                button #together type="submit" { "Look at the chosen ones together" }
            }
        }
    }
}

fn line(wanted: &Wanted, item: &InboxItem, now: Timestamp) -> Markup {
    let approval = &item.approval;
    let (id, path) = (&approval.approval_id, format!("/approvals/{}", approval.approval_id));
    html! {
        tr.mine[item.mine] data-href=(path) {
            @if wanted.is_waiting() {
                td {
                    @if item.mine {
                        input #{ "pick-" (id) } type="checkbox" name="pick" value=(id) aria-label={ "Choose " (approval.capability_id) ", " (id) };
                    }
                }
            }
            th scope="row" {
                a #{ "open-" (id) } href=(path) { (approval.capability_id) }
                @if item.mine { " " (words::mark(words::Tone::Note, "yours")) }
                @if approval.edits > 0 { " " (words::mark(words::Tone::Warn, "edited")) }
                @if approval.escalated > 0 { " " (words::mark(words::Tone::Warn, "escalated")) }
                @if !item.summary.is_empty() { p.summary { (visible(&item.summary)) } } @else { br; }
                span.small.soft.mono { (id) }
            }
            td data-label="Who" { (words::chain(&approval.principal_chain)) }
            td data-label="Kind" { (words::mode(approval.mode)) }
            td data-label=(if wanted.is_waiting() { "Agreed" } else { "Ended" }) {
                @if wanted.is_waiting() {
                    @for group in &item.progress { (charts::progress(group)) }
                    @if item.progress.iter().all(|group| group.wanted < approval.requirement.quorum) {
                        span.small { (words::people(approval.requirement.quorum)) " in all" }
                    }
                } @else {
                    (words::state(&approval.state))
                    @if let Some(reason) = &approval.void_reason { " " span.small.soft { (visible(reason)) } }
                }
            }
            td.nowrap data-label="Asked" { (words::relative(approval.created_at, now)) }
            td data-label=(if wanted.is_waiting() { "Ends" } else { "Decided by" }) {
                @if wanted.is_waiting() { (words::relative(approval.expires_at, now)) }
                @else if let Some(withdrawn) = &approval.withdrawn { (withdrawn.by) }
                @else if approval.votes.is_empty() { span.soft { "nobody" } }
                @else { @for (at, vote) in approval.votes.iter().enumerate() { @if at > 0 { ", " } (vote.approver) } }
            }
        }
    }
}

fn pages(wanted: &Wanted, inbox: &InboxView) -> Markup {
    let Some(total) = inbox.total else { return further(wanted, inbox) };
    let from = wanted.query.offset;
    let until = from.saturating_add(inbox.approvals.len());
    let at = |from: usize| wanted.address(Some(("from", &from.to_string())));
    html! {
        @if from > 0 || until < total {
            nav.row aria-label="Pages" {
                @if from > 0 { a.button rel="prev" href=(at(from.saturating_sub(PAGE))) { "Earlier in the list" } }
                @if !inbox.approvals.is_empty() { span { (from.saturating_add(1)) " to " (until) " of " (total) } }
                @if until < total { a.button rel="next" href=(at(until)) { "Further in the list" } }
            }
        }
    }
}

/// Paging through finished calls, whose total nobody knows.
fn further(wanted: &Wanted, inbox: &InboxView) -> Markup {
    html! {
        @if inbox.incomplete {
            p.small.soft { "Many calls were looked through that are not of this list. There may be further ones." }
        }
        @if wanted.query.after.is_some() || inbox.next_after.is_some() {
            nav.row aria-label="Pages" {
                @if wanted.query.after.is_some() { a.button href=(wanted.address(None)) { "From the beginning" } }
                @if let Some(after) = &inbox.next_after {
                    a.button rel="next" href=(wanted.address(Some(("after", after.as_str())))) { (if inbox.incomplete { "Search on" } else { "Further in the list" }) }
                }
            }
        }
    }
}
