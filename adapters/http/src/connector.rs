//! Connections of contracts whose endpoint is over HTTP.
//!
//! Owns what is the same for all of them: the tools are the contract's, and a call is of the contract it was permitted under.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, Inquiry},
    outcome::{AdapterError, Outcome, Probe},
};
use placet_types::contract::{Capability, Contract, LiveTool, file::TransportFile};

pub use crate::target::HttpSettings;
use crate::target::Target;
use crate::{a2a, lm::Lm, rest};

/// The `protocol_version` that contracts pin (TM-05).
const REST_VERSION: &str = "rest/1";
const LM_VERSION: &str = "chat-completions/1";

/// Connects to services, agents and models over HTTP.
#[derive(Debug)]
pub struct HttpConnector {
    settings: HttpSettings,
}

impl HttpConnector {
    /// A connector with these settings.
    pub const fn new(settings: HttpSettings) -> Self {
        Self { settings }
    }
}

#[async_trait]
impl Connector for HttpConnector {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        let (version, kind) = match &contract.transport {
            TransportFile::Rest { .. } => {
                (REST_VERSION, Kind::Rest(Box::new(Target::of(&contract, &self.settings)?)))
            }
            TransportFile::A2a { .. } => {
                (a2a::VERSION, Kind::A2a(Box::new(Target::of(&contract, &self.settings)?)))
            }
            TransportFile::Lm { model, .. } => {
                let lm = Lm::new(Target::of(&contract, &self.settings)?, model, &contract)?;
                (LM_VERSION, Kind::Lm(Box::new(lm)))
            }
            TransportFile::Internal { .. }
            | TransportFile::McpStdio { .. }
            | TransportFile::McpHttp { .. } => {
                return Err(AdapterError::Misconfigured(
                    "the transport is none of `rest`, `a2a` and `lm`".to_owned(),
                ));
            }
        };
        if contract.protocol_version != version {
            return Err(AdapterError::SchemaMismatch(format!(
                "the contract pins `{}`, and this build speaks `{version}`",
                contract.protocol_version
            )));
        }
        Ok(Box::new(HttpAdapter { contract, kind, closed: AtomicBool::new(false) }))
    }
}

/// What is behind the endpoint.
#[derive(Debug)]
enum Kind {
    Rest(Box<Target>),
    A2a(Box<Target>),
    Lm(Box<Lm>),
}

#[derive(Debug)]
struct HttpAdapter {
    contract: Arc<Contract>,
    kind: Kind,
    closed: AtomicBool,
}

impl HttpAdapter {
    /// The capability of a call that was permitted under this contract.
    fn capability(&self, dispatch: &Dispatch) -> Result<&Capability, AdapterError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(AdapterError::Unavailable("the adapter is closed".to_owned()));
        }
        let is_ours = dispatch.contract_digest() == self.contract.digest;
        let capability = self.contract.capabilities.get(dispatch.capability().capability());
        capability.filter(|found| is_ours && found.id == *dispatch.capability()).ok_or_else(|| {
            AdapterError::SchemaMismatch("the call was permitted under another contract".to_owned())
        })
    }
}

#[async_trait]
impl Adapter for HttpAdapter {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        Ok(self.contract.capabilities.iter().map(|(name, one)| one.definition(name)).collect())
    }

    fn generation(&self) -> u64 {
        // The tool list is the contract's, so it never changes.
        0
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        let capability = match self.capability(&dispatch) {
            Ok(capability) => capability,
            Err(error) => return Outcome::NotExecuted(error),
        };
        match &self.kind {
            Kind::Rest(target) => rest::call(target, capability, &dispatch, &conditions).await,
            Kind::A2a(target) => a2a::call(target, capability, &dispatch, &conditions).await,
            Kind::Lm(lm) => {
                let limit = Duration::from_millis(conditions.timeout_ms);
                let call = lm.simulate(capability, &dispatch, &conditions);
                // A model does nothing, so there is no effect that could be unknown.
                tokio::time::timeout(limit, call).await.unwrap_or_else(|_elapsed| {
                    let late = "the model did not answer in time".to_owned();
                    Outcome::NotExecuted(AdapterError::Unavailable(late))
                })
            }
        }
    }

    async fn probe(&self, _inquiry: &Inquiry) -> Probe {
        match &self.kind {
            Kind::Rest(_) | Kind::A2a(_) => Probe::Unknown,
            Kind::Lm(_) => Probe::NotFound,
        }
    }

    fn is_alive(&self) -> bool {
        !self.closed.load(Ordering::SeqCst)
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}
