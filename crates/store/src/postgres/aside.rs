//! Commits that bind every node (freezes, revocations, activations) and did not get their locks at once.
//!
//! Owns when they are retried and how long each try waits for a lock. Not here: the tries (`writer`).
//! Invariants: a node that hangs in its transaction delays only what binds all nodes; what waits here was not kept.

use std::time::Duration;

use tokio::time::Instant;

use super::writer::Submission;

/// How long the first try waits for a lock.
const LOCK_MIN: Duration = Duration::from_millis(250);

/// The waiting commits.
#[derive(Debug, Default)]
pub(super) struct Aside {
    waiting: Vec<Submission>,
    tries: u32,
    again_at: Option<Instant>,
}

impl Aside {
    /// How long the next try waits for each lock: commits behind it can afford to wait that long too.
    pub(super) fn lock_timeout(&self, wait: Duration) -> Duration {
        let most = wait.checked_div(4).unwrap_or(wait).max(Duration::from_millis(1));
        LOCK_MIN.saturating_mul(1_u32.checked_shl(self.tries).unwrap_or(u32::MAX)).min(most)
    }

    /// Sets these aside after a try. Other commits of this node and of others go on for as long as a try waits.
    pub(super) fn put(&mut self, submissions: Vec<Submission>, wait: Duration) {
        let pause = self.lock_timeout(wait);
        // The retry time of those already waiting stays.
        self.again_at.get_or_insert_with(|| Instant::now() + pause);
        self.tries = self.tries.saturating_add(1);
        self.waiting.extend(submissions);
    }

    /// What of a batch is tried now: while others wait, commits that bind every node join them, without a try of their own.
    pub(super) fn join(&mut self, batch: Vec<Submission>) -> Vec<Submission> {
        if self.again_at.is_none() {
            return batch;
        }
        let (binding, rest): (Vec<_>, Vec<_>) =
            batch.into_iter().partition(|waits| waits.piece.binds_all());
        self.waiting.extend(binding);
        rest
    }

    /// When they are retried; `None`: none is waiting.
    pub(super) const fn again_at(&self) -> Option<Instant> {
        self.again_at
    }

    /// All of them, to be tried or refused.
    pub(super) fn take(&mut self) -> Vec<Submission> {
        self.again_at = None;
        std::mem::take(&mut self.waiting)
    }

    /// They were written, or refused: the next ones begin with the shortest wait.
    pub(super) const fn reset(&mut self) {
        if self.again_at.is_none() {
            self.tries = 0;
        }
    }
}
