//! The approval service actor: the timers of the approval service.
//!
//! Owns when something is due: an expiry, an escalation, a resumption, a retry. Holds no state that the ledger does not: an actor that
//! restarts reads everything again. Timers are entries of the index, never one task each.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;

use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    store::{ApprovalQuery, StoreError},
};
use placet_types::ids::{ApprovalId, DirectiveId};

use crate::{
    actors::tree::{Tree, injected_fault},
    adapters::ports::backoff,
    call::Identity,
    context::Context,
    outcome::Outcomes,
    resume,
    routes::ApprovalsMessage,
};

/// How often the approval service looks at its timers.
const TICK: Duration = Duration::from_millis(250);
/// When a call that was taken up is taken up again if nothing more is heard about it.
const UNHEARD_OF: Duration = Duration::from_secs(60);
/// How long another node is given to take up a call that was approved there.
const OTHERS_FIRST: Duration = Duration::from_secs(3);
/// How many approvals that have moved elsewhere are looked up in one round.
const UNSEEN: usize = 1_000;
/// How many pages are read before any call is served; the rest is read while calls are admitted.
const PAGES_FIRST: usize = 5;
/// How many pages are then read at a time between messages.
const PAGES_THEN: usize = 2;
/// How long after a failed read it is tried again.
const READ_AGAIN: Duration = Duration::from_secs(1);
/// How many approvals of the index are compared at a time with the store.
const MARKS: usize = 5_000;
/// How many such pages are compared in one round.
const MARKS_IN_ROUND: usize = 5;
/// If more approvals than this have moved on a page, the whole page is read.
const MOVED_MAX: usize = 250;
/// How many pages of approved calls are read in one round; other nodes may have moved them.
const PAGES_IN_ROUND: usize = 5;
/// How many of the due approvals are acted on at one tick.
const DUE_AT_ONCE: usize = 500;

/// The actor.
#[derive(Debug)]
pub(crate) struct ApprovalsActor {
    pub(crate) context: Arc<Context>,
    pub(crate) tree: Arc<Tree>,
}

/// Its timers.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    retries: HashMap<ApprovalId, (Instant, u32)>,
    /// Where the initial read of pending approvals continues; `None` once it is complete.
    reading: Option<ApprovalId>,
    /// How far the comparison of pending approvals with the store has come.
    swept_to: Option<ApprovalId>,
    /// The freezes that were in force at the last tick.
    frozen: BTreeSet<DirectiveId>,
    /// How far the sweep over approved calls has come.
    approved_to: Option<ApprovalId>,
}

impl Actor for ApprovalsActor {
    type Msg = ApprovalsMessage;
    type State = Timers;
    type Arguments = ();

    async fn pre_start(
        &self,
        myself: ActorRef<Self::Msg>,
        (): (),
    ) -> Result<Timers, ActorProcessingErr> {
        // Reachable first, then read: messages sent meanwhile wait in the mailbox, and what was sent before is in the ledger.
        self.context.routes.set_approvals(myself.clone());
        let mut timers = Timers::default();
        self.context.approvals.pending.begin_sweep();
        drop(self.read("approved", None, usize::MAX, &mut timers).await?);
        self.read_on(&myself, None, PAGES_FIRST, &mut timers).await?;
        self.context.approvals.follow().await;
        self.tree.enter("root/approvals", &myself, || ApprovalsMessage::Fault);
        myself.send_interval(TICK, || ApprovalsMessage::Tick);
        Ok(timers)
    }

