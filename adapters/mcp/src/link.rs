//! The connection itself, and a request that waits for its answer.
//!
//! Owns the goodbye and the subscription to changes of the tool list. Invariant: a request that is dropped before its answer is cancelled
//! at the server.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use placet_adapter::outcome::AdapterError;
use rmcp::{
    model::{
        ClientRequest, RequestMetaObject, ServerNotification, ServerPeerInfo, ServerResult,
        SubscriptionFilter,
    },
    service::{Peer, PeerRequestOptions, RequestHandle, RoleClient, ServiceError},
};
use tokio::{
    runtime::Handle,
    sync::{Mutex, RwLock},
    task::JoinHandle,
    time::{Instant, sleep, timeout, timeout_at},
};

use crate::{
    failure::{self, Fault},
    handshake::Service,
    http::{EgressHttp, direct::Direct, tool_call::ToolCall},
    listener::Listener,
    stdio::child::ChildHandle,
};

/// How long closing a connection may take: rmcp waits for answers in flight, then ends the session.
const CLOSE_WAIT: Duration = Duration::from_secs(8);
/// How long notifying the server of a cancellation may take.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// The pause before an ended subscription is renewed.
const RESUBSCRIBE_PAUSE: Duration = Duration::from_secs(5);

/// A connection and what belongs to it.
pub(crate) struct Link {
    peer: Peer<RoleClient>,
    /// `None` once closed. A tokio mutex, because it is held while the connection is closed.
    service: Mutex<Option<Service>>,
    /// The path of calls that can bypass the service.
    direct: Option<Direct>,
    /// Read-locked by every call on that path. Closing the connection waits for running ones.
    calls: RwLock<()>,
    generation: Arc<AtomicU64>,
    closed: Arc<AtomicBool>,
    child: Option<ChildHandle>,
    subscription: Option<JoinHandle<()>>,
}

impl Link {
    pub(crate) fn new(
        service: Service,
        listener: &Listener,
        closed: Arc<AtomicBool>,
        child: Option<ChildHandle>,
    ) -> Self {
        let peer = service.peer().clone();
        let generation = listener.generation();
        let subscription = subscribe(&peer, &generation);
        let service = Mutex::new(Some(service));
        let (direct, calls) = (None, RwLock::default());
        Self { peer, service, direct, calls, generation, closed, child, subscription }
    }

    /// The same over HTTP, where calls can bypass the service.
    pub(crate) fn over(mut self, http: &EgressHttp, listener: &Listener) -> Self {
        let info = self.peer.peer_info();
        self.direct = info.and_then(|info| Direct::over(http, listener, &info.protocol_version));
        self
    }

    /// Makes a call, which is not sent after `deadline`; the answer may take longer.
    ///
    /// # Errors
    /// What the failure means for the call. Nothing happened if the connection does not accept it.
    pub(crate) async fn call(
        &self,
        call: ToolCall,
        deadline: Instant,
    ) -> Result<ServerResult, Unanswered> {
        if let Some(direct) = &self.direct {
            let Ok(_under_way) = timeout_at(deadline, self.calls.read()).await else {
                return Err(Unanswered::NotTaken);
            };
            if !self.is_alive() {
                return Err(Unanswered::NotTaken);
            }
            return direct.call(call, &self.peer).await.map_err(Unanswered::Failed);
        }
        let _heard = call.progress.clone();
        let (request, meta) = call.into_request();
        Box::pin(self.ask(request, meta, deadline)).await
    }

    /// Makes a request through the service, which is not sent after `deadline`; the answer may take longer.
    ///
    /// # Errors
    /// As for a call.
    pub(crate) async fn ask(
        &self,
        request: ClientRequest,
        meta: RequestMetaObject,
        deadline: Instant,
    ) -> Result<ServerResult, Unanswered> {
        let options = PeerRequestOptions::no_options().with_meta(meta);
        let sending = self.peer.send_request_with_option(request, options);
        // Otherwise it was not even queued.
        let Ok(Ok(handle)) = timeout_at(deadline, sending).await else {
            return Err(Unanswered::NotTaken);
        };
        let answer = Asked::new(handle).answer().await;
        let answer = answer.unwrap_or(Err(ServiceError::TransportClosed));
        answer.map_err(|error| Unanswered::Failed(failure::of_request(&error)))
    }

    /// The server's part of the handshake.
    pub(crate) fn peer_info(&self) -> Result<Arc<ServerPeerInfo>, AdapterError> {
        self.peer.peer_info().ok_or_else(|| {
            AdapterError::InvalidResponse("its handshake says nothing of itself".to_owned())
        })
    }

    pub(crate) async fn close(&self) {
        self.closed.store(true, Ordering::Release);
        let _ended = timeout(CLOSE_WAIT, self.calls.write()).await.is_ok();
        if let Some(mut service) = self.service.lock().await.take() {
            // Even if that timed out or panicked: what follows ends it.
            let _ended = service.close_with_timeout(CLOSE_WAIT).await.is_ok();
        }
        if let Some(child) = &self.child {
            child.close().await;
        }
    }

    /// Our end of it.
    pub(crate) fn peer(&self) -> &Peer<RoleClient> {
        &self.peer
    }

    pub(crate) fn is_alive(&self) -> bool {
        !self.closed.load(Ordering::Acquire) && !self.peer.is_transport_closed()
    }

    /// Counts the announced changes of the tool list.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.abort();
        }
    }
}

/// From revision 2026-07-28 on, changes of the tool list are announced only to subscribers.
fn subscribe(peer: &Peer<RoleClient>, generation: &Arc<AtomicU64>) -> Option<JoinHandle<()>> {
    let info = peer.peer_info()?;
    let announces =
        info.capabilities.tools.as_ref().and_then(|tools| tools.list_changed) == Some(true);
    if info.protocol_version.has_initialize() || !announces {
        return None;
    }
    let (peer, generation) = (peer.clone(), Arc::clone(generation));
    Some(tokio::spawn(async move {
        while !peer.is_transport_closed() {
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            if let Ok(mut subscription) = peer.listen(filter).await {
                while let Ok(Some(notification)) = subscription.next().await {
                    if matches!(notification, ServerNotification::ToolListChangedNotification(_)) {
                        generation.fetch_add(1, Ordering::AcqRel);
                    }
                }
                // Changes since then are not known.
                generation.fetch_add(1, Ordering::AcqRel);
            }
            sleep(RESUBSCRIBE_PAUSE).await;
        }
    }))
}

/// Why a call has no answer.
pub(crate) enum Unanswered {
    /// The connection took no more calls.
    NotTaken,
    /// It was taken, and failed.
    Failed(Fault),
}

/// A request whose answer has not come. Dropping it notifies the server of the cancellation.
pub(crate) struct Asked(Option<RequestHandle<RoleClient>>);

impl Asked {
    pub(crate) const fn new(handle: RequestHandle<RoleClient>) -> Self {
        Self(Some(handle))
    }

    /// The answer; `None` when the connection has ended.
    pub(crate) async fn answer(&mut self) -> Option<Result<ServerResult, ServiceError>> {
        let answer = (&mut self.0.as_mut()?.rx).await.ok();
        self.0 = None;
        answer
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let (Some(handle), Ok(runtime)) = (self.0.take(), Handle::try_current()) else { return };
        drop(runtime.spawn(async move {
            // Best effort: the outcome is unknown either way.
            let reason = Some("deadline exceeded".to_owned());
            let _told = timeout(CANCEL_WAIT, handle.cancel(reason)).await.is_ok();
        }));
    }
}
