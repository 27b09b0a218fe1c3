//! What the end-to-end tests drive the program with: a set-up on disk, a running Placet, clients, collectors, MCP servers.
//!
//! Owns bounded waiting. Does not test anything itself. Invariant: whatever a test starts ends with it, also where it is killed ([`watcher`]), and a test that fails
//! shows what the program logged.

pub(crate) mod client;
pub(crate) mod model;
pub(crate) mod npm;
pub(crate) mod otlp;
pub(crate) mod placet;
pub(crate) mod postgres;
pub(crate) mod pypi;
pub(crate) mod scripted;
pub(crate) mod search;
pub(crate) mod secret_server;
pub(crate) mod setup;
pub(crate) mod watcher;

use std::{future::Future, time::Duration};

/// How long anything may take that should happen soon; long enough for a machine that compiles beside it.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// The result of `future`, or a failure that names what did not happen.
pub(crate) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, future)
        .await
        .unwrap_or_else(|_| panic!("{what}: not within {SOON:?}"))
}

/// Now, as tokens say it.
#[expect(clippy::disallowed_methods, reason = "tokens for programs that read the real time")]
pub(crate) fn seconds() -> u64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs()
}

/// Waits until `check` says so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, check: impl Fn() -> F) {
    within(what, async {
        while !check().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
