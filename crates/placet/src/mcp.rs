//! The MCP front end on the listener of the callers.
//!
//! Owns the identity of a client without a token: the development agent, where development tokens are accepted, which is on loopback.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use placet_api::listen::Bound;
use placet_engine::engine::Engine;
use placet_identity::{DevKey, MintRequest};
use placet_mcp_server::ApprovalPages;
use placet_store::notary::Notary;
use placet_types::{
    clock::{Clock, Timestamp},
    ids::PrincipalId,
    principal::PrincipalKind,
};
use tokio_util::sync::CancellationToken;

use crate::{
    clock::{SystemClock, UlidSource},
    config::load::Config,
    development::{DEV_AGENT, DEV_TENANT, dev_key},
    failure::{Attempted as _, Failure},
    notices, world,
};

/// How long a token of the development agent is used, and how long it lives, in milliseconds and seconds.
const USED_MS: i64 = 30 * 60 * 1_000;
const LIFETIME_S: u64 = 60 * 60;

/// The second purpose of the key that seals the ledger: nodes that share `ledger.seal_key` accept each other's request states.
const REQUEST_STATE: &str = "placet.mcp_request_state.v1";

/// The listeners with `/mcp`, if it is wanted.
pub(crate) fn with_mcp(
    bound: Bound,
    config: &Config,
    engine: &Engine,
    clock: Arc<dyn Clock>,
    notary: &Notary,
) -> Result<Bound, Failure> {
    if !config.mcp.enabled {
        return Ok(bound);
    }
    let closing = CancellationToken::new();
    let ids = Arc::new(UlidSource::new(SystemClock));
    let mut settings = config.mcp.clone();
    settings.request_bytes_max = config.server.body_bytes_max.size();
    settings.body_within = Duration::from_millis(config.server.request_timeout_ms.0);
    let console = notices::console(config, Some(&bound.address()));
    settings.pages =
        console.map(|console| ApprovalPages::new(console, &notary.secret_for(REQUEST_STATE)));
    let router = placet_mcp_server::router(
        engine.clone(),
        settings,
        Arc::clone(&clock),
        ids,
        closing.clone(),
    );
    let development: Option<Arc<dyn Fn() -> Option<String> + Send + Sync>> =
        if config.development_tokens {
            let agent = DevelopmentAgent::new(config, clock)?;
            Some(Arc::new(move || agent.token()))
        } else {
            None
        };
    Ok(bound.with_mcp(router, development, closing))
}

/// Makes tokens of the development agent.
pub(crate) struct DevelopmentAgent {
    key: DevKey,
    request: MintRequest,
    clock: Arc<dyn Clock>,
    made: Mutex<Option<(Timestamp, String)>>,
}

impl DevelopmentAgent {
    /// Of the development key of this configuration.
    pub(crate) fn new(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, Failure> {
        let what = "the development agent has no name";
        // A directory without it takes no development token either.
        let tenant = world::development_tenant(config)
            .or_else(|_none| DEV_TENANT.parse().attempted(what))?;
        let agent: PrincipalId = DEV_AGENT.parse().attempted(what)?;
        let mut request =
            MintRequest::new(tenant, PrincipalKind::Agent, agent, config.audience.clone());
        request.lifetime_s = LIFETIME_S;
        Ok(Self { key: dev_key(config)?, request, clock, made: Mutex::default() })
    }

    /// A token that is good for a while.
    pub(crate) fn token(&self) -> Option<String> {
        let made = &mut *self.made.lock();
        let now = self.clock.now();
        match made {
            Some((at, token)) if now.since_ms(*at) < USED_MS => Some(token.clone()),
            _ => {
                let minted = self.key.mint(&self.request, &*self.clock);
                let token = minted
                    .inspect_err(|error| tracing::error!(%error, "the token of the development agent cannot be made"))
                    .ok()?;
                *made = Some((now, token.clone()));
                Some(token)
            }
        }
    }
}
