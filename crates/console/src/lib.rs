//! The web console: the approval service for people with a browser, served at `/`.
//!
//! Owns pages, sessions and sign-in. Decides nothing: every page shows what the engine answers to the person's own caller, and every
//! form asks the engine for something that it may refuse.
//!
//! Invariants, written as absences:
//! - no page is shown to who is not signed in, except the ones for signing in;
//! - no `GET` changes anything in the approval service, and no form is accepted without the session's own token and our own origin;
//! - no text reaches a page except escaped; no page runs a script or takes a style that is not ours.

use std::{fmt, net::IpAddr, sync::Arc};

use axum::{
    Router,
    extract::{Request, State},
    middleware::{self, Next},
    response::Response,
    routing::{any, get, post},
};
use placet_api::{router::Pages, state::ApiState};
use placet_identity::{DevKey, Provider, SetupError, Verifier, refuse_off_loopback};
use placet_types::{
    clock::{Clock, Timestamp},
    ids::{GroupId, PrincipalId, TenantId},
    sessions::SessionStore,
};
use url::Url;

use links::Links;
use session::Sessions;
use visitor::Trouble;

mod arrange;
mod assets;
mod bulk;
mod calendar;
mod call;
mod charts;
mod decide;
mod decisions;
mod edit;
mod entries;
mod entry;
mod errors;
mod form;
mod grant;
mod headers;
mod help;
mod home;
mod inbox;
mod kept;
mod links;
mod live;
mod load;
mod page;
mod report;
mod runs;
mod session;
mod sign_in;
mod timeline;
mod tools;
mod tree;
mod visitor;
mod words;

#[cfg(test)]
mod tests;

/// How the console is served.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// The origin at which browsers reach it; absent: from the `Host` of each request, which is for loopback.
    pub public_url: Option<Url>,
    /// Whether the console is served over TLS.
    pub is_tls: bool,
    /// The provider that people sign in with.
    pub provider: Option<Provider>,
    /// Sign-in with a one-time link and a choice of person, on loopback only.
    pub development: Option<Development>,
    /// How long a session may be unused, in milliseconds.
    pub idle_ms: u64,
    /// How long a session lasts at most, in milliseconds.
    pub session_ms: u64,
    /// The most sessions at the same time.
    pub sessions_max: usize,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
    /// The store of the sessions, shared by all nodes and durable over restarts.
    pub sessions: Arc<dyn SessionStore>,
}

/// Signing in without a provider: anyone who has a link made with the development key may be anybody of the directory, once.
#[derive(Clone)]
pub struct Development {
    /// The key whose tokens the engine accepts, and which signs the links.
    pub key: DevKey,
    /// The verifier of its tokens.
    pub verifier: Verifier,
    /// The audience of its tokens: our name.
    pub audience: String,
    /// The people to choose from.
    pub people: Vec<DevelopmentPerson>,
}

impl fmt::Debug for Development {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Development").field("people", &self.people.len()).finish_non_exhaustive()
    }
}

/// Somebody of the directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DevelopmentPerson {
    /// The tenant.
    pub tenant: TenantId,
    /// The name within it.
    pub id: PrincipalId,
    /// The display name.
    pub display: Option<String>,
    /// The groups, for display.
    pub groups: Vec<GroupId>,
}

impl ConsoleSettings {
    /// Checks that the development sign-in is not open to other machines.
    ///
    /// # Errors
    /// [`SetupError`] where it would be.
    pub fn check(&self, listen: IpAddr) -> Result<(), SetupError> {
        if self.development.is_some() { refuse_off_loopback(listen) } else { Ok(()) }
    }
}

impl Pages for ConsoleSettings {
    fn public_url(&self) -> Option<&Url> {
        self.public_url.as_ref()
    }

    fn routes(&self, api: &ApiState) -> Router {
        let console = Arc::new(Console::new(self.clone()));
        router(ConsoleState { api: api.clone(), console })
    }
}

/// What the pages share.
#[derive(Debug)]
pub(crate) struct Console {
    settings: ConsoleSettings,
    sessions: Sessions,
    links: Links,
}

impl Console {
    pub(crate) fn new(settings: ConsoleSettings) -> Self {
        let sessions = Sessions::new(&settings);
        Self { settings, sessions, links: Links::default() }
    }

    fn now(&self) -> Timestamp {
        self.settings.clock.now()
    }

    /// Whether cookies go over TLS only.
    fn is_secure(&self) -> bool {
        let public = self.settings.public_url.as_ref();
        public.map_or(self.settings.is_tls, |url| url.scheme() == "https")
    }
}

/// The state of a page's handler: the API and the console.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleState {
    pub(crate) api: ApiState,
    pub(crate) console: Arc<Console>,
}

/// Every route of the console.
fn router(app: ConsoleState) -> Router {
    let pages = Router::new()
        .route("/", get(home::home))
        .route("/approvals/{id}", get(call::show))
        .route("/approvals/{id}/decision", get(decide::back).post(decide::decide))
        .route("/approvals/{id}/withdrawal", get(decide::back).post(call::withdraw::withdraw))
        .route("/approvals/{id}/outcome", get(decide::back).post(call::outcome::resolve))
        .route("/approvals/{id}/edit", get(edit::show).post(edit::edit))
        .route("/approvals/{id}/grant", get(grant::show).post(grant::propose))
        .route("/together", get(bulk::back).post(bulk::look))
        .route("/together/decision", get(bulk::back).post(bulk::decide))
        .route("/load", get(load::show))
        .route("/report", get(report::show))
        .route("/decisions", get(decisions::list))
        .route("/decisions/{id}", get(decisions::show))
        .route("/tools", get(tools::list))
        .route("/tools/{id}", get(tools::show))
        .route("/runs", get(runs::list))
        .route("/runs/{id}", get(runs::show))
        .route("/calls/{id}/timeline", get(timeline::show))
        .route("/grants", get(entries::grants))
        .route("/break-glass", get(entries::break_glass).post(arrange::break_glass))
        .route("/delegations", get(entries::delegations).post(arrange::delegation))
        .route("/calendar", get(calendar::show).post(arrange::freeze))
        .route("/entries/{id}", get(entry::show).post(entry::act_on))
        .route("/help", get(help::show))
        .route(visitor::LIVE_PATH, get(live::follow))
        .route("/errors/{id}", get(errors::show))
        .route("/sign-in", get(sign_in::show))
        .route("/sign-in/start", get(sign_in::start))
        .route("/sign-in/callback", get(sign_in::callback))
        .route("/sign-in/development", post(sign_in::development))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/signed-out", get(sign_in::signed_out))
        .route(assets::ROUTE, get(assets::file))
        .route("/{*path}", any(kept::unknown));
    let pages = pages.layer(middleware::from_fn_with_state(app.clone(), run));
    let pages = pages.layer(middleware::from_fn_with_state(app.clone(), kept::keep));
    pages.layer(middleware::map_response(headers::protect)).with_state(app)
}

/// Limits how long a page takes.
async fn run(
    State(app): State<ConsoleState>,
    request: Request,
    next: Next,
) -> Result<Response, Trouble> {
    Ok(app.api.run(request, next).await?)
}
