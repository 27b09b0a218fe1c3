//! Signing in and out.
//!
//! Owns the round trip with the provider and the development sign-in. Invariants: a sign-in that another browser began is not completed;
//! nobody is chosen without a link made with the development key; every sign-in makes a new session and ends the old one; only its failure
//! and the cause are logged.

use axum::{
    extract::{Request, State},
    response::{IntoResponse as _, Redirect, Response},
};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use maud::{Markup, html};
use placet_identity::{
    Beginning, Callback, MintRequest, SignInError, SignInProof, SignedIn, VerifiedToken, fresh_text,
};
use placet_types::{
    error::{ErrorCode, Refusal},
    principal::PrincipalKind,
};

use super::{
    ConsoleState, Development,
    form::{self, Fields, Form},
    page::Frame,
    session::{CSRF_FIELD, Cookie},
    visitor::{PageQuery, Trouble, encoded, invalid, local_path, own_origin, trouble},
};
use placet_api::problem::Failure;

const CALLBACK: &str = "/sign-in/callback";
const SIGNED_OUT: &str = "/signed-out";

/// `GET /sign-in`.
pub(super) async fn show(
    State(app): State<ConsoleState>,
    query: PageQuery,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let to = local_path(query.get("to").unwrap_or("/"));
    if let Some(code) = query.get("code") {
        return follow_link(&app, code, &to);
    }
    let settings = &app.console.settings;
    let (title, now) = ("Sign in", app.console.now());
    let browser = browser(&app, &headers)?;
    let content = html! {
        div.card.narrow {
            h1 { (title) }
            @if query.get("ended").is_some() {
                p.notice.warn {
                    "Your session has ended, so nothing that you sent was taken. Sign in again to go on where you were."
                }
            }
            @if let Some(provider) = &settings.provider {
                p { "Approvals are for people of your organisation." }
                p { a.button.yes href={ "/sign-in/start?to=" (encoded(&to)) } { "Sign in with " (provider.name()) } }
            }
            @if let Some(development) = &settings.development {
                h2 { "Development sign-in" }
                @if app.console.links.may_choose(&browser, now) { (people(development, &to, &browser)) }
                @else { (how_to_get_a_link(query.get("link").is_some())) }
            }
            @if settings.provider.is_none() && settings.development.is_none() {
                p { "Nobody can sign in yet: the operator has to name an OpenID provider under " code { "console.sign_in" } " in the configuration." }
            }
        }
    };
    let mut response = Frame { title, place: "", now }.open_page(StatusCode::OK, &content);
    set(&mut response, Cookie::SignIn.set(&browser, app.console.is_secure()));
    Ok(response)
}

/// `GET /sign-in?code=…`: a link made with the development key. The browser that opens it first may choose who signs in. The redirect
/// removes the code from the address bar.
fn follow_link(app: &ConsoleState, code: &str, to: &str) -> Result<Response, Trouble> {
    let now = app.console.now();
    let browser = fresh_text().map_err(internal)?;
    let development = app.console.settings.development.as_ref();
    let code = development.and_then(|development| development.key.read_sign_in_code(code, now));
    let is_first = code.is_some_and(|code| app.console.links.follow(code, &browser, now));
    let refused = if is_first { "" } else { "&link=refused" };
    let page = format!("/sign-in?to={}{refused}", encoded(to));
    let mut response = Redirect::to(&page).into_response();
    if is_first {
        set(&mut response, Cookie::SignIn.set(&browser, app.console.is_secure()));
    }
    Ok(response)
}

/// How to get a link, for a person who has none or an invalid one.
fn how_to_get_a_link(was_refused: bool) -> Markup {
    html! {
        @if was_refused {
            p.notice.warn { "That link is not valid any more: it was used, it has expired, or it was made with another key." }
        }
        p { "You sign in with a link that works once, for ten minutes. Get one in a terminal on this machine:" }
        p { code { "placet console" } }
        p.soft.small {
            "Run it where " code { "placet serve" } " was started, or with the same data folder or configuration: it needs the development key in \
             the data folder. With " code { "--open" } " it opens the link as well."
        }
    }
}

