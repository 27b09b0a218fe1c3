//! What the handlers of the listener share: engine, configuration, places, connections and the state of the listeners.
//!
//! Owns how long a request waits for the engine. Invariant: a write is completed even if its caller goes away or its time is up.

use std::{future::Future, ops::Deref, sync::Arc, time::Duration};

use axum::{
    extract::{FromRequestParts, Request},
    middleware::Next,
    response::Response,
};
use http::{Method, request::Parts};
use tokio::sync::watch;
use tracing::Instrument as _;

use placet_engine::engine::Engine;
use placet_identity::VerifiedCaller;
use placet_types::error::{ErrorCode, Execution, Refusal};

use crate::{
    config::ServerConfig,
    connections::Connections,
    places::{About, Place, Places},
    problem::Failure,
};

/// The phase of the listeners.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Open.
    Serving,
    /// The API accepts no new connections; open requests finish.
    Draining,
    /// Connections that are still open are cut.
    Closed,
}

/// Resolves when the listeners have reached `wanted`, or their phase can no longer change.
pub(crate) async fn reached(mut phase: watch::Receiver<Phase>, wanted: Phase) {
    if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
        tracing::trace!("nobody moves the listeners any more");
    }
}

/// What the handlers share, those of the pages too; every layer of every request has a clone.
#[derive(Debug, Clone)]
pub struct ApiState(Arc<Shared>);

/// What is shared.
#[derive(Debug)]
pub struct Shared {
    /// The engine.
    pub engine: Engine,
    config: Arc<ServerConfig>,
    places: Arc<Places>,
    /// The connections of callers.
    pub(crate) connections: Arc<Connections>,
    phase: watch::Receiver<Phase>,
}

impl Deref for ApiState {
    type Target = Shared;

    fn deref(&self) -> &Shared {
        &self.0
    }
}

impl ApiState {
    pub(crate) fn new(
        engine: Engine,
        config: Arc<ServerConfig>,
        phase: watch::Receiver<Phase>,
    ) -> Self {
        let all = config.connections_max.size();
        let connections = Connections::new(all, config.connections_per_address_max.size());
        let places = Places::new(all);
        Self(Arc::new(Shared { engine, config, places, connections, phase }))
    }

    /// A place for one more event stream or request of this caller's.
    ///
    /// # Errors
    /// [`Failure`] when there is none for this caller.
    pub fn place(&self, about: About, caller: &VerifiedCaller) -> Result<Place, Failure> {
        const RETRY_AFTER_MS: u64 = 5_000;
        self.places.place(about, caller.actor.principal()).map_err(|full| {
            let refusal = Refusal::new(ErrorCode::Overloaded, full.said(about));
            Failure::new(refusal.with_retry_after_ms(RETRY_AFTER_MS))
        })
    }

    /// Resolves when a caller's credentials become invalid, with the refusal to return then.
    pub(crate) fn over(
        &self,
        caller: &VerifiedCaller,
    ) -> impl Future<Output = Refusal> + Send + 'static + use<> {
        let lasts = self.engine.expires_in(caller);
        let revoked = self.engine.revoked(Arc::new(caller.clone()));
        async move {
            tokio::select! {
                biased;
                refusal = revoked => refusal,
                () = tokio::time::sleep(lasts) => expired(),
            }
        }
    }

    pub(crate) fn config(&self) -> &ServerConfig {
        &self.config
    }

    /// Whether the listeners are asked to close.
    pub(crate) fn is_closing(&self) -> bool {
        *self.phase.borrow() != Phase::Serving
    }

    /// Resolves when the listeners are asked to close.
    pub(crate) fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        reached(self.phase.clone(), Phase::Draining)
    }

    /// Handles a request within its time limit. A `POST` goes on in a task of its own when its caller goes away or its time is up.
    ///
    /// # Errors
    /// [`Failure`] when it takes too long.
    pub async fn run(&self, request: Request, next: Next) -> Result<Response, Failure> {
        if request.method() == Method::POST {
            return self.write(next.run(request)).await;
        }
        self.read(async { Ok::<_, Failure>(next.run(request).await) }).await
    }

    /// Waits for a read.
    pub(crate) async fn read<T, E>(
        &self,
        question: impl Future<Output = Result<T, E>>,
    ) -> Result<T, Failure>
    where
        Failure: From<E>,
    {
        match tokio::time::timeout(self.patience(), question).await {
            Ok(answer) => Ok(answer?),
            Err(_) => Err(Failure::timed_out("the answer took too long", Execution::NotExecuted)),
        }
    }

    /// Waits for a write.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        deed: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, Failure> {
        let task = tokio::spawn(deed.in_current_span());
        match tokio::time::timeout(self.patience(), task).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Failure::internal("the task of a request panicked")),
            Err(_) => {
                Err(Failure::timed_out("the answer took too long; look again", Execution::Unknown))
            }
        }
    }

    fn patience(&self) -> Duration {
        Duration::from_millis(self.config.request_timeout_ms.0)
    }
}

/// The caller that the router's middleware verified.
#[derive(Debug, Clone)]
pub(crate) struct Caller(pub(crate) Arc<VerifiedCaller>);

impl FromRequestParts<ApiState> for Caller {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &ApiState) -> Result<Self, Failure> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller
            .ok_or_else(|| Failure::internal("a route without a verified caller was asked for one"))
    }
}

/// The refusal for a caller whose token expired while they waited.
pub(crate) fn expired() -> Refusal {
    Refusal::new(
        ErrorCode::CredentialExpired,
        "the token has expired; get a new one for the same principal and ask again",
    )
}
