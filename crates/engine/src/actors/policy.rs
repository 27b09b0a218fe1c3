//! The policy actor: reads and checks what is to be active, and swaps it in as one immutable value.
//!
//! Owns the order of reloads: one at a time, each with its own epoch, which voids every earlier permit. Invariant: a requester is told that
//! the reload succeeded only once the ledger has it.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use placet_ledger::{ledger::LedgerError, policies::Activation, store::StoreError};
use placet_policy::{catalog::Catalog, policies::Policies};

use crate::{
    active::Active,
    actors::{
        adapter,
        tree::{PolicyMessage, Tree, injected_fault},
    },
    adapters::assembly::{self, Makers},
    context::Context,
    policies::{self, Next},
    reload::{Loaded, Order, ReloadError},
    views::status::ReloadView,
};

/// The actor.
#[derive(Debug)]
pub(crate) struct PolicyActor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
}

impl Actor for PolicyActor {
    type Msg = PolicyMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        self.tree.enter("root/policy", &myself, || PolicyMessage::Fault);
        self.tree.set_policy(myself);
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: PolicyMessage,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            // The requester may be gone; what was read is active all the same.
            PolicyMessage::Reload(order, reply) => drop(reply.send(self.reload(order).await)),
            PolicyMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}

impl PolicyActor {
    async fn reload(&self, order: Order) -> Result<ReloadView, ReloadError> {
        let files = self.context.files.as_ref().ok_or(ReloadError::NoFiles)?;
        let loaded = files.read().await.map_err(ReloadError::Files)?;
        let active = self.with_ports(&loaded);
        let Loaded { issuers, needs_restart, .. } = loaded;
        let before = self.context.current.active();
        let changed = active.changes_since(&before, None);
        let told = active.changes_since(&before, order.reader.as_ref());
        let decides = self.context.node.health().foreign_epoch().is_none();
        if !changed.is_empty() || !decides {
            let (issuers, note) =
                (Some(issuers), Some(format!("reload asked for by {}", order.by)));
            let by = Activation::Start { rolls_back: order.rolls_back };
            self.activate(Next { active, issuers, by, note }).await?;
        }
        *self.context.needs_restart.lock() = needs_restart;
        if changed.is_empty() {
            tracing::info!("reload: nothing has changed");
        } else {
            tracing::info!(changed = %changed.join(", "), "reloaded");
        }
        let status = policies::status(&self.context, order.reader.as_ref());
        if !status.needs_restart.is_empty() {
            let needs_restart = status.needs_restart.join(", ");
            tracing::warn!(
                needs_restart,
                "changed in the configuration, and applied by a restart only"
            );
        }
        Ok(ReloadView { before: before.digest(), changed: told, status })
    }

    /// What was read, with a port to every adapter; ports whose contract is unchanged are kept.
    fn with_ports(&self, loaded: &Loaded) -> Active {
        let Loaded { policies, contracts, directory, issuers_digest, .. } = loaded;
        let context = &self.context;
        context.credentials.known.include(contracts);
        let before = context.current.active();
        let makers = Makers {
            connectors: &context.connectors,
            handed: &context.credentials.known,
            metrics: &context.metrics,
        };
        let ports = assembly::ports(contracts, makers, |one| {
            let known = before.ports.of(&one.adapter)?;
            (known.contract.digest == one.digest).then(|| Arc::clone(known))
        });
        let policies = Policies {
            policy: Arc::clone(policies),
            catalog: Arc::new(Catalog::new(contracts.iter().cloned())),
            directory: Arc::clone(directory),
            issuers: *issuers_digest,
            since: before.since,
        };
        Active { policies: Arc::new(policies), ports: Arc::new(ports) }
    }

    async fn activate(&self, next: Next) -> Result<(), ReloadError> {
        let context = &self.context;
        let before = context.current.active();
        match policies::activate(context, next).await {
            Ok(()) => {}
            Err(LedgerError::Store(StoreError::PoliciesReplaced(replaced))) => {
                return Err(ReloadError::Replaced(replaced));
            }
            Err(error) => {
                // The ledger may have taken it, and then this node would go on deciding by other policies than the active ones.
                context.node.die(format!("a promotion could not be kept: {error}"));
                return Err(ReloadError::NotKept(error.to_string()));
            }
        }
        self.exchange_ports(&before, &context.current.active());
        // A held call may wait for a tool that is no longer offered, or for more or less than policy asks for now.
        context.approvals.decide_again();
        context.routes.look_again();
        let owner = Arc::clone(context);
        context.registry.spawn(async move {
            // Issuers that are new have no keys yet.
            for (issuer, cause) in owner.verifier.refresh().await {
                tracing::error!(%issuer, %cause, "keys of an issuer cannot be loaded");
            }
        });
        Ok(())
    }

    /// Connects adapters with a new contract, and retires those whose contract is gone once their last call has ended.
    fn exchange_ports(&self, before: &Active, now: &Active) {
        let is_in = |active: &Active, port: &Arc<_>| {
            active.ports.all().any(|other| Arc::ptr_eq(other, port))
        };
        for port in now.ports.all().filter(|port| !is_in(before, port)) {
            self.tree.supervise(adapter::child(&self.context, &self.tree, port));
        }
        for port in before.ports.all().filter(|port| !is_in(now, port)) {
            port.retire();
        }
    }
}