/// The people of the development directory, each with a button.
fn people(development: &Development, to: &str, browser: &str) -> Markup {
    html! {
        p { "Choose who you are. Your link counts for one choice, within ten minutes of when it was made." }
        form method="post" action="/sign-in/development" {
            input type="hidden" name=(CSRF_FIELD) value=(browser);
            input type="hidden" name="to" value=(to);
            ul.list {
                @for (at, person) in development.people.iter().enumerate() {
                    li.row.spread.keep {
                        span {
                            strong { (person.display.as_deref().unwrap_or(person.id.as_str())) } " "
                            span.soft.small {
                                (person.tenant) "/" (person.id)
                                @for group in &person.groups { ", " (group) }
                            }
                        }
                        button type="submit" name="person" value=(at) aria-label={ "Sign in as " (person.id) " of " (person.tenant) } { "Sign in" }
                    }
                }
            }
        }
    }
}

fn set(response: &mut Response, cookie: Option<HeaderValue>) {
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// The id of the signing-in browser from its cookie; a new browser gets one.
fn browser(app: &ConsoleState, headers: &HeaderMap) -> Result<String, Trouble> {
    if let Some(known) = Cookie::SignIn.read(headers, app.console.is_secure()) {
        return Ok(known);
    }
    fresh_text().map_err(internal)
}

fn internal(error: impl std::fmt::Display) -> Trouble {
    Trouble(Failure::internal(&error.to_string()))
}

/// `GET /sign-in/start`: to the provider. Nothing changes but that this browser is expected back.
pub(super) async fn start(
    State(app): State<ConsoleState>,
    query: PageQuery,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let to = local_path(query.get("to").unwrap_or("/"));
    let is_fresh = query.get("fresh").is_some();
    let Some(provider) = &app.console.settings.provider else {
        // Without a provider, signing in again takes another link.
        return Ok(Redirect::to(&format!("/sign-in?to={}", encoded(&to))).into_response());
    };
    let origin = own_origin(&app.console, &headers)
        .ok_or_else(|| invalid("the address of this service is not known"))?;
    let browser = browser(&app, &headers)?;
    let redirect_uri = format!("{origin}{CALLBACK}");
    let begun = provider.begin(&browser, Beginning { redirect_uri, fresh: is_fresh, to }).await;
    let url = begun.map_err(refused)?;
    let mut response = Redirect::to(url.as_str()).into_response();
    set(&mut response, Cookie::SignIn.set(&browser, app.console.is_secure()));
    Ok(response)
}

/// `GET /sign-in/callback`: back from the provider.
pub(super) async fn callback(
    State(app): State<ConsoleState>,
    query: PageQuery,
    headers: HeaderMap,
) -> Result<Response, Trouble> {
    let unexpected = || {
        trouble(
            ErrorCode::Unauthenticated,
            "this sign-in was not begun here, or too long ago; begin it again",
        )
    };
    let provider = app.console.settings.provider.as_ref().ok_or_else(unexpected)?;
    let secure = app.console.is_secure();
    let browser = Cookie::SignIn.read(&headers, secure).ok_or_else(unexpected)?;
    let text = |name| query.get(name).map(str::to_owned);
    let callback = Callback {
        code: text("code"),
        state: Some(text("state").ok_or_else(unexpected)?),
        issuer: text("iss"),
        error: text("error"),
    };
    let SignedIn { token, proof, to } =
        provider.finish(&browser, callback).await.map_err(refused)?;
    enter(&app, &headers, token, proof, &local_path(&to)).await
}

/// `POST /sign-in/development`.
pub(super) async fn development(
    State(app): State<ConsoleState>,
    request: Request,
) -> Result<Response, Trouble> {
    let headers = request.headers().clone();
    let fields: Fields = form::read(&app, request).await?;
    let browser = Cookie::SignIn.read(&headers, app.console.is_secure());
    if browser.is_none() || browser.as_deref() != fields.get(CSRF_FIELD) {
        return Err(trouble(
            ErrorCode::PolicyDenied,
            "the sign-in was not begun in this browser; begin it again",
        ));
    }
    let development = app.console.settings.development.as_ref();
    let development = development
        .ok_or_else(|| trouble(ErrorCode::NotFound, "there is no development sign-in"))?;
    let index: usize = fields.needed("person", "who signs in")?;
    let person = development.people.get(index);
    let person = person.ok_or_else(|| invalid("there is no such person"))?;
    if !browser.is_some_and(|browser| app.console.links.choose(&browser, app.console.now())) {
        return Err(trouble(
            ErrorCode::PolicyDenied,
            "no valid sign-in link was opened in this browser; get one with `placet console`",
        ));
    }
    let mut request = MintRequest::new(
        person.tenant.clone(),
        PrincipalKind::User,
        person.id.clone(),
        development.audience.clone(),
    );
    request.display.clone_from(&person.display);
    let token = development.key.mint(&request, &*app.console.settings.clock).map_err(internal)?;
    let proof = SignInProof::of_development(token, app.console.now());
    let token = development.verifier.verify_proof(&proof).await.map_err(internal)?;
    let to = local_path(fields.get("to").unwrap_or("/"));
    enter(&app, &headers, token, proof, &to).await
}

/// A new session that replaces the old one.
async fn enter(
    app: &ConsoleState,
    headers: &HeaderMap,
    token: VerifiedToken,
    proof: SignInProof,
    to: &str,
) -> Result<Response, Trouble> {
    let secure = app.console.is_secure();
    let caller = app.api.engine.signed_in(token)?;
    if caller.actor.kind() != PrincipalKind::User {
        return Err(trouble(ErrorCode::PolicyDenied, "the console is for people"));
    }
    if let Some(old) = Cookie::Session.read(headers, secure) {
        app.console.sessions.end(&old).await?;
    }
    let id = app.console.sessions.begin(caller, &proof).await?;
    let mut response = Redirect::to(to).into_response();
    set(&mut response, Cookie::Session.set(&id, secure));
    set(&mut response, Cookie::SignIn.clear(secure));
    Ok(response)
}

/// `POST /sign-out`.
pub(super) async fn sign_out(
    State(app): State<ConsoleState>,
    headers: HeaderMap,
    form: Form,
) -> Result<Response, Trouble> {
    let secure = app.console.is_secure();
    drop(form);
    if let Some(id) = Cookie::Session.read(&headers, secure) {
        app.console.sessions.end(&id).await?;
    }
    let mut response = Redirect::to(SIGNED_OUT).into_response();
    set(&mut response, Cookie::Session.clear(secure));
    Ok(response)
}

/// `GET /signed-out`: with the way to sign out of the provider as well, as a link, because a form may not lead elsewhere.
pub(super) async fn signed_out(State(app): State<ConsoleState>, headers: HeaderMap) -> Response {
    let provider = app.console.settings.provider.as_ref();
    let back = own_origin(&app.console, &headers).map(|origin| format!("{origin}{SIGNED_OUT}"));
    let further = match (provider, back) {
        (Some(provider), Some(back)) => {
            provider.sign_out_url(&back).await.map(|url| (provider.name(), url))
        }
        (_, _) => None,
    };
    let (title, now) = ("You are signed out", app.console.now());
    let content = html! {
        div.card.narrow {
            h1 { (title) }
            p { "This browser holds no session of the console any more." }
            div.row {
                a.button.yes href="/sign-in" { "Sign in again" }
                @if let Some((name, url)) = &further { a.button href=(url) rel="noreferrer" { "Sign out of " (name) " too" } }
            }
        }
    };
    Frame { title, place: "", now }.open_page(StatusCode::OK, &content)
}

/// What the person is told about a failed sign-in; the rest is for the log.
fn refused(error: SignInError) -> Trouble {
    let refusal = match &error {
        SignInError::Unavailable { .. } => Refusal::new(
            ErrorCode::AdapterUnavailable,
            "the sign-in provider cannot be used at present",
        ),
        SignInError::NotFresh => Refusal::new(
            ErrorCode::Unauthenticated,
            "the provider did not ask you to prove who you are again, so it does not count as a fresh sign-in",
        ),
        SignInError::Refused(_) | SignInError::Identity(_) => {
            Refusal::new(ErrorCode::Unauthenticated, "the sign-in was refused; begin it again")
        }
    };
    tracing::info!(error = %error, "a sign-in failed");
    Trouble(Failure::new(refusal.with_detail(error)))
}
