//! What a refused request keeps: the navigation of who is signed in, and what they had typed.
//!
//! Owns when a refusal is shown as a page, and the page of a path that does not exist. Invariant: the typed text is returned to the browser
//! that sent it, in a form of its own session, and nowhere else.

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{Method, StatusCode};
use maud::{Markup, html};
use placet_types::error::{ErrorCode, Refusal};

use super::{
    ConsoleState,
    form::{Fields, Typed},
    home::wants_page,
    page::{self, token},
    session::{CSRF_FIELD, Use, Visitor},
    visitor::{Trouble, visit},
    words,
};
use placet_api::problem::Failure;

/// The fields that no person types.
const HIDDEN: [&str; 5] = ["digest", "act", "record", "pick", "decision"];

/// Shows a refusal as a page: within the frame, where there is a session.
pub(super) async fn keep(
    State(app): State<ConsoleState>,
    request: Request,
    next: Next,
) -> Response {
    let typed = Typed::default();
    let (mut parts, body) = request.into_parts();
    parts.extensions.insert(typed.clone());
    let mut response = next.run(Request::from_parts(parts.clone(), body)).await;
    let Some(failure) = response.extensions_mut().remove::<Failure>() else { return response };
    let visitor = visit(&parts, &app, Use::Page).await.ok();
    let form = typed.0.lock().take().filter(|_| parts.method == Method::POST);
    let again = form.zip(visitor.as_ref());
    let again = again.map(|(fields, visitor)| again_form(&fields, visitor, parts.uri.path()));
    page::trouble(&failure, visitor.as_ref(), app.console.now(), &again.unwrap_or_default())
}

/// The form as it was sent, to be corrected and sent again.
fn again_form(fields: &Fields, visitor: &Visitor, path: &str) -> Markup {
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
