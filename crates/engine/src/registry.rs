//! The execution registry: who waits for which call, and the tasks that execute.
//!
//! Owns reply ports and tasks, so that no kill or restart of an actor loses an outcome or leaves a caller unanswered. Keeps finished
//! answers for a while, bounded in number and age; what must not be lost is in the ledger.

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    task::{self, Waker},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::task::TaskTracker;

use placet_adapter::adapter::{Observer, Progress};
use placet_types::{
    ids::{PrincipalId, RecordId, TenantId, ToolCallId},
    principal::{PrincipalChain, PrincipalKind},
};

use crate::{answer::Answer, result::weight};

/// How many bytes of outputs are kept with finished answers; beyond that the oldest are forgotten, however young they are.
const KEPT_BYTES_MAX: usize = 64 * 1024 * 1024;
/// How many progress steps of a call are kept for its followers.
const STEPS_KEPT: usize = 16;

/// The latest progress steps of a call, in order: several, because a follower may be slower than the server that sends them.
pub type Steps = VecDeque<Progress>;

/// Whose call it is: no one else is told anything about it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Owner {
    pub(crate) tenant: TenantId,
    kind: PrincipalKind,
    pub(crate) actor: PrincipalId,
    pub(crate) on_behalf_of: Option<PrincipalId>,
}

impl Owner {
    pub(crate) fn of_scope(scope: &placet_types::principal::KeyScope) -> Self {
        Self {
            tenant: scope.tenant.clone(),
            kind: scope.kind,
            actor: scope.agent.clone(),
            on_behalf_of: scope.on_behalf_of.clone(),
        }
    }

    pub(crate) fn of(chain: &PrincipalChain) -> Self {
        Self {
            tenant: chain.tenant().clone(),
            kind: chain.actor.kind,
            actor: chain.actor.id.clone(),
            on_behalf_of: chain.on_behalf_of.as_ref().map(|user| user.id.clone()),
        }
    }
}

#[derive(Debug)]
struct Entry {
    owner: Owner,
    progress: watch::Sender<Answer>,
    /// Those who waited for the same call under another entry.
    others: Vec<watch::Sender<Answer>>,
    /// What its adapter reported so far; set once it reported a step or someone subscribed.
    steps: Option<watch::Sender<Steps>>,
    /// The record to poll where no task here reports progress, and its revision when it was last read.
    watched: Option<(RecordId, u64)>,
    /// The round in which it was last polled.
    looked: u64,
    /// Which entry of this call id it is; what is queued for an earlier entry does not concern it.
    turn: u64,
}

impl Entry {
    fn is_waited_for(&self) -> bool {
        self.progress.receiver_count() > 0
            || self.others.iter().any(|other| other.receiver_count() > 0)
    }
}

#[derive(Debug, Default)]
struct Entries {
    by_call: HashMap<ToolCallId, Entry>,
    finished: VecDeque<Ended>,
    /// What the outputs of these come to.
    bytes: usize,
    turns: u64,
    looks: u64,
}

impl Entries {
    const fn next_turn(&mut self) -> u64 {
        self.turns = self.turns.wrapping_add(1);
        self.turns
    }
}

/// A call whose answer is kept for a while.
#[derive(Debug)]
struct Ended {
    at: Instant,
    call_id: ToolCallId,
    turn: u64,
    bytes: usize,
}

/// A call whose state is known only from the ledger.
#[derive(Debug, Clone)]
pub(crate) struct Watched {
    pub(crate) call_id: ToolCallId,
    pub(crate) record_id: RecordId,
    /// The revision last reported.
    pub(crate) rev: u64,
    turn: u64,
}

/// Waiters and tasks.
#[derive(Debug)]
pub(crate) struct Registry {
    entries: Mutex<Entries>,
    tasks: TaskTracker,
    kept: Duration,
    kept_max: usize,
}

impl Registry {
    pub(crate) fn new(kept_ms: u64, kept_max: usize) -> Self {
        Self {
            entries: Mutex::default(),
            tasks: TaskTracker::new(),
            kept: Duration::from_millis(kept_ms),
            kept_max,
        }
    }