    async fn handle(
        &self,
        myself: ActorRef<Self::Msg>,
        message: ApprovalsMessage,
        timers: &mut Timers,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ApprovalsMessage::Asked { approval_id } => self.look_up(&approval_id).await,
            ApprovalsMessage::Resume { approval_id, renewed } => {
                // An approved call is never forgotten: tried again unless a later message says otherwise.
                timers.retries.insert(approval_id.clone(), (Instant::now() + UNHEARD_OF, 0));
                self.resume(approval_id, renewed);
            }
            ApprovalsMessage::RetryLater { approval_id } => {
                let tries = timers
                    .retries
                    .get(&approval_id)
                    .map_or(0, |(_, tries)| tries.saturating_add(1));
                // From a quarter of a second up to the maximum backoff of half a minute.
                let due = Instant::now() + backoff(tries.saturating_add(1));
                timers.retries.insert(approval_id, (due, tries));
            }
            ApprovalsMessage::OthersFirst { approval_id, wait } => {
                timers.retries.insert(approval_id, (Instant::now() + wait, 0));
            }
            ApprovalsMessage::Over { approval_id } => drop(timers.retries.remove(&approval_id)),
            ApprovalsMessage::ReadOn => {
                let from = timers.reading.clone();
                if let Err(error) = self.read_on(&myself, from, PAGES_THEN, timers).await {
                    tracing::warn!(%error, "what waits for people could not be read on");
                    myself.send_after(READ_AGAIN, || ApprovalsMessage::ReadOn);
                }
            }
            // What is still being read for the first time is compared afterwards.
            ApprovalsMessage::Read if timers.reading.is_some() => {}
            ApprovalsMessage::Read => {
                if let Err(error) = self.sweep(timers).await {
                    tracing::warn!(%error, "the approvals of other nodes could not be read");
                }
            }
            ApprovalsMessage::Tick => self.tick(timers),
            ApprovalsMessage::Fault => injected_fault(),
        }
        Ok(())
    }
}

impl ApprovalsActor {
    /// Reads up to `pages` pages of approvals in a state, after one of them; returns where to continue if there may be more.
    async fn read(
        &self,
        state: &str,
        after: Option<ApprovalId>,
        pages: usize,
        timers: &mut Timers,
    ) -> Result<Option<ApprovalId>, StoreError> {
        let page_size = self.context.settings.ledger.approvals_page;
        let is_shared = self.context.ledger.store().is_shared();
        let grace = if is_shared { OTHERS_FIRST } else { Duration::ZERO };
        let mut query = ApprovalQuery {
            state: Some(state.to_owned()),
            limit: page_size,
            after,
            ..ApprovalQuery::default()
        };
        for _ in 0..pages {
            let page = self.context.ledger.store().approvals(&query).await?;
            let Some(last) = page.last() else { return Ok(None) };
            query.after = Some(last.approval_id.clone());
            let is_last = page.len() < page_size;
            for approval in page {
                self.seen(&approval);
                if approval.state == ApprovalState::Approved {
                    // In a shared ledger the node on which it was approved takes it up; this node does if that fails, or at once if this
                    // node has its caller's tokens.
                    let is_ours = self.context.tokens.has(approval.record_id);
                    let due = Instant::now() + if is_ours { Duration::ZERO } else { grace };
                    timers.retries.entry(approval.approval_id).or_insert((due, 0));
                }
            }
            if is_last {
                return Ok(None);
            }
        }
        Ok(query.after)
    }

    /// Continues the initial read by up to `pages` pages; sends itself a message to continue, or does what had to wait for its end.
    async fn read_on(
        &self,
        myself: &ActorRef<ApprovalsMessage>,
        from: Option<ApprovalId>,
        pages: usize,
        timers: &mut Timers,
    ) -> Result<(), StoreError> {
        timers.reading = self.read("pending", from, pages, timers).await?;
        if timers.reading.is_some() {
            return myself.send_message(ApprovalsMessage::ReadOn).or(Ok(()));
        }
        // What was approved on other nodes while the rest was read.
        drop(self.read("approved", None, usize::MAX, timers).await?);
        self.settle_unseen().await?;
        self.context.approvals.was_read();
        self.decide_again();
        Ok(())
    }

