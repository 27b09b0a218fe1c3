//! The policy actor: holds the active bundle; a promotion swaps an immutable snapshot.
//!
//! Owns the order of promotions: one at a time, each with its own epoch, and every permit given before is void. Invariant: whoever asks
//! for a promotion hears that it is made only once the ledger has it.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::oneshot;

use placet_ledger::policies::Activation;
use placet_policy::{bundle::BundleSource, snapshot::Snapshot};
use placet_types::digest::Digest;

use crate::{
    actors::tree::{Tree, injected_fault},
    context::Context,
    engine::ActivateError,
};

/// What the policy actor is told.
#[derive(Debug)]
pub(crate) enum PolicyMessage {
    /// Make this bundle the active one, if it passes every check.
    Activate(Box<BundleSource>, oneshot::Sender<Result<Digest, ActivateError>>),
    /// Panic.
    Fault,
}

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
        self.context.routes.set_policy(myself);
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: PolicyMessage,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            PolicyMessage::Activate(source, reply) => {
                let outcome = self.activate(&source).await;
                // Whoever asked may have gone; the bundle is active all the same.
                drop(reply.send(outcome));
            }
            PolicyMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}

impl PolicyActor {
    async fn activate(&self, source: &BundleSource) -> Result<Digest, ActivateError> {
        let context = &self.context;
        let contracts: Vec<_> = context.catalog.contracts().cloned().collect();
        let snapshot = Snapshot::compile(
            source,
            &contracts,
            &context.directory,
            &context.settings.environment,
            0,
        )
        .map_err(ActivateError::Bundle)?;
        let digest = snapshot.digest();
        if let Err(error) = context.activate(snapshot, Activation::Promotion).await {
            // Nothing says that the ledger did not take it, and this node would go on deciding by other policies than those.
            context.die(format!("a promotion could not be kept: {error}"));
            return Err(ActivateError::NotKept(error.to_string()));
        }
        Ok(digest)
    }
}
