//! Workers: the thin shells around the stages.
//!
//! Owns nothing but the mailbox. A worker that panics drops its call, whose responder answers from the ledger.

use std::sync::Arc;

use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::{
    actors::tree::{Tree, injected_fault},
    call::Call,
    context::Context,
    routes::{Routes, WorkerMessage},
};

/// Publishes a worker's reference for those who send to it.
pub(crate) type Publish<S> = fn(&Routes, usize, ActorRef<WorkerMessage<S>>);

/// A worker of the stage that takes `Call<S>`.
#[derive(Debug)]
pub(crate) struct Worker<S> {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) path: String,
    pub(crate) number: usize,
    pub(crate) publish: Publish<S>,
    pub(crate) stage: fn(&Arc<Context>, Call<S>),
}

impl<S: Send + Sync + std::fmt::Debug + 'static> Actor for Worker<S> {
    type Msg = WorkerMessage<S>;
    type State = ();
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<(), ActorProcessingErr> {
        self.tree.enter(&self.path, &myself, || WorkerMessage::Fault);
        (self.publish)(&self.context.routes, self.number, myself);
        Ok(())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: WorkerMessage<S>,
        _state: &mut (),
    ) -> Result<(), ActorProcessingErr> {
        match message {
            WorkerMessage::Take(call) => (self.stage)(&self.context, call),
            WorkerMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}