    /// Registers a call and returns a receiver for its state; a registered call keeps its waiters.
    pub(crate) fn enter(
        &self,
        call_id: &ToolCallId,
        owner: Owner,
        answer: Answer,
    ) -> watch::Receiver<Answer> {
        let mut entries = self.entries.lock();
        self.forget_old(&mut entries);
        let turn = entries.next_turn();
        let entry = entries.by_call.entry(call_id.clone()).or_insert_with(|| Entry {
            owner,
            progress: watch::Sender::new(answer),
            others: Vec::new(),
            steps: None,
            watched: None,
            looked: 0,
            turn,
        });
        entry.progress.subscribe()
    }

    /// Registers a call whose state is known only from the ledger, and has it polled until it ends.
    pub(crate) fn watch(
        &self,
        call_id: &ToolCallId,
        owner: Owner,
        record_id: RecordId,
        answer: Answer,
    ) -> watch::Receiver<Answer> {
        let progress = self.enter(call_id, owner, answer);
        if let Some(entry) = self.entries.lock().by_call.get_mut(call_id) {
            entry.watched.get_or_insert((record_id, 0));
        }
        progress
    }

    /// At most `most` of the calls to poll, those polled longest ago first, so that each has its turn however many there are. Calls without
    /// waiters are forgotten.
    pub(crate) fn watched(&self, most: usize) -> Vec<Watched> {
        let mut entries = self.entries.lock();
        let waited = |entry: &Entry| {
            let told = entry.is_waited_for();
            // A held call without waiters needs no entry: the ledger has its state.
            let is_held = matches!(&*entry.progress.borrow(), Answer::Held(_));
            let is_final = entry.progress.borrow().is_final();
            told || is_final || (entry.watched.is_none() && !is_held)
        };
        entries.by_call.retain(|_, entry| waited(entry));
        let open = |entry: &Entry| !entry.progress.borrow().is_final();
        let watched = entries.by_call.iter().filter(|(_, entry)| open(entry));
        let mut due: Vec<(u64, Watched)> = watched
            .filter_map(|(call_id, entry)| {
                let ((record_id, rev), turn) = (entry.watched?, entry.turn);
                Some((entry.looked, Watched { call_id: call_id.clone(), record_id, rev, turn }))
            })
            .collect();
        due.sort_unstable_by_key(|(looked, _)| *looked);
        due.truncate(most);
        entries.looks = entries.looks.saturating_add(1);
        let round = entries.looks;
        for (_, watched) in &due {
            if let Some(entry) = entries.by_call.get_mut(&watched.call_id) {
                entry.looked = round;
            }
        }
        due.into_iter().map(|(_, watched)| watched).collect()
    }

    /// Tells the waiters what was read of a watched call, unless a newer entry has replaced it.
    pub(crate) fn publish_watched(&self, watched: &Watched, rev: u64, answer: Answer) {
        let current = {
            let mut entries = self.entries.lock();
            let entry = entries.by_call.get_mut(&watched.call_id);
            entry.filter(|entry| entry.turn == watched.turn).map(|entry| {
                entry.watched = Some((watched.record_id, rev));
            })
        };
        if current.is_some() {
            self.publish(&watched.call_id, answer);
        }
    }

    /// A receiver for the state of a call, for its owner.
    pub(crate) fn follow(
        &self,
        call_id: &ToolCallId,
        owner: &Owner,
    ) -> Option<watch::Receiver<Answer>> {
        let entries = self.entries.lock();
        let entry = entries.by_call.get(call_id)?;
        (entry.owner == *owner).then(|| entry.progress.subscribe())
    }

    /// The progress of a call, as its adapter reports it; `None` where the call is not registered here.
    pub(crate) fn steps(&self, call_id: &ToolCallId) -> Option<watch::Receiver<Steps>> {
        let mut entries = self.entries.lock();
        let entry = entries.by_call.get_mut(call_id)?;
        Some(entry.steps.get_or_insert_default().subscribe())
    }

    /// Whether a call has no waiters any more.
    pub(crate) fn is_deserted(&self, call_id: &ToolCallId) -> bool {
        self.entries.lock().by_call.get(call_id).is_none_or(|entry| !entry.is_waited_for())
    }

    /// A receiver for a call that is known to have the same key, and so the same owner.
    pub(crate) fn follow_original(&self, call_id: &ToolCallId) -> Option<watch::Receiver<Answer>> {
        Some(self.entries.lock().by_call.get(call_id)?.progress.subscribe())
    }

