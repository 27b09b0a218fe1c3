//! The clock of stores under measurement.
//!
//! Owns the one look at the time of day. Latencies are never measured with it.

use std::time::{SystemTime, UNIX_EPOCH};

use placet_types::clock::{Clock, Timestamp};

/// The time of the operating system.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wall;

impl Clock for Wall {
    #[expect(clippy::disallowed_methods, reason = "this is the one clock of the program")]
    fn now(&self) -> Timestamp {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}
