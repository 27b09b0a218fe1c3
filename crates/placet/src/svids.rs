//! Secrets that the agent of the SPIFFE Workload API issues: fetched and renewed as long as the process runs.

use std::sync::Arc;

use placet_identity::SvidKeeper;
use placet_types::clock::Clock;

use crate::{clock::SystemClock, config::load::Config, failure::Failure};

/// Fetches them, and renews them until the returned keeper is dropped; `None` if no secret is one.
pub(crate) async fn open(config: &Config) -> Result<Option<SvidKeeper>, Failure> {
    let socket = config.identity.workload_api.as_ref().filter(|_| config.secrets.need_agent());
    let Some(socket) = socket else { return Ok(None) };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let opened = SvidKeeper::open(socket, &config.secrets, &clock).await;
    opened.map(Some).map_err(|error| {
        Failure::new("a secret of the agent of the Workload API cannot be had")
            .because(format!("`{}`: {error}", socket.display()))
            .try_this("check `spiffe.socket`, that the agent runs, and that this process is registered with it")
    })
}
