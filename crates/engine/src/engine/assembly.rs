//! Assembly: a context from the parts of an engine.
//!
//! Owns which part goes where. Starts nothing.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use arc_swap::ArcSwap;
use tokio::sync::{Semaphore, watch};

use placet_approvals::{
    node::Node,
    service::{ApprovalParts, ApprovalSettings, Approvals},
};
use placet_policy::{catalog::Catalog, policies::Policies};
use placet_types::mode::EngineMode;

use super::EngineParts;
use crate::{
    active::{Active, Disk, Surfaces},
    adapters::{
        assembly::{self, Makers},
        known_secrets::KnownSecrets,
    },
    admission::Admission,
    attempts::Attempts,
    context::Context,
    credential_faults::CredentialFaults,
    in_flight::{InFlight, Resuming},
    metrics::EngineMetrics,
    registry::Registry,
    responder::Callers,
    rounds::Rounds,
    routes::Routes,
    settings::Settings,
    tokens::Tokens,
};

fn approval_settings(settings: &Settings) -> ApprovalSettings {
    ApprovalSettings {
        operators: settings.operators.clone(),
        fleet_every_ms: settings.ledger.fleet_every_ms,
    }
}

fn policies_of(parts: &EngineParts) -> Arc<Policies> {
    Arc::new(Policies {
        policy: Arc::clone(&parts.policies),
        catalog: Arc::new(Catalog::new(parts.contracts.iter().cloned())),
        directory: Arc::clone(&parts.directory),
        issuers: parts.issuers,
        since: parts.ledger.store().now(),
    })
}

/// A context for `parts`.
pub(super) fn context_of(parts: EngineParts) -> Arc<Context> {
    let policies = policies_of(&parts);
    let EngineParts { settings, ledger, connectors, contracts, broker, notary, ids, .. } = parts;
    let handed = KnownSecrets::new(&contracts, &parts.secrets);
    let metrics = EngineMetrics::new(parts.metrics.clone());
    let makers = Makers { connectors: &connectors, handed: &handed, metrics: &metrics };
    let active = Active {
        policies: Arc::clone(&policies),
        ports: Arc::new(assembly::ports(&contracts, makers, |_| None)),
    };
    let disk = Disk::default();
    let files = parts.files.as_ref().map(|(files, read)| {
        disk.were_read(read.clone());
        Arc::clone(files)
    });
    let node = Arc::new(Node::default());
    let approvals = ApprovalParts {
        settings: approval_settings(&settings),
        ledger: ledger.clone(),
        policies,
        node: Arc::clone(&node),
        broker: broker.clone(),
        audit: notary.as_ref().map(|notary| Arc::clone(notary.log())),
        ids: Arc::clone(&ids),
        metrics: parts.metrics,
    };
    let registry = Arc::new(Registry::new(settings.answers_kept_ms, settings.answers_kept_max));
    // The engine keeps the approval service, which asks it back.
    Arc::new_cyclic(|context: &Weak<Context>| Context {
        approvals: Arc::new(Approvals::new(approvals, Weak::<Context>::clone(context))),
        node,
        active: ArcSwap::from_pointee(active),
        connectors,
        files,
        disk,
        handed,
        callers: Arc::new(Callers {
            registry: Arc::clone(&registry),
            admission: Admission::new(
                settings.calls_in_flight_max,
                settings.calls_in_flight_per_tenant_max,
            ),
            in_flight: InFlight::default(),
            metrics: metrics.clone(),
            ledger: ledger.clone(),
            fallback: Weak::<Context>::clone(context),
        }),
        routes: Routes::new(settings.stage_workers, Arc::clone(&registry)),
        registry,
        resuming: Resuming::default(),
        revoking: watch::Sender::new(()),
        credential_faults: CredentialFaults::default(),
        attempts: Attempts::default(),
        surfaces: Surfaces::default(),
        promotions: tokio::sync::Mutex::default(),
        late: Arc::new(Semaphore::new(settings.ledger.late_answers_max)),
        rounds: Rounds::default(),
        engine_mode: Mutex::new(EngineMode::default()),
        ledger,
        verifier: parts.verifier,
        secrets: parts.secrets,
        broker,
        tokens: Tokens::default(),
        clock: parts.clock,
        ids,
        metrics,
        notary,
        settings,
    })
}
