//! Secrets that others keep: in the vault, and with the agent of the SPIFFE Workload API. Opened for as long as the process runs.
//!
//! Owns the set-up, and what an operator is told when it fails. Invariant: a secret that cannot be had stops the start, and nothing is asked of a
//! vault or an agent that no secret is with.

use std::{net::SocketAddr, sync::Arc};

use placet_egress::{EgressClient, EgressPolicy};
use placet_identity::{SvidKeeper, VaultConfig, VaultError, VaultKeeper};
use placet_types::clock::Clock;

use crate::{
    clock::SystemClock,
    config::load::Config,
    failure::{Attempted as _, Failure},
};

/// Who keeps secrets fresh.
#[derive(Debug)]
pub(crate) struct Kept {
    vault: Option<VaultKeeper>,
    /// They end with this.
    _svids: Option<SvidKeeper>,
}

impl Kept {
    /// Reads what others keep, and keeps it fresh until it is closed or dropped.
    ///
    /// # Errors
    /// [`Failure`] when the vault or the agent, or a secret of theirs, cannot be had.
    pub(crate) async fn open(config: &Config, own: &[SocketAddr]) -> Result<Self, Failure> {
        let svids = svids(config).await?;
        Ok(Self { vault: vault(config, own).await?, _svids: svids })
    }

    /// How many entries of the vault are kept fresh.
    pub(crate) fn entries(&self) -> usize {
        self.vault.as_ref().map_or(0, VaultKeeper::entries)
    }

    /// Returns what was leased.
    pub(crate) async fn close(self) {
        if let Some(vault) = self.vault {
            vault.close().await;
        }
    }
}

async fn svids(config: &Config) -> Result<Option<SvidKeeper>, Failure> {
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

async fn vault(config: &Config, own: &[SocketAddr]) -> Result<Option<VaultKeeper>, Failure> {
    let Some(vault) = config.vault.as_ref().filter(|_| config.secrets.need_vault()) else {
        return Ok(None);
    };
    let what = "the secrets in the vault cannot be read";
    let policy = EgressPolicy::new(vec![vault.destination().attempted(what)?])
        .refusing_listeners(own.to_vec());
    let egress = EgressClient::with_trust(policy, VaultConfig::limits(), &config.trust);
    let opened = VaultKeeper::open(vault, &config.secrets, egress.attempted(what)?).await;
    opened.map(Some).map_err(|error| {
        let todo = remedy(&error);
        Failure::new(what).because(format!("`{}`: {error}", vault.address)).try_this(todo)
    })
}

/// What an operator can do about it.
const fn remedy(error: &VaultError) -> &'static str {
    match error {
        VaultError::Unreachable(_) => {
            "check `vault.address`, and `trust.roots` if its certificate is of an authority of your own; an address in a private range needs `vault.private_network: true`"
        }
        VaultError::Standby | VaultError::NotReady { .. } => "ask its health: `GET /v1/sys/health`",
        VaultError::TokenRefused | VaultError::LoginRefused { .. } | VaultError::Proof { .. } => {
            "check `vault.auth`, who we are there and the file that proves it, and `vault.namespace`"
        }
        VaultError::Denied { .. } => {
            "give the role a policy with `read` on that path, in the right `vault.namespace`"
        }
        VaultError::Absent { .. } | VaultError::Unusable { .. } | VaultError::Stale { .. } => {
            "check the secret's `vault: <path>#<field>`, and `vault.namespace`"
        }
        VaultError::Malformed { .. } => "check that `vault.address` is a Vault or an OpenBao",
    }
}
