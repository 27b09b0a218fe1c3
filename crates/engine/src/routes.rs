//! Routes: how one stage reaches the next, through any worker that is up.
//!
//! Owns the references to workers and to the approvals actor. A call that finds no worker for a while is dropped, and its responder
//! answers.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use ractor::{ActorRef, MessagingErr};

use placet_types::ids::ApprovalId;

use crate::{
    call::{Brokered, Built, Call, Gated, Identity, Invoked, Planned},
    registry::Registry,
};

/// How often, and at what interval, a call looks for a worker while a pool is being restarted.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// What the approval service is told.
#[derive(Debug)]
pub(crate) enum ApprovalsMessage {
    /// An approval was requested, and may not have been noted.
    Asked { approval_id: ApprovalId },
    /// The call may run: it was approved, or its caller is back with fresh authority.
    Resume { approval_id: ApprovalId, renewed: Option<Box<Identity>> },
    /// The call could not run now.
    RetryLater { approval_id: ApprovalId },
    /// Other nodes are to try first, for this long.
    OthersFirst { approval_id: ApprovalId, wait: Duration },
    /// The approval has ended, or its call is in flight, or it waits for its caller.
    Over { approval_id: ApprovalId },
    /// Continue the initial read of pending approvals.
    ReadOn,
    /// Read approvals that were requested or granted on other nodes.
    Read,
    /// Look at the timers.
    Tick,
    /// Panic.
    Fault,
}

/// What a worker is told.
#[derive(Debug)]
pub(crate) enum WorkerMessage<S> {
    /// Take this call through the stage.
    Take(Call<S>),
    /// Panic.
    Fault,
}

/// The workers of one stage.
#[derive(Debug)]
pub(crate) struct Pool<S> {
    workers: Vec<ArcSwapOption<ActorRef<WorkerMessage<S>>>>,
    next: AtomicUsize,
}

impl<S: Send + Sync + 'static> Pool<S> {
    fn new(size: usize) -> Self {
        Self {
            workers: (0..size.max(1)).map(|_| ArcSwapOption::empty()).collect(),
            next: AtomicUsize::new(0),
        }
    }

    fn set(&self, number: usize, worker: ActorRef<WorkerMessage<S>>) {
        if let Some(place) = self.workers.get(number) {
            place.store(Some(Arc::new(worker)));
        }
    }

    /// Gives the call to a worker that is up; returns it if there is none.
    fn offer(&self, call: Call<S>) -> Result<(), Call<S>> {
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        let mut call = call;
        for turn in 0..self.workers.len() {
            let number = start.wrapping_add(turn).checked_rem(self.workers.len()).unwrap_or(0);
            let Some(worker) = self.workers.get(number).and_then(|place| place.load_full()) else {
                continue;
            };
            match worker.cast(WorkerMessage::Take(call)) {
                Ok(()) => return Ok(()),
                Err(MessagingErr::SendErr(WorkerMessage::Take(back))) => call = back,
                // The message was lost with the channel: its responder has answered.
                Err(_) => return Ok(()),
            }
        }
        Err(call)
    }
}

/// The routes between actors.
#[derive(Debug)]
pub(crate) struct Routes {
    registry: Arc<Registry>,
    build: Arc<Pool<Planned>>,
    broker: Arc<Pool<Built>>,
    gate: Arc<Pool<Brokered>>,
    invoke: Arc<Pool<Gated>>,
    reply: Arc<Pool<Invoked>>,
    approvals: ArcSwapOption<ActorRef<ApprovalsMessage>>,
}

macro_rules! route {
    ($(#[$doc:meta])* $send:ident, $set:ident, $stage:ty) => {
        $(#[$doc])*
        pub(crate) fn $send(&self, call: Call<$stage>) {
            self.send(&self.$send, call);
        }

        pub(crate) fn $set(&self, number: usize, worker: ActorRef<WorkerMessage<$stage>>) {
            self.$send.set(number, worker);
        }
    };
}

impl Routes {
    pub(crate) fn new(workers: usize, registry: Arc<Registry>) -> Self {
        Self {
            registry,
            build: Arc::new(Pool::new(workers)),
            broker: Arc::new(Pool::new(workers)),
            gate: Arc::new(Pool::new(workers)),
            invoke: Arc::new(Pool::new(workers)),
            reply: Arc::new(Pool::new(workers)),
            approvals: ArcSwapOption::empty(),
        }
    }

    route!(
        /// To the build stage.
        build, set_build, Planned
    );
    route!(
        /// To the broker stage.
        broker, set_broker, Built
    );
    route!(
        /// To the gate.
        gate, set_gate, Brokered
    );
    route!(
        /// To the invoke stage.
        invoke, set_invoke, Gated
    );
    route!(
        /// To the return stage.
        reply, set_reply, Invoked
    );

    /// Sends through any worker that is up; while a pool is being restarted it retries.
    fn send<S: fmt::Debug + Send + Sync + 'static>(&self, pool: &Arc<Pool<S>>, call: Call<S>) {
        let Err(mut call) = pool.offer(call) else { return };
        let pool = Arc::clone(pool);
        self.registry.spawn(async move {
            for _ in 0..TRIES {
                tokio::time::sleep(PAUSE).await;
                match pool.offer(call) {
                    Ok(()) => return,
                    Err(back) => call = back,
                }
            }
        });
    }

    pub(crate) fn set_approvals(&self, approvals: ActorRef<ApprovalsMessage>) {
        self.approvals.store(Some(Arc::new(approvals)));
    }

    /// Other nodes may have requested approvals, or granted them.
    pub(crate) fn look_again(&self) {
        self.tell_approvals(ApprovalsMessage::Read);
    }

    /// An approval was requested, and may not have been noted.
    pub(crate) fn approval_asked(&self, approval_id: &ApprovalId) {
        self.tell_approvals(ApprovalsMessage::Asked { approval_id: approval_id.clone() });
    }

    /// The call was approved and may run.
    pub(crate) fn approved(&self, approval_id: &ApprovalId) {
        self.tell_approvals(ApprovalsMessage::Resume {
            approval_id: approval_id.clone(),
            renewed: None,
        });
    }

    /// The caller of an approved call is back, with fresh authority.
    pub(crate) fn renewed(&self, approval_id: &ApprovalId, identity: Identity) {
        self.tell_approvals(ApprovalsMessage::Resume {
            approval_id: approval_id.clone(),
            renewed: Some(Box::new(identity)),
        });
    }

    /// An approved call could not run now.
    pub(crate) fn retry_later(&self, approval_id: &ApprovalId) {
        self.tell_approvals(ApprovalsMessage::RetryLater { approval_id: approval_id.clone() });
    }

    /// An approved call is left to other nodes for `wait`.
    pub(crate) fn others_first(&self, approval_id: &ApprovalId, wait: Duration) {
        let approval_id = approval_id.clone();
        self.tell_approvals(ApprovalsMessage::OthersFirst { approval_id, wait });
    }

    /// An approval has ended (consumed, denied, void or expired), or its call waits for its caller: there is nothing to try.
    pub(crate) fn approval_over(&self, approval_id: &ApprovalId) {
        self.tell_approvals(ApprovalsMessage::Over { approval_id: approval_id.clone() });
    }

    /// An actor that is down reads everything from the ledger when it comes up, so a message may be lost here.
    fn tell_approvals(&self, message: ApprovalsMessage) {
        if let Some(approvals) = &*self.approvals.load()
            && let Err(error) = approvals.cast(message)
        {
            tracing::debug!(%error, "the approval service is down; it will read the ledger when it comes up");
        }
    }
}
