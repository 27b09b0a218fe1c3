//! Ids for tests, counted.
//!
//! Owns the counter. Ids of two counters with different prefixes never meet.

use std::sync::atomic::{AtomicU64, Ordering};

use placet_types::clock::IdSource;

/// Gives one number after another.
#[derive(Debug, Default)]
pub struct Counter {
    prefix: u64,
    next: AtomicU64,
}

impl Counter {
    /// A counter whose ids begin with this number of at most six digits.
    pub const fn with_prefix(prefix: u64) -> Self {
        Self { prefix, next: AtomicU64::new(0) }
    }
}

impl IdSource for Counter {
    fn fresh(&self) -> String {
        format!("{:06}{:020}", self.prefix, self.next.fetch_add(1, Ordering::SeqCst))
    }
}
