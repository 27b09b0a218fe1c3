//! Load: a number of callers, each making one call after the other, for a given time.
//!
//! Owns the closed loop and the lengths of a run. Invariants: a call that fails ends the measurement; a call that was begun is
//! waited for and counted, so that slow ones are not left out.

use std::{future::Future, time::Duration};

use anyhow::{Context as _, Result};
use tokio::{task::JoinSet, time::Instant};

use crate::stats::Sample;

/// How long the parts of a run take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    /// Before each measurement, not counted.
    pub(crate) warm_up: Duration,
    /// One round of one side of a comparison.
    pub(crate) round: Duration,
    /// How many rounds of each side, alternately.
    pub(crate) rounds: usize,
    /// The disk alone, before and after the writes.
    pub(crate) disk: Duration,
    /// Decisions with one bundle.
    pub(crate) decisions: Duration,
    /// How long memory may take to settle before it is read.
    pub(crate) settle: Duration,
}

impl Plan {
    /// About a minute, not counting held calls.
    pub(crate) const FULL: Self = Self {
        warm_up: Duration::from_millis(500),
        round: Duration::from_secs(1),
        rounds: 3,
        disk: Duration::from_secs(1),
        decisions: Duration::from_secs(1),
        settle: Duration::from_secs(5),
    };
    /// About fifteen seconds: the numbers are rougher.
    pub(crate) const QUICK: Self = Self {
        warm_up: Duration::from_millis(200),
        round: Duration::from_millis(300),
        rounds: 2,
        disk: Duration::from_millis(300),
        decisions: Duration::from_millis(200),
        settle: Duration::from_secs(1),
    };
}

/// Makes calls with `concurrency` callers for `length`.
pub(crate) async fn run<C, F>(concurrency: usize, length: Duration, call: C) -> Result<Sample>
where
    C: Fn() -> F + Clone + Send + 'static,
    F: Future<Output = Result<()>> + Send,
{
    let began = Instant::now();
    let mut callers = JoinSet::new();
    for _caller in 0..concurrency {
        let call = call.clone();
        callers.spawn(async move { one_after_the_other(began, length, call).await });
    }
    let mut sample = Sample::default();
    while let Some(ended) = callers.join_next().await {
        sample.latencies.extend(ended.context("a caller panicked")??);
    }
    sample.elapsed = began.elapsed();
    Ok(sample)
}

async fn one_after_the_other<C, F>(
    began: Instant,
    length: Duration,
    call: C,
) -> Result<Vec<Duration>>
where
    C: Fn() -> F,
    F: Future<Output = Result<()>>,
{
    let mut latencies = Vec::new();
    while began.elapsed() < length {
        let sent = Instant::now();
        call().await?;
        latencies.push(sent.elapsed());
    }
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use anyhow::bail;

    use super::run;

    #[tokio::test]
    async fn every_call_of_every_caller_is_counted() {
        let (made, now, most) = (
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (counted, peak) = (Arc::clone(&made), Arc::clone(&most));
        let sample = run(4, Duration::from_millis(60), move || {
            let (made, now, most) = (Arc::clone(&made), Arc::clone(&now), Arc::clone(&most));
            async move {
                most.fetch_max(
                    now.fetch_add(1, Ordering::SeqCst).saturating_add(1),
                    Ordering::SeqCst,
                );
                tokio::time::sleep(Duration::from_millis(5)).await;
                now.fetch_sub(1, Ordering::SeqCst);
                made.fetch_add(1, Ordering::SeqCst);
                Ok(())
            }
        })
        .await
        .unwrap();
        assert_eq!(sample.latencies.len(), counted.load(Ordering::SeqCst));
        assert!(sample.latencies.len() >= 4);
        assert_eq!(peak.load(Ordering::SeqCst), 4);
        assert!(sample.latencies.iter().all(|latency| *latency >= Duration::from_millis(5)));
        assert!(sample.elapsed >= Duration::from_millis(60));
    }

    #[tokio::test]
    async fn a_failed_call_ends_the_measurement() {
        let failed = run(2, Duration::from_secs(60), || async { bail!("refused") }).await;
        assert_eq!(failed.unwrap_err().to_string(), "refused");
    }
}
