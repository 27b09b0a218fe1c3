//! Whether a running server has what the files on disk say.
//!
//! Owns the one check that asks a server; where none answers there is nothing to compare.

use placet_engine::views::{Readiness, status::DiskState};
use url::Url;

use super::Check;
use crate::{client::Client, config::load::Config};

const ABOUT: &str = "running";

/// What the server at the configured admin listener has active.
pub(super) async fn check(config: &Config) -> Option<Check> {
    let url = Url::parse(&format!("http://{}", config.server.admin_listen)).ok()?;
    let client = Client::without_token(url).ok()?;
    let reply = client.fetch(&["readyz"], &[]).await.ok()?;
    let readiness: Readiness = reply.read().ok()?;
    let active = readiness.active;
    let found = format!(
        "active {}, epoch {}, since {}; files on disk, looked at every 5 s: {}",
        active.active.short(),
        active.epoch,
        active.since,
        active.disk.in_words()
    );
    let needs_restart = active.needs_restart.join("`, `");
    Some(if let Some(epoch) = active.epoch_elsewhere {
        let todo = format!(
            "another server has activated epoch {epoch}: put the same files here, then `placet reload`"
        );
        Check::warn(ABOUT, found, todo)
    } else if active.disk != DiskState::Same {
        Check::warn(ABOUT, found, "`placet reload` applies them, if they pass the checks")
    } else if !needs_restart.is_empty() {
        let todo = format!("restart it to apply `{needs_restart}` of the configuration");
        Check::warn(ABOUT, found, todo)
    } else {
        Check::ok(ABOUT, found)
    })
}
