//! The issuers of callers' tokens, from the configuration: at the start and at a reload.
//!
//! Owns how they are made and the digest that names them.

use std::{net::SocketAddr, sync::Arc};

use placet_egress::{EgressClient, Limits};
use placet_identity::{DevKey, IdentityConfig, NextIssuers, Verifier};
use placet_types::{clock::Clock, digest::Digest, directory::Directory, json::canonical_digest};
use serde_json::json;

use crate::{
    config::load::Config,
    development::dev_key,
    egress,
    failure::{Attempted as _, Failure},
};

const ISSUERS: &str = "the issuers cannot be used";

/// Who verifies tokens: the configured issuers, and the development key where it is accepted.
pub(crate) fn verifier(
    config: &Config,
    directory: &Directory,
    own_listeners: &[SocketAddr],
    clock: &Arc<dyn Clock>,
) -> Result<Verifier, Failure> {
    let (identity, egress) = issuers(config, directory, own_listeners)?;
    Verifier::new(identity, Arc::clone(clock), egress).attempted(ISSUERS)
}

/// The issuers that take the place of those of `verifier` when a reload is activated.
pub(crate) fn next_issuers(
    verifier: &Verifier,
    config: &Config,
    directory: &Directory,
    own_listeners: &[SocketAddr],
) -> Result<NextIssuers, Failure> {
    let (identity, egress) = issuers(config, directory, own_listeners)?;
    verifier.prepare(&identity, egress.as_ref()).attempted(ISSUERS)
}

fn issuers(
    config: &Config,
    directory: &Directory,
    own_listeners: &[SocketAddr],
) -> Result<(IdentityConfig, Option<EgressClient>), Failure> {
    let mut identity: IdentityConfig = config.identity.clone();
    if config.development_tokens {
        let key: DevKey = dev_key(config)?;
        for tenant in directory.tenants.keys() {
            let audiences = [config.audience.clone()].into();
            let issuer = key
                .issuer_config(config.server.listen.ip(), tenant.clone(), audiences)
                .attempted(ISSUERS)?;
            identity.issuers.push(issuer);
        }
    }
    let destinations = identity.key_destinations().attempted(ISSUERS)?;
    let egress = egress::client(config, destinations, Limits::default(), own_listeners, ISSUERS)?;
    Ok((identity, egress))
}

/// The digest of the configuration's section on issuers, as written: paths in it are the same on every node.
pub(crate) fn issuers_digest(config: &Config) -> Digest {
    let issuers = &config.written.issuers;
    canonical_digest(&json!({ "issuers": issuers, "development": config.development_tokens }))
}
