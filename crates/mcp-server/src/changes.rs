//! Tells clients that the list of their tools changed (`notifications/tools/list_changed`).
//!
//! Owns who is notified, and how often: initialized sessions, and streams of `subscriptions/listen`. The engine determines what changes the
//! list. Invariants: several changes in a row cause one notification; a slow client delays nobody else.

use std::{pin::pin, sync::Arc, time::Duration};

use futures::{StreamExt as _, stream};
use rmcp::{ErrorData, service::SubscriptionContext};
use tokio::time::{sleep, timeout};

use placet_identity::VerifiedCaller;

use crate::shared::Shared;

/// How long changes are collected before clients are notified of them.
const GATHERED: Duration = Duration::from_millis(500);
/// How long a session may take to accept a notification; a slower one is not notified again.
const TAKEN_WITHIN: Duration = Duration::from_secs(5);
/// How many sessions are notified at the same time.
const AT_ONCE: usize = 256;

/// Tells the sessions of every change, until the listeners close.
pub(crate) async fn tell_sessions(shared: Arc<Shared>) {
    let mut changes = shared.engine.changes();
    while let Some(Ok(())) = shared.closing.run_until_cancelled(changes.changed()).await {
        sleep(GATHERED).await;
        changes.mark_unchanged();
        let sessions = stream::iter(shared.sessions.listening());
        sessions
            .for_each_concurrent(AT_ONCE, |session| async move {
                let Some(peer) = session.peer() else { return };
                let taken = timeout(TAKEN_WITHIN, peer.notify_tool_list_changed()).await;
                if !matches!(taken, Ok(Ok(()))) {
                    session.deafen();
                }
            })
            .await;
    }
}

/// Resolves when a stream of this caller has to end: the listeners close, or what it was verified by is revoked or expires.
pub(crate) fn stream_ends(
    shared: &Shared,
    caller: &Arc<VerifiedCaller>,
) -> impl Future<Output = ()> + Send + 'static + use<> {
    let closing = shared.closing.clone().cancelled_owned();
    let revoked = shared.engine.revoked(Arc::clone(caller));
    let lasts = shared.engine.expires_in(caller);
    async move {
        tokio::select! {
            () = closing => {}
            _refusal = revoked => {}
            () = sleep(lasts) => {}
        }
    }
}

/// Tells a stream of `subscriptions/listen` of every change, as long as it is open and what its caller was verified by counts.
pub(crate) async fn tell_stream(
    shared: &Shared,
    caller: &Arc<VerifiedCaller>,
    stream: &SubscriptionContext,
) -> Result<(), ErrorData> {
    let mut changes = shared.engine.changes();
    let mut ended = pin!(stream_ends(shared, caller));
    loop {
        tokio::select! {
            biased;
            () = stream.cancelled() => return Ok(()),
            () = &mut ended => return Ok(()),
            changed = changes.changed() => if changed.is_err() { return Ok(()) },
        }
        sleep(GATHERED).await;
        changes.mark_unchanged();
        if let Err(error) = stream.sink().notify_tool_list_changed().await {
            tracing::debug!(%error, "a client could not be told that its tools changed");
        }
    }
}
