//! Tickets: a handle for waiting on one call.
//!
//! Owns the waiting of a caller. Dropping a ticket changes nothing about the call. The ticket of a duplicate moves to the held call, so
//! that a duplicate keeps nothing in the engine while approvers think.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

pub use placet_adapter::adapter::Progress;
use placet_types::ids::ToolCallId;

pub use crate::registry::Steps;
use crate::{
    answer::Answer,
    outcome::{Outcomes, recorded},
    registry::Owner,
};

/// A handle for waiting on one call.
#[derive(Debug, Clone)]
pub struct Ticket {
    outcomes: Arc<Outcomes>,
    call_id: ToolCallId,
    owner: Owner,
    progress: watch::Receiver<Answer>,
    /// Whether it moved to the call that its own was a duplicate of.
    replays: bool,
}

impl Ticket {
    pub(crate) fn new(
        outcomes: Arc<Outcomes>,
        call_id: ToolCallId,
        owner: Owner,
        progress: watch::Receiver<Answer>,
    ) -> Self {
        Self { outcomes, call_id, owner, progress, replays: false }
    }

    /// The call; for a duplicate of a held call, the held one.
    pub const fn call_id(&self) -> &ToolCallId {
        &self.call_id
    }

    /// Its current state.
    pub fn current(&self) -> Answer {
        self.told(self.progress.borrow().clone())
    }

    /// Its progress, as its adapter reports it; `None` where the call is not in flight on this node.
    pub fn steps(&self) -> Option<watch::Receiver<Steps>> {
        self.outcomes.registry.steps(&self.call_id)
    }

    /// Its state after the next change; the current one if nothing will change any more.
    pub async fn changed(&mut self) -> Answer {
        let before = self.current();
        if !before.is_final() {
            if self.goes_on(&before) && !self.seen().is_repeated(&before) {
                return self.current();
            }
            if self.progress.changed().await.is_err() {
                // It was forgotten while somebody waited for it: the ledger tells.
                let (call_id, owner) = (&self.call_id, self.owner.clone());
                self.progress = wait_for(&self.outcomes, call_id, owner, before);
            }
        }
        self.seen()
    }

    /// Its final answer; for a held call, the answer after `wait_ms` at most.
    pub async fn settled(&mut self, wait_ms: u64) -> Answer {
        let until = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
        loop {
            let answer = self.seen();
            match &answer {
                Answer::InProgress(_) => {
                    if self.progress.changed().await.is_err() {
                        return self.current();
                    }
                }
                Answer::Held(_) if self.goes_on(&answer) => {}
                Answer::Held(_) => {
                    match tokio::time::timeout_at(until, self.progress.changed()).await {
                        Ok(Ok(())) => {}
                        Ok(Err(_)) | Err(_) => return self.current(),
                    }
                }
                Answer::Finished(_) | Answer::Refused(_) => return answer,
            }
        }
    }

    /// Moves to the held call if this one is only its duplicate; returns whether it did.
    fn goes_on(&mut self, answer: &Answer) -> bool {
        let Answer::Held(held) = answer else { return false };
        if held.call_id == self.call_id {
            return false;
        }
        let original = self.outcomes.registry.follow_original(&held.call_id);
        let original = original.unwrap_or_else(|| {
            wait_for(&self.outcomes, &held.call_id, self.owner.clone(), answer.clone())
        });
        self.call_id = held.call_id.clone();
        self.progress = original;
        self.replays = true;
        true
    }

    fn seen(&mut self) -> Answer {
        let answer = self.progress.borrow_and_update().clone();
        self.told(answer)
    }

    fn told(&self, mut answer: Answer) -> Answer {
        if let Answer::Finished(result) = &mut answer
            && self.replays
        {
            Arc::make_mut(result).replayed = true;
        }
        answer
    }
}

/// A receiver for an open call that has no entry here yet.
pub(crate) fn wait_for(
    outcomes: &Arc<Outcomes>,
    call_id: &ToolCallId,
    owner: Owner,
    answer: Answer,
) -> watch::Receiver<Answer> {
    let progress = outcomes.registry.enter(call_id, owner, answer);
    let (owner, call_id) = (Arc::clone(outcomes), call_id.clone());
    // It may have moved after it was read and before it was registered.
    outcomes.registry.spawn(async move { catch_up(&owner, &call_id).await });
    progress
}

async fn catch_up(outcomes: &Outcomes, call_id: &ToolCallId) {
    let store = outcomes.ledger.store();
    match store.effect_of_call(call_id).await {
        Ok(Some(record)) => {
            if store.is_shared() {
                drop(outcomes.watch(&record));
            }
            let answer = recorded::answer(outcomes, &record, false).await;
            outcomes.registry.publish(call_id, answer);
        }
        Ok(None) => {
            let approval = store.approval_of_call(call_id).await.ok().flatten();
            if let Some(end) = recorded::gone(outcomes, call_id, approval.as_ref()) {
                outcomes.registry.publish(call_id, end);
            }
        }
        Err(error) => outcomes.node.noticed(&error.into()),
    }
}
