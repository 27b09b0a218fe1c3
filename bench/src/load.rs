//! Load: so many callers, each making one call after the other, for so long.
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
    /// Before each measurement, without counting.
    pub(crate) warm_up: Duration,
    /// One round of one side of a comparison.
    pub(crate) round: Duration,
    /// How many rounds of each side, in turns.
    pub(crate) pairs: usize,
    /// One write or replay rate.
    pub(crate) rate: Duration,
    /// The disk alone; before and after the write rates.
    pub(crate) disk: Duration,
    /// Decisions with one number of policies.
    pub(crate) decisions: Duration,
}

impl Plan {
    /// About a minute.
    pub(crate) const FULL: Self = Self {
        warm_up: Duration::from_millis(300),
        round: Duration::from_millis(500),
        pairs: 4,
        rate: Duration::from_secs(3),
        disk: Duration::from_millis(1_500),
        decisions: Duration::from_millis(500),
    };
    /// About ten seconds: the numbers are rougher.
    pub(crate) const QUICK: Self = Self {
        warm_up: Duration::from_millis(50),
        round: Duration::from_millis(150),
        pairs: 2,
        rate: Duration::from_millis(500),
        disk: Duration::from_millis(300),
        decisions: Duration::from_millis(100),
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
        sample.latencies.extend(ended.context("a caller broke")??);
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
    async fn every_call_of_every_caller_is_counted_and_as_many_as_asked_run_at_once() {
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
