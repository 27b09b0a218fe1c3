//! How far long work has come, for people who wait for it.

use std::fmt;
use std::sync::Arc;

/// Called with the number of each journal entry that a check or a rebuild has reached; must not block. Does nothing by default.
#[derive(Clone, Default)]
pub struct Progress(Option<Arc<dyn Fn(u64) + Send + Sync>>);

impl Progress {
    /// Tells `observe`.
    pub fn new(observe: impl Fn(u64) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(observe)))
    }

    pub(crate) fn at(&self, seq: u64) {
        if let Some(observe) = &self.0 {
            observe(seq);
        }
    }
}

impl fmt::Debug for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Progress").finish_non_exhaustive()
    }
}
