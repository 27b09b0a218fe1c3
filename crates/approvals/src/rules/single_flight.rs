//! SingleFlight: one reading of the directives at a time, shared by all who wait for one.
//!
//! Owns who reads, and what the others get. Invariant: a failed reading is the answer for everyone who waited for it, so that nobody waits
//! for more than the reading in flight and one of their own, however many there are.

use std::future::Future;

use tokio::{sync::Mutex, time::Instant};

use placet_ledger::store::StoreError;

/// The lock for reading, with the time and the cause of the last failure.
#[derive(Debug, Default)]
pub(crate) struct SingleFlight(Mutex<Option<(Instant, StoreError)>>);

impl SingleFlight {
    /// Reads once it has the lock.
    ///
    /// # Errors
    /// Why this reading failed, or one that ended while this one waited.
    pub(crate) async fn run<T>(
        &self,
        reading: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let asked = Instant::now();
        let mut failed = self.0.lock().await;
        // A later success would have cleared this.
        if let Some((at, error)) = &*failed
            && *at >= asked
        {
            return Err(error.clone());
        }
        let read = reading.await;
        *failed = read.as_ref().err().map(|error| (Instant::now(), error.clone()));
        read
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use super::*;

    const READING: Duration = Duration::from_secs(5);

    /// Reads once, when it has the lock.
    async fn read(turns: &SingleFlight, goes_well: bool) -> Result<Duration, StoreError> {
        let began = Instant::now();
        let reading = async {
            tokio::time::sleep(READING).await;
            let error = StoreError::Unreachable("gone".to_owned());
            if goes_well { Ok(began.elapsed()) } else { Err(error) }
        };
        turns.run(reading).await
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
