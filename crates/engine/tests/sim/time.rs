//! Virtual time that goes on from process to process.
//!
//! Owns the mapping from the paused clock of each runtime to one line of time.

use parking_lot::Mutex;

use tokio::time::Instant;

use placet_types::clock::{Clock, Timestamp};

/// When every simulation begins.
pub(crate) const BEGINNING: Timestamp = Timestamp::from_ms(1_800_000_000_000);

#[derive(Debug)]
struct Line {
    base_ms: i64,
    started: Option<Instant>,
}

/// The time of the simulation.
#[derive(Debug)]
pub(crate) struct SimTime(Mutex<Line>);

impl SimTime {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(Line { base_ms: BEGINNING.as_ms(), started: None }))
    }

    pub(crate) fn now_ms(&self) -> i64 {
        let line = self.0.lock();
        line.base_ms + line.started.map_or(0, passed)
    }

    /// A process begins: within its runtime.
    pub(crate) fn begin(&self) {
        self.0.lock().started = Some(Instant::now());
    }

    /// It ends: within its runtime.
    pub(crate) fn end(&self) {
        let mut line = self.0.lock();
        line.base_ms += line.started.take().map_or(0, passed) + 1;
    }
}

fn passed(since: Instant) -> i64 {
    i64::try_from(since.elapsed().as_millis()).unwrap()
}

impl Clock for SimTime {
    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.now_ms())
    }
}
