//! Who mints credentials: the configured token services, and the client that reaches them.
//!
//! Owns the set-up. Invariant: a token service to which we cannot authenticate stops the start.

use std::{net::SocketAddr, sync::Arc};

use placet_credentials::{Broker, ClientAuth, StsConfig, egress_limits};
use placet_egress::Destination;
use placet_types::clock::Clock;

use crate::{
    config::load::Config,
    egress,
    failure::{Attempted as _, Failure},
};

/// The broker for the configured token services.
pub(crate) fn broker(
    config: &Config,
    own_listeners: &[SocketAddr],
    clock: &Arc<dyn Clock>,
) -> Result<Broker, Failure> {
    let what = "the token services (`sts`) cannot be used";
    let destinations: Result<Vec<Destination>, _> =
        config.sts.iter().map(StsConfig::destination).collect();
    let destinations = destinations.attempted(what)?;
    let mut services = config.sts.iter().zip(&destinations);
    if let Some((unproven, _)) = services.find(|(service, at)| {
        service.client_auth == (ClientAuth::TlsClientAuth {}) && !has_certificate(config, at)
    }) {
        return Err(Failure::new(what)
            .because(format!("nothing proves who we are to `{}`", unproven.name))
            .try_this("name a certificate for its token endpoint under `trust.certificates`"));
    }
    let egress = egress::client(config, destinations, egress_limits(), own_listeners, what)?;
    Broker::new(config.sts.clone(), config.secrets.clone(), egress, Arc::clone(clock))
        .attempted(what)
}

fn has_certificate(config: &Config, destination: &Destination) -> bool {
    let place = |one: &Destination| (one.scheme, one.host.clone(), one.port);
    config.trust.identities.iter().any(|(peer, _)| place(peer) == place(destination))
}
