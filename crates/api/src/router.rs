//! The router of the HTTP API, made from the list of operations, and what stands around every handler.
//!
//! Owns the order of the checks: host and origin, then the route, then the caller, then path, query and body. Invariant: an
//! operation is verified unless it says itself that it is open; a handler that panics is answered like any other fault.

use std::{any::Any, sync::Arc};

use axum::{
    Router,
    extract::{MatchedPath, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
    routing::{MethodRouter, get, post},
};
use http::{HeaderValue, StatusCode, header};
use tower_http::catch_panic::CatchPanicLayer;

use placet_identity::ClientCertificate;
use placet_types::error::{ErrorCode, Refusal};

use crate::{
    answer,
    api::{ApiState, Caller},
    backend::Backend,
    challenge::{self, challenge},
    console::{self, Console, ConsoleSettings, Desk},
    guard::Guard,
    openapi,
    operation::Operation,
    problem::Failure,
    request::{Credentials, Peer},
    routes::{
        about, approvals, audit, calls, credentials, decisions, desk, inbox, ledger, report,
        status, tools,
    },
    streams::About,
};

/// Every operation, behind its checks, and the console where there is one. It has `/` then, and shows programs what this is.
pub(crate) fn router<B: Backend>(
    api: &ApiState<B>,
    guard: Guard,
    console: Option<ConsoleSettings>,
) -> Router {
    let mut router = Router::new();
    let operations = Operation::ALL.into_iter();
    for operation in
        operations.filter(|operation| console.is_none() || *operation != Operation::About)
    {
        let mut route = handler(operation);
        if !operation.is_open() {
            route =
                route.route_layer(middleware::from_fn_with_state(api.clone(), authenticate::<B>));
        }
        router = router.route(operation.path(), route);
    }
    let mut router = router.with_state(api.clone());
    if let Some(settings) = console {
        let desk = Desk { api: api.clone(), console: Arc::new(Console::new(settings)) };
        router = router.merge(console::router(desk));
    }
    let config = Arc::new(api.config().clone());
    let router = router.layer(middleware::from_fn_with_state(config, challenge));
    surround(router, guard)
}

fn handler<B: Backend>(operation: Operation) -> MethodRouter<ApiState<B>> {
    match operation {
        Operation::SubmitCall => post(calls::submit::<B>),
        Operation::GetCall => get(calls::get::<B>),
        Operation::FollowCall => get(calls::follow::<B>),
        Operation::GetTimeline => get(calls::timeline::<B>),
        Operation::ListTools => get(tools::list::<B>),
        Operation::ReadInbox => get(inbox::read::<B>),
        Operation::ListApprovals => get(approvals::list::<B>),
        Operation::GetApproval => get(approvals::get::<B>),
        Operation::DecideApproval => post(approvals::decide::<B>),
        Operation::EditApproval => post(approvals::edit::<B>),
        Operation::WithdrawApproval => post(approvals::withdraw::<B>),
        Operation::DecideBulk => post(approvals::decide_together::<B>),
        Operation::ListDesk => get(desk::list::<B>),
        Operation::ArrangeAtDesk => post(desk::arrange::<B>),
        Operation::GetDeskEntry => get(desk::get::<B>),
        Operation::ActOnDeskEntry => post(desk::act::<B>),
        Operation::FollowDesk => get(desk::follow::<B>),
        Operation::ListRecords => get(ledger::list::<B>),
        Operation::GetRecord => get(ledger::get::<B>),
        Operation::ResolveRecord => post(ledger::resolve::<B>),
        Operation::RearmRecord => post(ledger::rearm::<B>),
        Operation::ShowStatus => get(status::show::<B>),
        Operation::Reload => post(status::reload::<B>),
        Operation::ShowCredentials => get(credentials::show::<B>),
        Operation::ListDecisions => get(decisions::list::<B>),
        Operation::GetDecision => get(decisions::get::<B>),
        Operation::ShowError => get(console::errors::show),
        Operation::ShowReport => get(report::show::<B>),
        Operation::GetReceipt => get(audit::receipt::<B>),
        Operation::ListCheckpoints => get(audit::checkpoints::<B>),
        Operation::GetAuditKey => get(audit::key::<B>),
        Operation::ProveInclusion => get(audit::inclusion::<B>),
        Operation::ProveConsistency => get(audit::consistency::<B>),
        Operation::Metadata => get(challenge::metadata::<B>),
        Operation::Describe => get(openapi::describe),
        Operation::About => get(about::about),
    }
}

/// What stands around the routes of any API.
pub(crate) fn surround(router: Router, guard: Guard) -> Router {
    router
        .fallback(unknown_route)
        .method_not_allowed_fallback(unknown_method)
        .layer(middleware::from_fn_with_state(Arc::new(guard), check_names))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(middleware::map_response(seal))
}

/// Verifies the caller before anything else of the request is looked at.
async fn authenticate<B: Backend>(
    State(api): State<ApiState<B>>,
    mut request: Request,
    next: Next,
) -> Result<Response, Failure> {
    let certificate = request.extensions().get::<ClientCertificate>();
    let peer = request.extensions().get::<Peer>().map(|Peer(address)| *address);
    let credentials = Credentials { certificate, peer, ..Credentials::of(request.headers())? };
    let caller = api.read(api.backend.authenticate(credentials)).await?;
    // Until it is answered, however long it waits: nobody keeps the connections of everybody else.
    let _place = api.place(About::Request, &caller)?;
    request.extensions_mut().insert(Caller(caller));
    Ok(next.run(request).await)
}

async fn check_names(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Result<Response, Failure> {
    guard.check(request.uri(), request.headers())?;
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let response = next.run(request).await;
    let path = path.as_ref().map_or("-", MatchedPath::as_str);
    tracing::debug!(%method, path, status = response.status().as_u16(), "answered");
    Ok(response)
}

/// Nothing this service says is for a cache, or to be read as anything but what it says it is.
async fn seal(mut response: Response) -> Response {
    let headers = response.headers_mut();
    // But for the console's assets, whose paths change with them.
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
