//! Assembly: a context from the parts of an engine.
//!
//! Owns which part goes where. Starts nothing.

use std::sync::{Arc, Mutex};

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use placet_policy::snapshot::Snapshot;
use placet_types::{contract::file::TransportFile, mode::EngineMode};

use super::EngineParts;
use crate::{
    actors::routes::Routes,
    adapters::{
        discreet::DiscreetConnector,
        handed::Handed,
        ports::{Port, Ports},
    },
    admission::Admission,
    attempts::Attempts,
    catalog::Catalog,
    context::{Context, Surfaces},
    credential_faults::CredentialFaults,
    desk::{Desk, resume::Resuming},
    figures::Figures,
    hands::Hands,
    rearm::Rearming,
    recovery::asking::Asked,
    registry::Registry,
    retention::Swept,
    standing::Standing,
    subjects::Subjects,
    tokens::Tokens,
};

/// A context for `parts` and the policies compiled for them.
pub(super) fn context_of(parts: EngineParts, snapshot: Snapshot) -> Context {
    let EngineParts { settings, connectors, contracts, .. } = &parts;
    let handed = Handed::new(contracts, &parts.secrets);
    let ports = contracts.iter().filter_map(|contract| {
        let connector = match &contract.transport {
            TransportFile::Internal { .. } => &connectors.internal,
            TransportFile::McpStdio { .. } | TransportFile::McpHttp { .. } => &connectors.mcp,
        };
        let given = Arc::clone(handed.to(contract)?);
        let connector = DiscreetConnector::new(Arc::clone(connector), given);
        let metrics = Figures::new(parts.metrics.clone());
        Some(Port::new(Arc::clone(contract), Arc::new(connector), metrics))
    });
    Context {
        ports: Ports::new(ports),
        handed,
        catalog: Catalog::new(contracts.iter().cloned()),
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
        hands: Hands::default(),
        rearming: Rearming::default(),
        surfaces: Surfaces::default(),
        ending: CancellationToken::new(),
        stopping: CancellationToken::new(),
        standing: Standing::default(),
        promotions: tokio::sync::Mutex::default(),
        late: Arc::new(Semaphore::new(settings.ledger.late_answers_max)),
        asked: Asked::default(),
        fatal: watch::Sender::new(None),
        engine_mode: Mutex::new(EngineMode::default()),
        policy: ArcSwap::from_pointee(snapshot),
        ledger: parts.ledger,
        verifier: parts.verifier,
        secrets: parts.secrets,
        broker: parts.broker,
        tokens: Tokens::default(),
        directory: parts.directory,
        clock: parts.clock,
        ids: parts.ids,
        metrics: Figures::new(parts.metrics),
        notary: parts.notary,
        settings: parts.settings,
    }
}
