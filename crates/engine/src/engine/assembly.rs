//! Assembly: a context from the parts of an engine.
//!
//! Owns which part goes where. Starts nothing.

use std::sync::Arc;

use parking_lot::Mutex;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use placet_policy::snapshot::Snapshot;
use placet_types::{
    contract::{Contract, file::TransportFile},
    mode::EngineMode,
};

use super::{Connectors, EngineParts};
use crate::{
    active::{Active, Disk},
    actors::routes::Routes,
    adapters::{
        known_secrets::KnownSecrets,
        ports::{Port, Ports},
        redaction::RedactingConnector,
    },
    admission::Admission,
    attempts::Attempts,
    catalog::Catalog,
    context::{Context, Surfaces},
    credential_faults::CredentialFaults,
    desk::{Desk, resume::Resuming},
    in_flight::InFlight,
    metrics::EngineMetrics,
    readiness::NodeHealth,
    rearm::Rearming,
    recovery::asking::Asked,
    registry::Registry,
    retention::Swept,
    subjects::Subjects,
    tokens::Tokens,
};

/// What ports are made with.
#[derive(Clone, Copy)]
pub(crate) struct Makers<'a> {
    pub(crate) connectors: &'a Connectors,
    pub(crate) handed: &'a KnownSecrets,
    pub(crate) metrics: &'a EngineMetrics,
}

/// A port for each contract: the one that `known` has for it, else another.
pub(crate) fn ports(
    contracts: &[Arc<Contract>],
    makers: Makers<'_>,
    known: impl Fn(&Contract) -> Option<Arc<Port>>,
) -> Ports {
    let Makers { connectors, handed, metrics } = makers;
    Ports::new(contracts.iter().filter_map(|contract| {
        if let Some(port) = known(contract) {
            return Some(port);
        }
        let connector = match &contract.transport {
            TransportFile::Internal { .. } => &connectors.internal,
            TransportFile::McpStdio { .. } | TransportFile::McpHttp { .. } => &connectors.mcp,
        };
        let given = handed.to(contract)?;
        let connector = RedactingConnector::new(Arc::clone(connector), given);
        Some(Arc::new(Port::new(Arc::clone(contract), Arc::new(connector), metrics.clone())))
    }))
}

/// A context for `parts` and the policies compiled for them.
pub(super) fn context_of(parts: EngineParts, snapshot: Snapshot) -> Context {
    let EngineParts { settings, connectors, contracts, .. } = &parts;
    let handed = KnownSecrets::new(contracts, &parts.secrets);
    let metrics = EngineMetrics::new(parts.metrics.clone());
    let makers = Makers { connectors, handed: &handed, metrics: &metrics };
    let active = Active {
        policy: Arc::new(snapshot),
        catalog: Arc::new(Catalog::new(contracts.iter().cloned())),
        directory: Arc::clone(&parts.directory),
        ports: Arc::new(ports(contracts, makers, |_| None)),
        issuers: parts.issuers,
        since: parts.ledger.store().now(),
    };
    let disk = Disk::default();
    let files = parts.files.as_ref().map(|(files, read)| {
        disk.were_read(read.clone());
        Arc::clone(files)
    });
    Context {
        active: ArcSwap::from_pointee(active),
        connectors: connectors.clone(),
        files,
        disk,
        handed,
        registry: Registry::new(settings.answers_kept_ms, settings.answers_kept_max),
        admission: Admission::new(
            settings.calls_in_flight_max,
            settings.calls_in_flight_per_tenant_max,
        ),
        routes: Routes::new(settings.stage_workers),
        desk: Desk::default(),
        resuming: Resuming::default(),
        revoking: watch::Sender::new(()),
        credential_faults: CredentialFaults::default(),
        subjects: Subjects::default(),
        attempts: Attempts::default(),
        swept: Swept::default(),
        hands: InFlight::default(),
        rearming: Rearming::default(),
        surfaces: Surfaces::default(),
        ending: CancellationToken::new(),
        stopping: CancellationToken::new(),
        standing: NodeHealth::default(),
        promotions: tokio::sync::Mutex::default(),
        late: Arc::new(Semaphore::new(settings.ledger.late_answers_max)),
        asked: Asked::default(),
        fatal: watch::Sender::new(None),
        engine_mode: Mutex::new(EngineMode::default()),
        ledger: parts.ledger,
        verifier: parts.verifier,
        secrets: parts.secrets,
        broker: parts.broker,
        tokens: Tokens::default(),
        clock: parts.clock,
        ids: parts.ids,
        metrics,
        notary: parts.notary,
        settings: parts.settings,
    }
}
