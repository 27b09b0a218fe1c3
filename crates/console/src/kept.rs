//! What a refused request keeps: the navigation of who is signed in, and what they had typed.
//!
//! Owns the page of a refusal for somebody with a session, and the page of a path that does not exist. Invariant: the typed text goes back
//! to the browser that sent it, in a form of the session's own, and nowhere else.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{Method, StatusCode, header};
use maud::{Markup, html};
use placet_types::error::{ErrorCode, Refusal};

use super::{
    ConsoleState,
    form::{Fields, Typed},
    home::wants_page,
    page::{self, Frame, Place, token},
    session::{CSRF_FIELD, Use, Visitor},
    visitor::{Refused, Trouble, visit},
    words,
};
use placet_api::problem::Failure;

/// The fields that no person types.
const HIDDEN: [&str; 5] = ["digest", "act", "record", "pick", "decision"];

/// Shows a refusal within the frame, where there is a session.
pub(super) async fn keep(
    State(app): State<ConsoleState>,
    request: Request,
    next: Next,
) -> Response {
    let typed = Typed::default();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(typed.clone());
    let mut response = next.run(Request::from_parts(parts.clone(), body)).await;
    let Some(Refused(failure)) = response.extensions_mut().remove::<Refused>() else {
        return response;
    };
    let Ok(visitor) = visit(&parts, &app, Use::Page).await else { return response };
    let form = typed.take().filter(|_| parts.method == Method::POST);
    let again = form.map(|fields| again(&fields, &visitor, parts.uri.path()));
    let content =
        html! { (page::trouble_content(&failure)) @if let Some(again) = again { (again) } };
    let frame = Frame {
        title: page::trouble_title(&failure),
        place: Place::Elsewhere,
        now: app.console.now(),
    };
    let mut kept = frame.page_with(response.status(), &visitor, &content);
    if let Some(after) = response.headers().get(header::RETRY_AFTER) {
        kept.headers_mut().insert(header::RETRY_AFTER, after.clone());
    }
    kept
}

/// The form as it was sent, to be corrected and sent again.
fn again(fields: &Fields, visitor: &Visitor, path: &str) -> Markup {
    html! {
        section.card aria-labelledby="again-title" {
            h2 #again-title { "What you had entered" }
            form #again method="post" action=(path) {
                (token(visitor))
                @for (at, (name, value)) in fields.iter().filter(|(name, _)| *name != CSRF_FIELD).enumerate() {
                    @if HIDDEN.contains(&name) { input type="hidden" name=(name) value=(value); }
                    @else if name == "lockdown" {
                        label.choice { input type="checkbox" name=(name) value=(value) checked; " " (words::spaced(name)) }
                    }
                    @else {
                        @let id = format!("again-{at}");
                        div.field {
                            label for=(id) { (words::spaced(name)) }
                            @if name == "reason" || value.len() > 80 { textarea #(id) name=(name) { (value) } }
                            @else { input #(id) name=(name) value=(value); }
                        }
                    }
                }
                div.row.wide-button { button.yes type="submit" { "Send it again" } }
            }
        }
    }
}

/// A path that does not exist: a page for a browser, a problem document for a program.
pub(super) async fn unknown(request: Request) -> Response {
    let refusal = Refusal::new(ErrorCode::NotFound, "there is no such page");
    if request.method() == Method::GET && wants_page(request.headers()) {
        return Trouble(Failure::with_status(refusal, StatusCode::NOT_FOUND)).into_response();
    }
    Failure::unknown_route().into_response()
}
