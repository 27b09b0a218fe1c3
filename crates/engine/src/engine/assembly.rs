//! Assembly: a context from the parts of an engine.
//!
//! Owns which part goes where. Starts nothing.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, watch};

use placet_approvals::{
    node::Node,
    service::{ApprovalParts, ApprovalSettings, Approvals},
};
use placet_policy::{catalog::Catalog, policies::Policies};

use super::EngineParts;
use crate::{
    active::{Active, Current},
    adapters::{
        assembly::{self, Makers},
        known_secrets::KnownSecrets,
    },
    aliases::Aliases,
    attempts::Attempts,
    context::Context,
    credentials::{CredentialFaults, Credentials},
    outcome::Outcomes,
    registry::Registry,
    responder::Callers,
    rounds::Rounds,
    routes::Routes,
    runs::kept::Runs,
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
    let known = KnownSecrets::new(&contracts, &parts.secrets);
    let metrics = parts.metrics.clone();
    let makers = Makers { connectors: &connectors, handed: &known, metrics: &metrics };
    let active = Active {
        policies: Arc::clone(&policies),
        ports: Arc::new(assembly::ports(&contracts, makers, |_| None)),
    };
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
    // The engine owns the approval service, which holds a weak reference back to it.
    Arc::new_cyclic(|context: &Weak<Context>| {
        let fallback = Weak::<Context>::clone(context);
        let callers = Callers::new(&settings, &registry, &metrics, &ledger, fallback);
        let outcomes = Outcomes {
            ledger,
            node,
            metrics: metrics.clone(),
            current: Current::new(active),
            aliases: Aliases::default(),
            registry: Arc::clone(&registry),
            callers: Arc::new(callers),
            tokens: Tokens::default(),
            approvals: Arc::new(Approvals::new(approvals, Weak::<Context>::clone(context))),
            late: Arc::new(Semaphore::new(settings.ledger.late_answers_max)),
        };
        let credentials = Credentials {
            secrets: parts.secrets,
            broker,
            clock: parts.clock,
            known,
            faults: CredentialFaults::default(),
            metrics,
        };
        Context {
            outcomes: Arc::new(outcomes),
            credentials,
            connectors,
            files: parts.files,
            needs_restart: Mutex::default(),
            routes: Routes::new(settings.stage_workers, registry),
            revoking: watch::Sender::new(()),
            attempts: Attempts::default(),
            runs: Runs::default(),
            rounds: Rounds::default(),
            verifier: parts.verifier,
            ids,
            notary,
            settings,
        }
    })
}
