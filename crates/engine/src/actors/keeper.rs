//! The keeper and the identity actor: periodic chores that run whether or not there are calls.
//!
//! Owns when each chore is due, and that no chore runs twice at the same time. Chores hold no state that the ledger does not; they run in
//! tasks of the registry, in bounded rounds, and never block a call.

use std::{sync::Arc, time::Duration};

use futures::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::sync::Mutex;

use crate::{
    actors::tree::{Tree, injected_fault},
    context::Context,
    drift, fleet, rearm,
    recovery::{self, asking},
    report::scores,
    retention,
    settings::Settings,
};

/// After how many fleet intervals orphaned dispatches are searched for, and unknown outcomes are counted.
const HANDS_EVERY: u64 = 5;
/// How often re-armed calls that wait to be sent are searched for.
const REARMED_EVERY_MS: u64 = 5_000;

/// The longest interval at which the directives in force are read again, because other nodes change them too.
const FORCE_EVERY_MS: u64 = 1_000;

/// How often it is checked whether tools must be scored under new policies, and how often they are scored again.
const SCORES_LOOK_MS: u64 = 500;
const SCORES_EVERY_MS: u64 = 600_000;

/// What such an actor is told.
#[derive(Debug)]
pub(crate) enum KeeperMessage {
    /// The chore of this number is due.
    Due(usize),
    /// Panic.
    Fault,
}

/// The actor.
#[derive(Debug)]
pub(crate) struct KeeperActor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
    pub(crate) path: &'static str,
    pub(crate) chores: fn(&Settings) -> Vec<Chore>,
}

/// One chore.
#[derive(Debug)]
pub(crate) struct Chore {
    every_ms: u64,
    run: fn(Arc<Context>) -> BoxFuture<'static, ()>,
    busy: Arc<Mutex<()>>,
}

impl Actor for KeeperActor {
    type Msg = KeeperMessage;
    type State = Vec<Chore>;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<Vec<Chore>, ActorProcessingErr> {
        self.tree.enter(self.path, &myself, || KeeperMessage::Fault);
        let chores = (self.chores)(&self.context.settings);
        for (number, chore) in (0_usize..).zip(&chores) {
            // Spreads out the rounds of nodes that start together.
            let epoch = self.context.ledger.store().epoch();
            let quarter = chore.every_ms.checked_div(4).unwrap_or(0).max(1);
            let apart = epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15).checked_rem(quarter).unwrap_or(0);
            let every = Duration::from_millis(chore.every_ms.max(10).saturating_add(apart));
            myself.send_after(Duration::from_millis(apart), move || KeeperMessage::Due(number));
            myself.send_interval(every, move || KeeperMessage::Due(number));
        }
        Ok(chores)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: KeeperMessage,
        chores: &mut Vec<Chore>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            KeeperMessage::Due(number) => {
                if let Some(chore) = chores.get(number) {
                    self.begin(chore);
                }
            }
            KeeperMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}

impl KeeperActor {
    fn begin(&self, chore: &Chore) {
        let Ok(busy) = Arc::clone(&chore.busy).try_lock_owned() else { return };
        if self.context.node.is_stopping() {
            return;
        }
        let work = (chore.run)(Arc::clone(&self.context));
        self.context.registry.spawn(async move {
            work.await;
            drop(busy);
        });
    }
}

fn chore(every_ms: u64, run: fn(Arc<Context>) -> BoxFuture<'static, ()>) -> Chore {
    Chore { every_ms, run, busy: Arc::default() }
}

/// The chores of the keeper.
pub(crate) fn chores(settings: &Settings) -> Vec<Chore> {
    let ledger = &settings.ledger;
    vec![
        chore(ledger.fleet_every_ms, |context| {
            Box::pin(async move { fleet::round(&context).await })
        }),
        chore(ledger.poll_ms, |context| Box::pin(async move { fleet::poll(&context).await })),
        chore(ledger.poll_ms, |context| {
            Box::pin(async move { context.approvals.tell_call_ends().await })
        }),
        chore(REARMED_EVERY_MS, |context| {
            Box::pin(async move { rearm::send_waiting(&context).await })
        }),
        chore(ledger.fleet_every_ms.saturating_mul(HANDS_EVERY), |context| {
            Box::pin(async move { recovery::find_overdue(&context).await })
        }),
        chore(ledger.fleet_every_ms.saturating_mul(HANDS_EVERY), |context| {
            Box::pin(async move { asking::count(&context).await })
        }),
        chore(ledger.fleet_every_ms.min(FORCE_EVERY_MS), |context| {
            Box::pin(async move { context.approvals.follow().await })
        }),
        chore(settings.live_list_ms_max, |context| {
            Box::pin(async move { drift::round(&context).await })
        }),
        chore(SCORES_LOOK_MS, |context| {
            Box::pin(async move { scores::round(&context, false).await })
        }),
        chore(SCORES_EVERY_MS, |context| {
            Box::pin(async move { scores::round(&context, true).await })
        }),
        chore(ledger.ask_every_ms, |context| {
            Box::pin(async move { asking::round(&context).await })
        }),
        chore(ledger.retention.sweep_every_ms, |context| {
            Box::pin(async move { retention::sweep(&context).await })
        }),
    ]
}

/// The chores of the identity actor: it refreshes the issuers' key sets and drops expired credentials and tokens.
pub(crate) fn identity_chores(settings: &Settings) -> Vec<Chore> {
    vec![chore(settings.identity_refresh_ms.max(1_000), |context| {
        Box::pin(async move {
            context.credentials.broker.sweep();
            context.credentials.known.sweep();
            context.tokens.sweep(context.credentials.clock.now());
            for (issuer, cause) in context.verifier.refresh().await {
                tracing::warn!(%issuer, %cause, "a key set could not be refreshed");
            }
        })
    })]
}
