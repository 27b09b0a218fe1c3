//! The breaker: after several failures in a row an adapter is left alone for a while.
//!
//! Owns the state machine: closed, open until a moment, half open for one trial.

use std::time::Duration;

use tokio::time::Instant;

/// A breaker.
#[derive(Debug)]
pub(crate) struct Breaker {
    state: State,
    failures_max: u32,
    open_for: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    HalfOpen,
}

impl Breaker {
    pub(crate) fn new(failures_max: u32, open_ms: u64) -> Self {
        Self {
            state: State::Closed { failures: 0 },
            failures_max: failures_max.max(1),
            open_for: Duration::from_millis(open_ms),
        }
    }

    /// Whether a call may try; else how long to wait. After its time an open breaker lets one call through.
    pub(crate) fn admit(&mut self) -> Result<(), Duration> {
        let now = Instant::now();
        match self.state {
            State::Closed { .. } => Ok(()),
            State::Open { until } if now >= until => {
                self.state = State::HalfOpen;
                Ok(())
            }
            State::Open { until } => Err(until.saturating_duration_since(now)),
            State::HalfOpen => Err(self.open_for),
        }
    }

    /// The adapter answered, whatever the answer.
    pub(crate) fn succeeded(&mut self) {
        self.state = State::Closed { failures: 0 };
    }

    /// The trial made no call: another call may try.
    pub(crate) fn unused(&mut self) {
        if self.state == State::HalfOpen {
            self.state = State::Open { until: Instant::now() };
        }
    }

    /// The adapter could not be reached or gave no answer. Says whether this opened the breaker.
    pub(crate) fn failed(&mut self) -> bool {
        let failures = match self.state {
            State::Closed { failures } => failures.saturating_add(1),
            State::HalfOpen | State::Open { .. } => self.failures_max,
        };
        let opens = failures >= self.failures_max;
        self.state = if opens {
            State::Open { until: Instant::now() + self.open_for }
        } else {
            State::Closed { failures }
        };
        opens
    }

    /// Whether a call would be refused now; false for an open breaker whose time for a trial has come.
    pub(crate) fn is_shut(&self) -> bool {
        match self.state {
            State::Closed { .. } => false,
            State::Open { until } => Instant::now() < until,
            State::HalfOpen => true,
        }
    }

    /// Whether the breaker is open or half open.
    pub(crate) fn is_open(&self) -> bool {
        !matches!(self.state, State::Closed { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_breaker_opens_after_failures_in_a_row_and_lets_one_call_try() {
        let mut breaker = Breaker::new(3, 1_000);
        assert!(!breaker.failed());
        breaker.succeeded();
        assert!(!breaker.failed());
        assert!(!breaker.failed());
        assert!(breaker.failed());
        assert!(breaker.is_shut() && breaker.admit().is_err());
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert!(!breaker.is_shut() && breaker.admit().is_ok());
        assert!(breaker.is_shut() && breaker.admit().is_err(), "only one call may try");
        assert!(breaker.failed());
        assert!(breaker.admit().is_err());
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert!(breaker.admit().is_ok());
        breaker.unused();
        assert!(breaker.admit().is_ok(), "a trial that made no call leaves the trial to the next");
        breaker.succeeded();
        assert!(breaker.admit().is_ok() && breaker.admit().is_ok() && !breaker.is_open());
    }
}
