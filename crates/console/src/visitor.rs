//! Who is visiting: the session of a request, its origin, and the refusals as pages.
//!
//! Owns what every handler checks first. Invariant: a handler that changes something takes a [`Form`](super::form::Form), and no form
//! is read before session, origin and token fit.

use std::str::FromStr;

use axum::{
    extract::{FromRequestParts, Path, Query},
    response::{IntoResponse, Redirect, Response},
};
use http::{HeaderMap, HeaderName, Method, StatusCode, Uri, header, request::Parts};
use placet_api::problem::Failure;
use placet_identity::{SignInProof, VerifiedCaller};
use placet_types::error::{ErrorCode, Refusal};
use url::form_urlencoded::{self, byte_serialize};

use super::{
    Console, ConsoleState,
    session::{Cookie, Found, Use, Visitor},
};

/// Says that a page looks by itself, so that it does not keep its session alive.
const LIVE: HeaderName = HeaderName::from_static("placet-live");
/// The path of an open page's event stream: it does not count as activity either.
pub(super) const LIVE_PATH: &str = "/live";
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// The longest path that is come back to after signing in.
const RETURN_BYTES_MAX: usize = 1_024;

/// A refusal, as a page.
#[derive(Debug)]
pub(super) struct Trouble(pub(super) Failure);

impl<T: Into<Failure>> From<T> for Trouble {
    fn from(failure: T) -> Self {
        Self(failure.into())
    }
}

impl IntoResponse for Trouble {
    fn into_response(self) -> Response {
        self.0.log();
        // The page is rendered where the session is known ([`super::kept`]).
        let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
        response.extensions_mut().insert(self.0);
        response
    }
}

/// A refusal in our own words.
pub(super) fn trouble(code: ErrorCode, message: &str) -> Trouble {
    Trouble(Failure::new(Refusal::new(code, message)))
}

/// Something that cannot be understood as it was sent.
pub(super) fn invalid(message: &str) -> Trouble {
    trouble(ErrorCode::ValidationError, message)
}

impl FromRequestParts<ConsoleState> for Visitor {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &ConsoleState) -> Result<Self, Response> {
        // A stream's request cannot carry that header.
        let by_itself = parts.headers.contains_key(LIVE) || parts.uri.path() == LIVE_PATH;
        visit(parts, app, if by_itself { Use::Page } else { Use::Person }).await
    }
}

pub(super) async fn visit(parts: &Parts, app: &ConsoleState, by: Use) -> Result<Visitor, Response> {
    let id = Cookie::Session.read(&parts.headers, app.console.is_secure());
    let was_signed_in = id.is_some();
    let found = match &id {
        Some(id) => seen(app, id, by).await.map_err(IntoResponse::into_response)?,
        None => None,
    };
    let Some(mut visitor) = found else { return Err(to_sign_in(parts, was_signed_in)) };
    visitor.freezes = app.api.engine.approvals().freezes(&visitor.caller);
    Ok(*visitor)
}

/// Whose session it is, if it is valid. One begun by another process is loaded: its proof is verified again.
async fn seen(app: &ConsoleState, id: &str, by: Use) -> Result<Option<Box<Visitor>>, Trouble> {
    let sessions = &app.console.sessions;
    let mut found = sessions.find(id, by).await?;
    if let Found::Kept(proof) = &found {
        let Some(caller) = again(app, proof).await? else { return Ok(None) };
        sessions.take_up(id, caller, proof.at());
        found = sessions.find(id, by).await?;
    }
    let Found::Somebody(visitor) = found else { return Ok(None) };
    // A session ends when the proof it was begun with is revoked: signing in begins another.
    if app.api.engine.is_revoked(&visitor.caller) {
        sessions.end(id).await?;
        return Ok(None);
    }
    Ok(Some(visitor))
}

/// Who signed in with this proof; `None` if it is no longer accepted.
async fn again(app: &ConsoleState, proof: &SignInProof) -> Result<Option<VerifiedCaller>, Trouble> {
    let settings = &app.console.settings;
    let token = if proof.is_of_provider() {
        let Some(provider) = &settings.provider else { return Ok(None) };
        provider.again(proof).await.map_err(|error| (error.is_transient(), error.to_string()))
    } else {
        let Some(development) = &settings.development else { return Ok(None) };
        let verified = development.verifier.verify_proof(proof).await;
        verified.map_err(|error| (error.is_transient(), error.to_string()))
    };
    match token {
        Ok(token) => Ok(Some(app.api.engine.signed_in(token)?)),
        Err((true, error)) => Err(Trouble::from(
            Refusal::new(
                ErrorCode::IdentityUnavailable,
                "who you are cannot be checked at present; try again in a moment",
            )
            .with_detail(error),
        )),
        Err((false, error)) => {
            tracing::info!(%error, "a session is not taken up: what it was begun with is not accepted any more");
            Ok(None)
        }
    }
}