    /// Compares pending approvals with the index and reads those that have moved; returns where to continue if there may be more.
    async fn compare(
        &self,
        mut after: Option<ApprovalId>,
        timers: &mut Timers,
    ) -> Result<Option<ApprovalId>, StoreError> {
        for _ in 0..MARKS_IN_ROUND {
            let query = ApprovalQuery {
                state: Some(ApprovalState::Pending.name().to_owned()),
                limit: MARKS,
                after: after.clone(),
                ..ApprovalQuery::default()
            };
            let marks = self.context.ledger.store().approval_marks(&query).await?;
            let Some(last) = marks.last() else { return Ok(None) };
            let moved = self.context.approvals.pending.moved_of(&marks);
            if moved.len() > MOVED_MAX {
                let pages = MARKS.div_ceil(self.context.settings.ledger.approvals_page);
                drop(self.read("pending", after, pages, timers).await?);
            } else {
                for approval_id in moved {
                    self.look_up(&approval_id).await;
                }
            }
            after = Some(last.approval_id.clone());
            if marks.len() < MARKS {
                return Ok(None);
            }
        }
        Ok(after)
    }

    /// One round over everything that other nodes may have moved. However many approved calls cannot run, each round continues where the
    /// previous one stopped, so that none is left out.
    async fn sweep(&self, timers: &mut Timers) -> Result<(), StoreError> {
        let from = timers.approved_to.clone();
        timers.approved_to = self.read("approved", from, PAGES_IN_ROUND, timers).await?;
        let from = timers.swept_to.take();
        timers.swept_to = self.compare(from, timers).await?;
        if timers.swept_to.is_none() {
            self.settle_unseen().await?;
            self.context.approvals.pending.begin_sweep();
        }
        Ok(())
    }

    /// Takes in an approval that was read; changes are announced only once the initial read is complete.
    fn seen(&self, approval: &ApprovalRecord) {
        let Outcomes { approvals, ledger, .. } = &*self.context.outcomes;
        if approvals.is_read() {
            approvals.moved(approval);
        } else {
            let directory = &approvals.policies().directory;
            approvals.pending.moved(approval, directory, ledger.store().now());
        }
    }

    /// What is in the index and was not seen by the sweep has moved elsewhere.
    async fn settle_unseen(&self) -> Result<(), StoreError> {
        for approval_id in self.context.approvals.pending.unseen(UNSEEN) {
            match self.context.ledger.store().approval(&approval_id).await? {
                Some(approval) => self.context.approvals.moved(&approval),
                None => self.context.approvals.pending.forget(&approval_id),
            }
        }
        Ok(())
    }

    async fn look_up(&self, approval_id: &ApprovalId) {
        match self.context.ledger.store().approval(approval_id).await {
            Ok(Some(approval)) => self.context.approvals.moved(&approval),
            Ok(None) => {}
            Err(error) => self.context.node.noticed(&error.into()),
        }
    }

    fn tick(&self, timers: &mut Timers) {
        if self.context.node.is_ending() {
            return;
        }
        let pending = &self.context.approvals.pending;
        for approval_id in pending.due(self.context.ledger.store().now(), DUE_AT_ONCE) {
            let approvals = Arc::clone(&self.context.approvals);
            self.context.registry.spawn(async move { approvals.act_on(&approval_id).await });
        }
        self.context.approvals.count_pending();
        self.renew(timers);
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

    /// Decides pending calls again where that is wanted, or when a freeze has expired: what it held need not wait for those who could have
    /// lifted it.
    fn renew(&self, timers: &mut Timers) {
        let now = self.context.ledger.store().now();
        let frozen = self.context.approvals.rules.open().freezes_in_force(now);
        let before = std::mem::replace(&mut timers.frozen, frozen);
        let is_outdated =
            self.context.approvals.take_outdated() || !before.is_subset(&timers.frozen);
        if is_outdated && self.context.approvals.is_read() {
            self.decide_again();
        }
    }

    fn decide_again(&self) {
        let approvals = Arc::clone(&self.context.approvals);
        self.context.registry.spawn(async move { approvals.decide_all_again().await });
    }

    fn resume(&self, approval_id: ApprovalId, renewed: Option<Box<Identity>>) {
        if self.context.node.is_ending() {
            // It waits for the next start, or for another node.
            return;
        }
        let context = Arc::clone(&self.context);
        self.context
            .registry
            .spawn(async move { resume::resume(&context, &approval_id, renewed).await });
    }
}
