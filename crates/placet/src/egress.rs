//! Connections of our own to places that the configuration names.
//!
//! Owns what they have in common: none leads to a listener of this process, and all use the configured trust.

use std::net::SocketAddr;

use placet_egress::{Destination, EgressClient, EgressPolicy, Limits};

use crate::{
    config::load::Config,
    failure::{Attempted as _, Failure},
};

/// A client for these destinations; `None` if there are none. `what` says what cannot be used without it.
pub(crate) fn client(
    config: &Config,
    destinations: Vec<Destination>,
    limits: Limits,
    own_listeners: &[SocketAddr],
    what: &str,
) -> Result<Option<EgressClient>, Failure> {
    if destinations.is_empty() {
        return Ok(None);
    }
    let policy = EgressPolicy::new(destinations).refusing_listeners(own_listeners.to_vec());
    EgressClient::with_trust(policy, limits, &config.trust).map(Some).attempted(what)
}
