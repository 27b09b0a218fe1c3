//! The router of the HTTP API, made from the table of routes, and the layers around every handler.
//!
//! Owns the order of the checks: host and origin, then the route, then the caller, then path, query and body. Invariant: a
//! route is verified unless it says itself that it is open; a handler that panics is answered like any other fault.

use std::{
    any::Any,
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use axum::{
    Router,
    body::{Body, HttpBody},
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, StatusCode, header};
use hyper::body::{Frame, SizeHint};
use tokio_util::sync::CancellationToken;
use tower_http::catch_panic::CatchPanicLayer;
use url::Url;

use placet_engine::{attempts::Attempt, engine::Engine};
use placet_identity::{ClientCertificate, VerifiedCaller};
use placet_types::error::{ErrorCode, Refusal};

use crate::{
    answer,
    challenge::challenge,
    guard::Guard,
    openapi::table,
    places::{About, Place},
    problem::Failure,
    request::{Credentials, Peer},
    state::{ApiState, Caller},
};

/// Pages for people next to the API, which the composition root mounts. They check their callers themselves.
pub trait Pages: fmt::Debug + Send + Sync {
    /// Under which origin browsers reach them; absent: under the loopback names.
    fn public_url(&self) -> Option<&Url>;

    /// Their routes, among them those of [`SHARED`], where they answer programs as the API does.
    fn routes(&self, api: &ApiState) -> Router;
}

/// The routes that answer browsers with a page, where there are pages.
pub const SHARED: [&str; 2] = ["/", "/errors/{id}"];

/// The routes whose requests wait for calls, for as long as they say.
const WAIT: [&str; 5] = [
    "/v1/calls",
    "/v1/calls/{id}",
    "/v1/runs/{id}/batches",
    "/v1/sessions/{id}/execute",
    "/v1/sessions/{id}/simulate",
];

/// Makes the token of the development agent.
pub(crate) type DevelopmentToken = Arc<dyn Fn() -> Option<String> + Send + Sync>;

/// The MCP front end: its routes, and the caller of a request without a token.
#[derive(Clone)]
pub(crate) struct McpRoutes {
    pub(crate) router: Router,
    /// Only where development tokens are accepted.
    pub(crate) development: Option<DevelopmentToken>,
    /// Cancelled when the listeners close, which ends its streams.
    pub(crate) closing: CancellationToken,
}

impl fmt::Debug for McpRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpRoutes").finish_non_exhaustive()
    }
}

/// Every route, behind its checks, and the pages and the MCP front end where there are some.
pub(crate) fn router(
    api: &ApiState,
    guard: Guard,
    pages: Option<&dyn Pages>,
    mcp: Option<McpRoutes>,
) -> Router {
    let mut router = Router::new();
    for route in table::all() {
        if pages.is_some() && SHARED.contains(&route.path) {
            continue;
        }
        let mut handler = route.handler;
        if !route.is_open {
            if !WAIT.contains(&route.path) {
                handler = handler.route_layer(middleware::from_fn_with_state(api.clone(), run));
            }
            let state = (api.clone(), None);
            handler = handler.route_layer(middleware::from_fn_with_state(state, authenticate));
        }
        router = router.route(route.path, handler);
    }
    let mut router = router.with_state(api.clone());
    if let Some(pages) = pages {
        router = router.merge(pages.routes(api));
    }
    if let Some(McpRoutes { router: mcp, development, .. }) = mcp {
        let state = (api.clone(), development);
        let verified = middleware::from_fn_with_state(state, authenticate);
        router = router.merge(mcp.route_layer(verified));
    }
    let config = Arc::new(api.config().clone());
    let router = router.layer(middleware::from_fn_with_state(config, challenge));
    surround(router, guard)
}

/// The layers around the routes of any API.
pub(crate) fn surround(router: Router, guard: Guard) -> Router {
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::from_fn_with_state(Arc::new(guard), guarded))
}

