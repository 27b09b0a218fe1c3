//! SingleFlight: one reading of what is in force at a time, for all who wait for one.
//!
//! Owns who reads, and what the others are told. Invariant: a reading that fails is the answer of everybody who waited for it, so that
//! nobody waits for more than the one under way and one of their own, however many there are.

use parking_lot::Mutex;
use tokio::{sync::MutexGuard, time::Instant};

use placet_ledger::store::StoreError;

/// The right to read.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight {
    reading: tokio::sync::Mutex<()>,
    /// When a reading failed last, and why.
    failed: Mutex<Option<(Instant, StoreError)>>,
}

impl SingleFlight {
    /// Waits for one's turn.
    ///
    /// # Errors
    /// Why a reading failed that ended while this one waited.
    pub(crate) async fn turn(&self) -> Result<MutexGuard<'_, ()>, StoreError> {
        let asked = Instant::now();
        let turn = self.reading.lock().await;
        let failed = self.failed.lock();
        match &*failed {
            // A later one that went well has taken this away.
            Some((at, error)) if *at >= asked => Err(error.clone()),
            Some(_) | None => Ok(turn),
        }
    }

    /// What came of a reading, said before the turn is over.
    pub(crate) fn ended(&self, error: Option<&StoreError>) {
        let failed = error.map(|error| (Instant::now(), error.clone()));
        *self.failed.lock() = failed;
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    const READING: Duration = Duration::from_secs(5);

    /// Reads once, in one's turn.
    async fn read(turns: &SingleFlight, goes_well: bool) -> Result<Duration, StoreError> {
        let began = Instant::now();
        let turn = turns.turn().await?;
        tokio::time::sleep(READING).await;
        let error = StoreError::Unreachable("gone".to_owned());
        turns.ended((!goes_well).then_some(&error));
        drop(turn);
        if goes_well { Ok(began.elapsed()) } else { Err(error) }
    }

    #[tokio::test(start_paused = true)]
    async fn one_error_answers_all_who_waited_and_not_one_after_another() {
        let turns = Arc::new(SingleFlight::default());
        let began = Instant::now();
        let mut readers = tokio::task::JoinSet::new();
        for number in 0..100 {
            let turns = Arc::clone(&turns);
            readers.spawn(async move {
                // Most of them come while the first one reads.
                tokio::time::sleep(Duration::from_millis(number)).await;
                read(&turns, false).await
            });
        }
        for told in readers.join_all().await {
            assert_eq!(told, Err(StoreError::Unreachable("gone".to_owned())));
        }
        assert!(began.elapsed() < READING * 2, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn what_failed_before_somebody_asked_is_not_their_answer() {
        let turns = SingleFlight::default();
        read(&turns, false).await.unwrap_err();
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(read(&turns, true).await, Ok(READING));
    }
}