/// The redirect to the sign-in, and from there to where the person wanted to go. Somebody with an ended session is told so.
fn to_sign_in(parts: &Parts, was_signed_in: bool) -> Response {
    let wanted = page_of(&parts.method, &parts.uri);
    let ended = if was_signed_in { "&ended=1" } else { "" };
    Redirect::to(&format!("/sign-in?to={}{ended}", encoded(&local_path(wanted)))).into_response()
}

/// The page to return to: for a submitted form, the page of that form.
fn page_of<'a>(method: &Method, uri: &'a Uri) -> &'a str {
    if *method == Method::GET {
        return uri.path_and_query().map_or("/", |path| path.as_str());
    }
    let path = uri.path();
    let page =
        ["/decision", "/outcome", "/withdrawal"].iter().find_map(|act| path.strip_suffix(act));
    match page.unwrap_or(path) {
        "/together" => "/",
        page => page,
    }
}

/// A part of a path or a query.
pub(super) fn encoded(text: &str) -> String {
    byte_serialize(text.as_bytes()).collect()
}

/// The path, if it is one of ours; else the inbox. What begins with two slashes would be another host.
pub(super) fn local_path(path: &str) -> String {
    let plain = path.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    let local = path.starts_with('/') && !path.starts_with("//") && !path.starts_with("/sign-");
    let sound = plain && local && path.len() <= RETURN_BYTES_MAX;
    if sound { path.to_owned() } else { "/".to_owned() }
}

/// Our origin as this request's browser knows it.
pub(super) fn own_origin(console: &Console, headers: &HeaderMap) -> Option<String> {
    if let Some(url) = &console.settings.public_url {
        return Some(url.origin().ascii_serialization());
    }
    let host = headers.get(header::HOST)?.to_str().ok()?;
    Some(format!("{}://{host}", if console.settings.is_tls { "https" } else { "http" }))
}

/// Whether one of our pages sent a form, as far as the browser tells. A current browser always sends one of the two headers.
pub(super) fn is_from_us(console: &Console, headers: &HeaderMap) -> bool {
    let text = |name: HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    let origin = text(header::ORIGIN).map(|origin| {
        own_origin(console, headers).is_some_and(|own| own.eq_ignore_ascii_case(origin))
    });
    let site = text(FETCH_SITE).map(|site| site == "same-origin");
    let said = origin.is_some() || site.is_some();
    said && origin.unwrap_or(true) && site.unwrap_or(true)
}

/// The id in the path. A malformed one is answered as unknown.
#[derive(Debug, Clone)]
pub(super) struct PageId<T>(pub(super) T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for PageId<T> {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Trouble> {
        let path = Path::<String>::from_request_parts(parts, state).await.ok();
        let id = path.and_then(|Path(text)| text.parse().ok());
        id.map(Self).ok_or_else(|| Trouble(Failure::unknown()))
    }
}

/// The query of a page. Unknown parameters are ignored, so that old links and bookmarks keep working; each value is checked where it is
/// taken.
#[derive(Debug, Clone, Default)]
pub(super) struct PageQuery(Vec<(String, String)>);

/// The fields of a query that say where in a list a page begins.
const PLACES: [&str; 3] = ["after", "from", "to"];
/// The longest query.
const QUERY_BYTES_MAX: usize = 2_048;

impl<S: Send + Sync> FromRequestParts<S> for PageQuery {
    type Rejection = Trouble;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Trouble> {
        let refused = || invalid("the address has a query that is too long or broken");
        if parts.uri.query().is_some_and(|query| query.len() > QUERY_BYTES_MAX) {
            return Err(refused());
        }
        let pairs = Query::<Vec<(String, String)>>::try_from_uri(&parts.uri);
        pairs.map(|Query(pairs)| Self(pairs)).map_err(|_rejection| refused())
    }
}

impl PageQuery {
    /// A value that is not empty.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The URL of another page of the list at `path`: at this place, and otherwise with the present query.
    pub(super) fn address(&self, path: &str, place: Option<(&str, &str)>) -> String {
        let kept = self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let kept = kept.filter(|(name, value)| !PLACES.contains(name) && !value.is_empty());
        let mut query = form_urlencoded::Serializer::new(String::new());
        format!("{path}?{}", query.extend_pairs(kept.chain(place)).finish())
    }

    /// A value, if it parses; an invalid one counts as absent.
    pub(super) fn read<T: FromStr>(&self, name: &str) -> Option<T> {
        self.get(name).and_then(|value| value.parse().ok())
    }
}