/// Verifies the caller before anything else of the request is read. Where development tokens are accepted, an MCP client without
/// credentials is the development agent.
async fn authenticate(
    State((api, development)): State<(ApiState, Option<DevelopmentToken>)>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let certificate = request.extensions().get::<ClientCertificate>();
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    let shown = Credentials::of(request.headers()).map_err(|refusal| {
        peer.iter().for_each(|peer| api.engine.token_refused(*peer, refusal.code));
        api.engine.unverified(refusal)
    })?;
    let shown = Credentials { certificate, peer, ..shown };
    let shows_nothing = shown.authorization.is_none() && certificate.is_none();
    let minted = development.filter(|_| shows_nothing).and_then(|mint| mint());
    let minted = minted.map(|token| format!("Bearer {token}"));
    let credentials =
        Credentials { authorization: shown.authorization.or(minted.as_deref()), ..shown };
    let caller = Arc::new(api.read(Box::pin(verified(&api.engine, credentials))).await?);
    // Held until the response is written, however long that takes: nobody occupies the connections of all others.
    let about = if lasts(&request) { About::Lasting } else { About::Request };
    let place = api.place(about, &caller)?;
    request.extensions_mut().insert(Arc::clone(&caller));
    request.extensions_mut().insert(Caller(Arc::clone(&caller)));
    let response = next.run(request).await;
    if let Some(attempt) = response.extensions().get::<Attempt>() {
        api.engine.attempted(&caller, *attempt);
    }
    Ok(response.map(|body| Body::new(Occupying { body, _place: place })))
}

/// Whether a request asks for a stream that lasts while nothing happens: with `GET`, or with the method of MCP that listens for changes.
fn lasts(request: &Request) -> bool {
    let says = |name: HeaderName, word: &str| {
        let said = request.headers().get(name).and_then(|value| value.to_str().ok());
        said.is_some_and(|said| said.contains(word))
    };
    (request.method() == Method::GET && says(header::ACCEPT, "text/event-stream"))
        || says(HeaderName::from_static("mcp-method"), "subscriptions/listen")
}

/// The body of a response, with the place of its request until it was written: it may be a stream.
struct Occupying {
    body: Body,
    _place: Place,
}

impl HttpBody for Occupying {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Limits how long a request takes.
async fn run(
    State(api): State<ApiState>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    api.run(request, next).await
}

/// The caller. A rejected token is counted against the address that it came from.
async fn verified(engine: &Engine, shown: Credentials<'_>) -> Result<VerifiedCaller, Refusal> {
    let Credentials { authorization, delegation, certificate, peer } = shown;
    let caller = engine.authenticate(authorization, delegation, certificate).await;
    let has_token = authorization.is_some() || delegation.is_some();
    if let (Err(refusal), Some(peer), true) = (&caller, peer, has_token) {
        engine.token_refused(peer, refusal.code);
    }
    caller
}

/// Every response is sealed, even the refusal of a `Host` or `Origin`.
async fn guarded(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    if let Err(failure) = guard.check(request.uri(), request.headers()) {
        return seal(failure.into_response());
    }
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let path = path.as_ref().map_or("-", MatchedPath::as_str);
    tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
    seal(response)
}

/// Responses are not cached, and are read only as the media type they declare.
pub fn seal(mut response: Response) -> Response {
    let headers = response.headers_mut();
    // But for the assets of pages, whose paths change with them.
    if headers.get(header::CACHE_CONTROL).is_none_or(|kept| kept != answer::IMMUTABLE) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

async fn unknown_route() -> Failure {
    Failure::unknown_route()
}

async fn unknown_method() -> Failure {
    let refusal = Refusal::new(ErrorCode::ValidationError, "the route does not take this method");
    Failure::with_status(refusal, StatusCode::METHOD_NOT_ALLOWED)
}

/// The panic's own text may hold anything, so that it stays with the panic hook.
fn panicked(_: Box<dyn Any + Send>) -> Response {
    Failure::internal("a handler panicked").into_response()
}
