//! The desk actor: the timers of the approval desk.
//!
//! Owns when something is due: an expiry, a resumption, another try. Holds no state that the ledger does not: a desk that comes up
//! reads everything again. Timers are entries of a map, never a task each.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use placet_ledger::store::ApprovalQuery;
use placet_types::{clock::Timestamp, ids::ApprovalId};

use crate::{
    actors::tree::{Tree, injected_fault},
    adapters::ports::backoff,
    call::Identity,
    context::Context,
    desk::resume,
};

/// How often the desk looks at its timers.
const TICK: Duration = Duration::from_millis(250);
/// When a call that was taken up is taken up again if nothing is heard of it.
const UNHEARD_OF: Duration = Duration::from_secs(60);
/// How long another node is given to take up what people agreed to there.
const OTHERS_FIRST: Duration = Duration::from_secs(3);
/// How many approvals are read at a time when the desk comes up.
const PAGE: usize = 1_000;

/// What the desk is told.
#[derive(Debug)]
pub(crate) enum DeskMessage {
    /// People are asked.
    Asked { approval_id: ApprovalId, expires_at: Timestamp },
    /// The call may run: people agreed, or its caller is back with fresh authority.
    Resume { approval_id: ApprovalId, renewed: Option<Box<Identity>> },
    /// The call could not run now.
    RetryLater { approval_id: ApprovalId },
    /// The approval has ended, or its call is on its way.
    Over { approval_id: ApprovalId, expires_at: Timestamp },
    /// Look for approvals that other nodes asked for, or that people agreed to there.
    Read,
    /// Look at the timers.
    Tick,
    /// Panic.
    Fault,
}

/// The actor.
#[derive(Debug)]
pub(crate) struct DeskActor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
}

/// Its timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    expiries: BTreeMap<(Timestamp, ApprovalId), ()>,
    retries: HashMap<ApprovalId, (Instant, u32)>,
}

impl Actor for DeskActor {
    type Msg = DeskMessage;
    type State = Timers;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<Timers, ActorProcessingErr> {
        // First reachable, then reading: what is told meanwhile waits in the mailbox, what was told before is in the ledger.
        self.context.routes.set_desk(myself.clone());
        let mut timers = Timers::default();
        for state in ["pending", "approved"] {
            self.read(state, &mut timers).await?;
        }
        self.tree.enter("root/desk", &myself, || DeskMessage::Fault);
        myself.send_interval(TICK, || DeskMessage::Tick);
        Ok(timers)
    }

    async fn handle(
        &self,
        _myself: ActorRef<Self::Msg>,
        message: DeskMessage,
        timers: &mut Timers,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DeskMessage::Asked { approval_id, expires_at } => {
                timers.expiries.insert((expires_at, approval_id), ());
            }
            DeskMessage::Resume { approval_id, renewed } => {
                // An approved call is never forgotten: tried again unless a later message says otherwise.
                timers.retries.insert(approval_id.clone(), (Instant::now() + UNHEARD_OF, 0));
                self.resume(approval_id, renewed);
            }
            DeskMessage::RetryLater { approval_id } => {
                let tries = timers
                    .retries
                    .get(&approval_id)
                    .map_or(0, |(_, tries)| tries.saturating_add(1));
                // From a quarter of a second to the half minute of the backoff.
                let due = Instant::now() + backoff(tries.saturating_add(1));
                timers.retries.insert(approval_id, (due, tries));
            }
            DeskMessage::Over { approval_id, expires_at } => {
                timers.retries.remove(&approval_id);
                timers.expiries.remove(&(expires_at, approval_id));
            }
            DeskMessage::Read => {
                for state in ["pending", "approved"] {
                    if let Err(error) = self.read(state, timers).await {
                        tracing::warn!(%error, "the approvals of other nodes could not be read");
                    }
                }
            }
            DeskMessage::Tick => self.tick(timers),
            DeskMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}

impl DeskActor {
    async fn read(&self, state: &str, timers: &mut Timers) -> Result<(), ActorProcessingErr> {
        let is_shared = self.context.ledger.store().is_shared();
        let grace = if is_shared { OTHERS_FIRST } else { Duration::ZERO };
        let mut query = ApprovalQuery {
            state: Some(state.to_owned()),
            limit: PAGE,
            ..ApprovalQuery::default()
        };
        loop {
            let page = self.context.ledger.store().approvals(&query).await?;
            let Some(last) = page.last() else { return Ok(()) };
            query.after = Some(last.approval_id.clone());
            for approval in page {
                timers.expiries.insert((approval.expires_at, approval.approval_id.clone()), ());
                if state == "approved" {
                    // Where it is shared, the node that people told takes it up; this one if nothing comes of that.
                    let due = Instant::now() + grace;
                    timers.retries.entry(approval.approval_id).or_insert((due, 0));
                }
            }
        }
    }

    fn tick(&self, timers: &mut Timers) {
        if self.context.stopping() {
            return;
        }
        let now = self.context.ledger.store().now();
        while let Some(((at, approval_id), ())) = timers.expiries.pop_first() {
            if at > now {
                timers.expiries.insert((at, approval_id), ());
                break;
            }
            timers.retries.remove(&approval_id);
            let context = Arc::clone(&self.context);
            self.context
                .registry
                .spawn(async move { resume::expire(&context, &approval_id).await });
        }
        self.context.metrics.pending(timers.expiries.len());
        let now = Instant::now();
        let due: Vec<ApprovalId> = timers
            .retries
            .iter()
            .filter(|(_, (at, _))| *at <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for approval_id in due {
            if let Some((at, tries)) = timers.retries.get_mut(&approval_id) {
                *tries = tries.saturating_add(1);
                *at = now + UNHEARD_OF;
            }
            self.resume(approval_id, None);
        }
    }

    fn resume(&self, approval_id: ApprovalId, renewed: Option<Box<Identity>>) {
        let context = Arc::clone(&self.context);
        self.context
            .registry
            .spawn(async move { resume::resume(&context, &approval_id, renewed).await });
    }
}
