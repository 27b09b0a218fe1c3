//! Tickets: a view on one call, to wait by.
//!
//! Owns the waiting of a caller. Dropping a ticket changes nothing about the call.

use std::time::Duration;

use tokio::sync::watch;

use placet_types::ids::ToolCallId;

use crate::answer::Answer;

/// A view on one call.
#[derive(Debug)]
pub struct Ticket {
    call_id: ToolCallId,
    progress: watch::Receiver<Answer>,
}

impl Ticket {
    pub(crate) const fn new(call_id: ToolCallId, progress: watch::Receiver<Answer>) -> Self {
        Self { call_id, progress }
    }

    /// The call.
    #[must_use]
    pub fn call_id(&self) -> &ToolCallId {
        &self.call_id
    }

    /// How it stands.
    #[must_use]
    pub fn current(&self) -> Answer {
        self.progress.borrow().clone()
    }

    /// How it stands after the next change; the same as now when nothing will change any more.
    pub async fn changed(&mut self) -> Answer {
        if !self.current().is_final() && self.progress.changed().await.is_err() {
            tracing::debug!(call_id = %self.call_id, "a call was forgotten while somebody waited for it");
        }
        self.progress.borrow_and_update().clone()
    }

    /// How it ends; a held call is waited for `wait_ms` only.
    pub async fn settled(&mut self, wait_ms: u64) -> Answer {
        let until = tokio::time::Instant::now() + Duration::from_millis(wait_ms);
        loop {
            let answer = self.progress.borrow_and_update().clone();
            match answer {
                Answer::InProgress(_) => {
                    if self.progress.changed().await.is_err() {
                        return self.current();
                    }
                }
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
}
