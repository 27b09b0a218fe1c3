//! The sender of messages to people, as configured, running alongside the engine.
//!
//! Owns its start and its supervision. Not here: who is notified of what (`placet-notify`). Invariant: nothing that happens in it delays
//! a call; a sender that fails is restarted, and resumes where the chain says.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use placet_ledger::{
    log::AuditLog,
    store::{Store, StoreError},
};
use placet_notify::{
    config::NotifyConfig,
    notifier::Notifier,
    sender::{MessageSender, Post},
};
use placet_telemetry::metrics::Metrics;
use tokio::time::{sleep, timeout};
use url::Url;

use crate::{
    config::load::Config,
    failure::{Attempted as _, Failure},
    storage::Opened,
};

/// How long the start waits for the first look at the chain.
const FIRST_LOOK: Duration = Duration::from_secs(10);
/// The first pause before a failed sender is restarted.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest such pause.
const PAUSE_MAX: Duration = Duration::from_secs(60);

/// The parts of a sender.
#[derive(Clone)]
pub(crate) struct Sender {
    config: Arc<NotifyConfig>,
    store: Arc<dyn Store>,
    log: Arc<dyn AuditLog>,
    sender: Arc<dyn MessageSender>,
    metrics: Metrics,
}

impl Sender {
    fn make(&self) -> Notifier {
        Notifier::new(
            Arc::clone(&self.config),
            Arc::clone(&self.store),
            Arc::clone(&self.log),
            Arc::clone(&self.sender),
            self.metrics.clone(),
        )
    }
}

/// The sender's delivery, as configured.
pub(crate) fn post(
    config: &Config,
    console: Option<Url>,
    own_listeners: &[SocketAddr],
) -> Result<Post, Failure> {
    let secrets = Arc::new(config.secrets.clone());
    Post::new(&config.notifications, secrets, console, own_listeners.to_vec(), &config.trust)
        .attempted("the channels of `notifications` cannot be used")
}

/// The sender, if any notifications are configured.
pub(crate) fn sender(
    config: &Config,
    opened: &Opened,
    own_listeners: &[SocketAddr],
    metrics: Metrics,
) -> Result<Option<Sender>, Failure> {
    if config.notifications.is_empty() {
        return Ok(None);
    }
    let post = post(config, console(config, own_listeners.first()), own_listeners)?;
    Ok(Some(Sender {
        config: Arc::new(config.notifications.clone()),
        store: Arc::clone(&opened.store),
        log: Arc::clone(&opened.log),
        sender: Arc::new(post),
        metrics,
    }))
}

/// The base of links: the configured address, or our own if only this machine reaches us.
pub(crate) fn console(config: &Config, listen: Option<&SocketAddr>) -> Option<Url> {
    if !config.console.enabled {
        return None;
    }
    let own = listen.filter(|listen| listen.ip().to_canonical().is_loopback());
    let own = own.and_then(|listen| Url::parse(&format!("http://{listen}/")).ok());
    config.console.public_url.clone().or(own)
}

/// Starts the sender. It reads the chain once before any request is served, so that nothing that happens from now on is missed.
pub(crate) async fn begin(sender: Option<Sender>) {
    let Some(sender) = sender else { return };
    let mut first = sender.make();
    match timeout(FIRST_LOOK, first.turn()).await {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            tracing::warn!(%error, "the sender of messages could not look at the chain yet");
        }
        Err(_elapsed) => tracing::warn!("the sender of messages is slow to look at the chain"),
    }
    // The task ends with the process, or when the ledger is closed.
    drop(tokio::spawn(supervise(sender, first)));
}

async fn supervise(sender: Sender, first: Notifier) {
    let mut next = first;
    let mut pause = PAUSE;
    loop {
        match tokio::spawn(next.run()).await {
            Ok(StoreError::Stopped(_) | StoreError::Uncertain(_) | StoreError::Fenced) => return,
            Ok(error) => tracing::error!(%error, "the sender of messages ended"),
            Err(error) if error.is_cancelled() => return,
            Err(error) => tracing::error!(%error, "the sender of messages broke off"),
        }
        sender.metrics.count_actor_restart("notifier");
        sleep(pause).await;
        pause = pause.saturating_mul(2).min(PAUSE_MAX);
        next = sender.make();
    }
}
