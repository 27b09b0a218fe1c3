//! The web console of a running process: its sign-in and its settings, from the configuration.
//!
//! Owns who can sign in how. Invariant: people are chosen by name only where development tokens are accepted, which is on loopback.

use std::{net::SocketAddr, sync::Arc};

use placet_api::listen::Bound;
use placet_console::{ConsoleSettings, Development, DevelopmentPerson};
use placet_egress::Limits;
use placet_identity::{Provider, Verifier};
use placet_types::{clock::Clock, directory::Directory, sessions::SessionStore};

use crate::{
    config::load::Config,
    development::dev_key,
    egress,
    failure::{Attempted as _, Failure},
};

/// The listeners with the console, if it is wanted.
pub(crate) fn with_console(
    bound: Bound,
    config: &Config,
    directory: &Directory,
    verifier: &Verifier,
    clock: &Arc<dyn Clock>,
    own: &[SocketAddr],
    sessions: &Arc<dyn SessionStore>,
) -> Result<Bound, Failure> {
    let file = &config.console;
    if !file.enabled {
        return Ok(bound);
    }
    let mut settings = ConsoleSettings {
        public_url: file.public_url.clone(),
        is_tls: bound.is_tls(),
        provider: None,
        development: None,
        idle_ms: file.idle_ms.0,
        session_ms: file.session_ms.0,
        sessions_max: file.sessions_max.size(),
        clock: Arc::clone(clock),
        sessions: Arc::clone(sessions),
    };
    if let Some(sign_in) = &file.sign_in {
        let what = "the console's sign-in cannot be used";
        let destinations = sign_in.destinations().attempted(what)?;
        let egress = egress::client(config, destinations, Limits::default(), own, what)?;
        settings.provider = egress.map(|egress| {
            let (verifier, secrets) = (verifier.clone(), config.secrets.clone());
            Provider::new(sign_in.clone(), verifier, secrets, egress, Arc::clone(clock))
        });
    }
    if config.development_tokens {
        settings.development = Some(development(config, directory, verifier)?);
    }
    settings.check(bound.address().ip()).attempted("the console cannot be served")?;
    bound.with_pages(Arc::new(settings)).attempted("the console cannot be served")
}

/// The development sign-in: everybody in the directory, with the key that mints their tokens.
fn development(
    config: &Config,
    directory: &Directory,
    verifier: &Verifier,
) -> Result<Development, Failure> {
    let mut people = Vec::new();
    for (tenant, part) in &directory.tenants {
        let active = part.users.iter().filter(|(_, user)| user.active);
        people.extend(active.map(|(id, user)| DevelopmentPerson {
            tenant: tenant.clone(),
            id: id.clone(),
            display: user.display.clone(),
            groups: user.groups.iter().cloned().collect(),
        }));
    }
    let (key, verifier) = (dev_key(config)?, verifier.clone());
    Ok(Development { key, verifier, audience: config.audience.clone(), people })
}
