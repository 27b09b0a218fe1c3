//! The keeper actor: what has to be done again and again whether or not anybody calls.
//!
//! Owns when each chore is due, and that none runs twice at a time. The chores hold no state that the ledger does not; they run in
//! tasks of the registry, in bounded rounds, and never in the way of a call.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use crate::{
    actors::tree::{Tree, injected_fault},
    context::Context,
    drift, fleet, rearm,
    recovery::{asking, overdue},
    report::scores,
    retention,
};

/// How often the keeper looks at what is due.
const TICK: Duration = Duration::from_millis(50);
/// In how many looks at the fleet dispatches are looked for once that nobody is at work on.
const HANDS_EVERY: u64 = 5;
/// How often re-armed calls are looked for that wait to be sent.
const REARMED_EVERY_MS: u64 = 5_000;

/// How often at least what is in force in the approval service is read again, because other nodes change it too.
const FORCE_EVERY_MS: u64 = 1_000;

/// How often the configured files are compared with what was read of them.
const FILES_EVERY_MS: u64 = 5_000;

/// How often it is looked whether tools have to be scored under new policies, and how often they are scored again.
const SCORES_LOOK_MS: u64 = 500;
const SCORES_EVERY_MS: u64 = 600_000;

/// What the keeper is told.
#[derive(Debug)]
pub(crate) enum KeeperMessage {
    /// Look at what is due.
    Tick,
    /// Panic.
    Fault,
}

/// The actor.
#[derive(Debug)]
pub(crate) struct KeeperActor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
}

/// One chore.
#[derive(Debug)]
pub(crate) struct Chore {
    every: Duration,
    due: Instant,
    busy: Arc<AtomicBool>,
    run: fn(Arc<Context>) -> BoxFuture<'static, ()>,
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
        self.tree.enter("root/keeper", &myself, || KeeperMessage::Fault);
        myself.send_interval(TICK, || KeeperMessage::Tick);
        Ok(self.chores())
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: KeeperMessage,
        chores: &mut Vec<Chore>,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            KeeperMessage::Tick => {
                for chore in chores.iter_mut() {
                    self.look_at(chore);
                }
            }
            KeeperMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}

impl KeeperActor {
    fn chores(&self) -> Vec<Chore> {
        let settings = &self.context.settings.ledger;
        vec![
            self.chore(settings.fleet_every_ms, |context| {
                Box::pin(async move { fleet::round(&context).await })
            }),
            self.chore(settings.poll_ms, |context| {
                Box::pin(async move { fleet::poll(&context).await })
            }),
            self.chore(settings.poll_ms, |context| {
                Box::pin(async move { context.approvals.tell_call_ends().await })
            }),
            self.chore(REARMED_EVERY_MS, |context| {
                Box::pin(async move { rearm::send_waiting(&context).await })
            }),
            self.chore(settings.fleet_every_ms.saturating_mul(HANDS_EVERY), |context| {
                Box::pin(async move { overdue::look(&context).await })
            }),
            self.chore(settings.fleet_every_ms.min(FORCE_EVERY_MS), |context| {
                Box::pin(async move { context.approvals.follow().await })
            }),
            self.chore(self.context.settings.live_list_ms_max, |context| {
                Box::pin(async move { drift::round(&context).await })
            }),
            self.chore(SCORES_LOOK_MS, |context| {
                Box::pin(async move { scores::round(&context, false).await })
            }),
            self.chore(SCORES_EVERY_MS, |context| {
                Box::pin(async move { scores::round(&context, true).await })
            }),
            self.chore(FILES_EVERY_MS, |context| {
                Box::pin(async move {
                    if let Some(files) = &context.files {
                        context.disk.are(files.fingerprint().await);
                    }
                })
            }),
            self.chore(settings.ask_every_ms, |context| {
                Box::pin(async move { asking::round(&context).await })
            }),
            self.chore(settings.retention.sweep_every_ms, |context| {
                Box::pin(async move { retention::sweep(&context).await })
            }),
        ]
    }

    fn chore(&self, every_ms: u64, run: fn(Arc<Context>) -> BoxFuture<'static, ()>) -> Chore {
        // Nodes that start together do not look together.
        let epoch = self.context.ledger.store().epoch();
        let quarter = every_ms.checked_div(4).unwrap_or(0).max(1);
        let apart = epoch.wrapping_mul(0x9e37_79b9_7f4a_7c15).checked_rem(quarter).unwrap_or(0);
        Chore {
            every: Duration::from_millis(every_ms.max(10).saturating_add(apart)),
            due: Instant::now() + Duration::from_millis(apart),
            busy: Arc::new(AtomicBool::new(false)),
            run,
        }
    }

    fn look_at(&self, chore: &mut Chore) {
        let now = Instant::now();
        if chore.due > now || self.context.node.is_stopping() {
            return;
        }
        chore.due = now + chore.every;
        if chore.busy.swap(true, Ordering::SeqCst) {
            return;
        }
        let busy = Busy(Arc::clone(&chore.busy));
        let work = (chore.run)(Arc::clone(&self.context));
        self.context.registry.spawn(async move {
            work.await;
            drop(busy);
        });
    }
}

/// Says that a chore is over, also when it panics.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}
