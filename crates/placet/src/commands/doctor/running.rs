//! Whether a running server has the policies that are on disk.
//!
//! Owns the one check that asks a server; where none answers there is nothing to compare.

use placet_engine::views::Readiness;
use placet_types::{digest::Digest, mode::EngineMode};
use url::Url;

use super::Check;
use crate::{client::Client, config::load::Config, storage};

const ABOUT: &str = "running";

/// What the server at the configured admin listener has active, against the policies as they were just read.
pub(super) async fn check(config: &Config, policies: Option<Digest>) -> Option<Check> {
    if !may_run(config) {
        return None;
    }
    let url = Url::parse(&format!("http://{}", config.server.admin_listen)).ok()?;
    let client = Client::without_token(url).ok()?;
    let reply = client.fetch(&["readyz"], &[]).await.ok()?;
    let readiness: Readiness = reply.read().ok()?;
    let active = readiness.active;
    let has_other_policies = policies.is_some_and(|policies| policies != active.bundle);
    let found = format!(
        "active {}, epoch {}, since {}; policies on disk: {}",
        active.active.short(),
        active.epoch,
        active.since,
        if has_other_policies { "different" } else { "the same" }
    );
    let needs_restart = active.needs_restart.join("`, `");
    Some(if active.mode == EngineMode::Lockdown {
        let todo = "no call runs until somebody lifts it: `placet directives list --kind freeze`";
        Check::warn(ABOUT, format!("lockdown; {found}"), todo)
    } else if let Some(epoch) = active.epoch_elsewhere {
        let todo = format!(
            "another server has activated epoch {epoch}: put the same files here, then `placet reload`"
        );
        Check::warn(ABOUT, found, todo)
    } else if has_other_policies {
        Check::warn(ABOUT, found, "`placet reload` applies them, if they pass the checks")
    } else if !needs_restart.is_empty() {
        let todo = format!("restart it to apply `{needs_restart}` of the configuration");
        Check::warn(ABOUT, found, todo)
    } else {
        Check::ok(ABOUT, found)
    })
}

/// Whether a server may run on this data folder. If none does, the one that answers on the configured port is another's.
fn may_run(config: &Config) -> bool {
    storage::lock_holder(&config.data).is_some()
}
