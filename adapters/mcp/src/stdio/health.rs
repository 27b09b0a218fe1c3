//! Whether a server and its pipes are still usable, and why not.
//!
//! Owns the flag that the connection reads and the first reason for a failure. Invariant: once closed, never open again.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use placet_adapter::outcome::AdapterError;

/// The health of one child process.
#[derive(Debug, Default)]
pub(crate) struct Health {
    closed: Arc<AtomicBool>,
    fault: OnceLock<&'static str>,
}

impl Health {
    /// Notes that the server broke the protocol; the first reason is kept.
    pub(crate) fn fail(&self, why: &'static str) {
        self.fault.get_or_init(|| why);
        self.close();
    }

    /// Notes that the process has ended.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// The flag that is set once the server is no longer usable.
    pub(crate) fn closed(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.closed)
    }

    /// Adds the reason known here to a failed handshake.
    pub(crate) fn explain(&self, error: AdapterError) -> AdapterError {
        match self.fault.get() {
            Some(why) => AdapterError::InvalidResponse((*why).to_owned()),
            None => error,
        }
    }
}