    /// Tells the waiters the state of a call. The end is reported once: what comes after it is dropped.
    pub(crate) fn publish(&self, call_id: &ToolCallId, answer: Answer) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.by_call.get(call_id) else { return };
        let (is_final, turn) = (answer.is_final(), entry.turn);
        let tell = |progress: &watch::Sender<Answer>| {
            progress.send_if_modified(|current| {
                let changes = !current.is_final() && !answer.is_repeated(current);
                if changes {
                    current.clone_from(&answer);
                }
                changes
            })
        };
        for other in &entry.others {
            tell(other);
        }
        let told = tell(&entry.progress);
        if told && is_final {
            let (at, bytes) = (Instant::now(), weight(&answer.envelope().output));
            entries.bytes = entries.bytes.saturating_add(bytes);
            entries.finished.push_back(Ended { at, call_id: call_id.clone(), turn, bytes });
            self.forget_old(&mut entries);
        }
    }

    /// Moves the waiters of `from` to `to`, a call that ended without an effect and is taken up again. Earlier answers about `to` no longer
    /// hold.
    pub(crate) fn adopt(&self, from: &ToolCallId, to: &ToolCallId) {
        let mut entries = self.entries.lock();
        let turn = entries.next_turn();
        if let Some(mut entry) = entries.by_call.remove(from) {
            if let Some(before) = entries.by_call.remove(to)
                && !before.progress.borrow().is_final()
            {
                entry.others.extend(before.others);
                entry.others.push(before.progress);
            }
            entries.by_call.insert(to.clone(), Entry { turn, ..entry });
        }
    }

    /// Forgets a call whose state now comes from elsewhere: the ledger, or the call it is a duplicate of.
    pub(crate) fn forget(&self, call_id: &ToolCallId) {
        self.entries.lock().by_call.remove(call_id);
    }

    /// Runs a task that only the end of the process cancels. Boxed: the runtime moves a new task ten times, and its end three times.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        drop(self.tasks.spawn(Box::pin(task)));
    }

    /// Polls a task once at once; if it is not ready, it continues as with [`Registry::spawn`]. A task that waits for nothing needs no
    /// spawn, and a panic in it ends nothing else.
    pub(crate) fn run(&self, task: impl Future<Output = ()> + Send + 'static) {
        let mut task = Box::pin(task);
        // The no-op waker loses nothing: a pending task is polled again as soon as it is spawned.
        let mut context = task::Context::from_waker(Waker::noop());
        let polled = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(&mut context)));
        match polled {
            Ok(task::Poll::Pending) => self.spawn(task),
            Ok(task::Poll::Ready(())) => {}
            Err(_panic) => tracing::error!("a stage of a call panicked"),
        }
    }

    /// Waits until every task has ended, `limit` at most; returns whether they have.
    pub(crate) async fn drain(&self, limit: Duration) -> bool {
        self.tasks.close();
        tokio::time::timeout(limit, self.tasks.wait()).await.is_ok()
    }

    /// How many calls have come since the start.
    pub(crate) fn begun(&self) -> u64 {
        self.entries.lock().turns
    }

    /// How many calls are in flight.
    pub(crate) fn in_flight(&self) -> usize {
        let entries = self.entries.lock();
        let under_way = |entry: &&Entry| matches!(&*entry.progress.borrow(), Answer::InProgress(_));
        entries.by_call.values().filter(under_way).count()
    }

    fn forget_old(&self, entries: &mut Entries) {
        let now = Instant::now();
        while let Some(oldest) = entries.finished.front() {
            let is_due = now.saturating_duration_since(oldest.at) > self.kept
                || entries.finished.len() > self.kept_max
                || entries.bytes > KEPT_BYTES_MAX;
            if !is_due {
                return;
            }
            let Some(Ended { call_id, turn, bytes, .. }) = entries.finished.pop_front() else {
                return;
            };
            entries.bytes = entries.bytes.saturating_sub(bytes);
            if entries.by_call.get(&call_id).is_some_and(|entry| entry.turn == turn) {
                entries.by_call.remove(&call_id);
            }
        }
    }
}

impl Observer for Registry {
    fn progressed(&self, call: &ToolCallId, progress: Progress) {
        let mut entries = self.entries.lock();
        let Some(entry) = entries.by_call.get_mut(call) else { return };
        entry.steps.get_or_insert_default().send_modify(|steps| {
            if steps.len() == STEPS_KEPT {
                steps.pop_front();
            }
            steps.push_back(progress);
        });
    }
}

#[cfg(test)]
mod tests;
