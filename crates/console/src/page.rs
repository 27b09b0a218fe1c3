//! The frame of every page: landmarks, the ways through the console, who is signed in.
//!
//! Owns it, and the page of a refusal. Invariant: all markup is made by `maud`, which escapes what is not markup.

use axum::response::{Html, IntoResponse as _, Response};
use http::{HeaderValue, StatusCode, header};
use maud::{DOCTYPE, Markup, html};
use placet_approvals::views::FreezeView;
use placet_types::{clock::Timestamp, error::ErrorCode, text::visible};

use super::{
    assets,
    session::{CSRF_FIELD, Visitor},
    words,
};
use placet_api::problem::{Failure, ProblemDocument};

/// The pages in the navigation, each with its address.
const PLACES: [(&str, &str); 12] = [
    ("Inbox", "/"),
    ("Finished", FINISHED),
    ("Load", "/load"),
    ("Report", "/report"),
    ("Decisions", "/decisions"),
    ("Tools", "/tools"),
    ("Runs", "/runs"),
    ("Grants", "/grants"),
    ("Break-glass", "/break-glass"),
    ("Delegations", "/delegations"),
    ("Calendar", "/calendar"),
    ("Help", "/help"),
];
/// The list of finished calls, the newest first.
pub(super) const FINISHED: &str = "/?state=finished&order=newest";

/// A page of who is signed in.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) title: &'a str,
    /// The address of its navigation entry, if it has one.
    pub(super) place: &'static str,
    pub(super) now: Timestamp,
}

impl Frame<'_> {
    /// The page with its content.
    pub(super) fn page(&self, visitor: &Visitor, content: &Markup) -> Response {
        self.page_with(StatusCode::OK, visitor, content)
    }

    /// The page with another status.
    pub(super) fn page_with(
        &self,
        status: StatusCode,
        visitor: &Visitor,
        content: &Markup,
    ) -> Response {
        let top = html! {
            nav aria-label="Console" {
                ul {
                    @for (name, path) in PLACES {
                        li { a href=(path) aria-current=[(path == self.place).then_some("page")] { (name) } }
                    }
                }
            }
            div.person {
                span {
                    span.unseen { "Signed in as " }
                    (visitor.principal().display.as_deref().unwrap_or(visitor.principal().id.as_str()))
                    " " span.small { "(" (visitor.principal().id) " of " (visitor.principal().tenant_id) ")" }
                }
                form method="post" action="/sign-out" {
                    (token(visitor))
                    button.plain type="submit" { "Sign out" }
                }
            }
        };
        let content = html! {
            @for freeze in visitor.freezes.iter().filter(|freeze| freeze.lockdown) { (freeze_notice(freeze, self.now)) }
            (content)
        };
        (status, Html(self.document(&top, &content).0)).into_response()
    }

    /// A page for somebody who is not signed in.
    pub(super) fn open_page(&self, status: StatusCode, content: &Markup) -> Response {
        (status, Html(self.document(&html! {}, content).0)).into_response()
    }

    fn document(&self, top: &Markup, content: &Markup) -> Markup {
        html! {
            (DOCTYPE)
            html lang="en" data-now=(self.now.as_ms()) {
                head {
                    meta charset="utf-8";
                    meta name="viewport" content="width=device-width, initial-scale=1";
                    meta name="color-scheme" content="light dark";
                    title { (self.title) " · Placet" }
                    link rel="stylesheet" href=(assets::path("console.css"));
                    script src=(assets::path("console.js")) defer {}
                }
                body {
                    a.skip href="#content" { "Skip to the content" }
                    header.top { div.top-inner { a.brand href="/" { "Placet" } (top) } }
                    main #content tabindex="-1" { (content) }
                    div #live.live role="status" aria-live="polite" {}
                }
            }
        }
    }
}

/// That a freeze or a lockdown is in force.
pub(super) fn freeze_notice(freeze: &FreezeView, now: Timestamp) -> Markup {
    html! {
        p.notice.warn role=[freeze.lockdown.then_some("alert")] {
            strong { @if freeze.lockdown { (words::lockdown(&freeze.adapters)) } @else { "A freeze is in force" } }
            @if let Some(name) = &freeze.name { @if freeze.lockdown { " (" (visible(name)) ")" } @else { ": " (visible(name)) } }
            ". It ends " (words::relative(freeze.until, now)) " unless it is lifted before."
            @if !freeze.lockdown { " Changes wait for those whom the policies ask in a freeze." }
            @if let Some(id) = &freeze.directive_id { " " a href={ "/entries/" (id) } { "Look at it" } }
        }
    }
}

/// The field that proves that a form belongs to the session.
pub(super) fn token(visitor: &Visitor) -> Markup {
    html! { input type="hidden" name=(CSRF_FIELD) value=(visitor.csrf); }
}

/// The page of a refusal, with further content; without navigation where nobody is signed in.
pub(super) fn trouble(
    failure: &Failure,
    visitor: Option<&Visitor>,
    now: Timestamp,
    more: &Markup,
) -> Response {
    let document = failure.document();
    let status = StatusCode::from_u16(document.status);
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let (title, advice) = said(document.error_code, status);
    let content = html! { (trouble_content(document, title, advice)) (more) };
    let frame = Frame { title, place: "", now };
    let mut response = match visitor {
        Some(visitor) => frame.page_with(status, visitor, &content),
        None => frame.open_page(status, &content),
    };
    if let Some(ms) = document.retry_after_ms {
        let seconds = HeaderValue::from(ms.div_ceil(1_000).max(1));
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

fn trouble_content(document: &ProblemDocument, title: &str, advice: Option<&str>) -> Markup {
    html! {
        div.card.narrow {
            h1 { (title) }
            p { (words::with_code(&words::sentence(&document.detail))) }
            @if !document.problems.is_empty() {
                ul {
                    @for problem in &document.problems {
                        li {
                            @if let Some(field) = field_of(&problem.pointer) { strong { (field) } ": " }
                            (words::with_code(&problem.problem))
                        }
                    }
                }
            }
            @if let Some(advice) = advice { p.soft { (advice) } }
            p { a.button href="/" { "Back to the inbox" } }
            p.small.soft { "Code " a href={ "/errors/" (document.error_code) } { code { (document.error_code) } } }
        }
    }
}

/// The field of a form that a JSON pointer leads to.
fn field_of(pointer: &str) -> Option<String> {
    let name = pointer.rsplit('/').find(|part| part.parse::<usize>().is_err())?;
    (!name.is_empty()).then(|| words::spaced(name))
}

/// The meaning of a code for a person at a browser.
fn said(code: ErrorCode, status: StatusCode) -> (&'static str, Option<&'static str>) {
    if status.is_server_error() {
        return (
            "The service cannot do this now",
            Some(
                "Nothing you did is lost that was confirmed before. Try again in a moment; if it stays so, tell the operator.",
            ),
        );
    }
    match status {
        StatusCode::NOT_FOUND => (
            "There is nothing here for you",
            Some("It may not exist, or it is not for you to see. Both are answered the same."),
        ),
        StatusCode::FORBIDDEN => (
            "This is not allowed",
            Some("Who may do this is decided by the policies of your tenant."),
        ),
        StatusCode::CONFLICT => {
            ("It has changed in the meantime", Some("Look at it again before you decide."))
        }
        _ if code == ErrorCode::Unauthenticated || code == ErrorCode::CredentialExpired => {
            ("You have to sign in", None)
        }
        _ => ("This could not be understood", Some("Fix the problem above and send it again.")),
    }
}
