//! The identity actor: keeps the issuers' key sets fresh.
//!
//! Owns the timing. The keys and the rules are `placet-identity`'s.

use std::{sync::Arc, time::Duration};

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    actors::tree::{Tree, injected_fault},
    context::Context,
};

/// What the identity actor is told.
#[derive(Debug)]
pub(crate) enum IdentityMessage {
    /// Refresh the key sets.
    Refresh,
    /// Panic.
    Fault,
}

/// The actor.
#[derive(Debug)]
pub(crate) struct IdentityActor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
}

impl Actor for IdentityActor {
    type Msg = IdentityMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        self.tree.enter("root/identity", &myself, || IdentityMessage::Fault);
        let every = Duration::from_millis(self.context.settings.identity_refresh_ms.max(1_000));
        myself.send_interval(every, || IdentityMessage::Refresh);
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: IdentityMessage,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            IdentityMessage::Refresh => {
                let context = Arc::clone(&self.context);
                context.credentials.broker.sweep();
                context.credentials.known.sweep();
                context.tokens.sweep(context.credentials.clock.now());
                // A slow issuer must not keep this actor from answering its supervisor.
                self.context.registry.spawn(async move {
                    for failure in context.verifier.refresh().await {
                        tracing::warn!(issuer = %failure.issuer, cause = %failure.cause, "a key set could not be refreshed");
                    }
                });
            }
            IdentityMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}
