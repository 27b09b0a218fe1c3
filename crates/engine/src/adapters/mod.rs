//! The adapters as the pipeline sees them: a port each, with its bulkhead, breaker, connection and pins.
//!
//! Owns what a call passes between its permit and its adapter. The supervisors that keep connections alive are in [`crate::actors`].

pub(crate) mod assembly;
pub(crate) mod breaker;
mod error_injection;
pub(crate) mod errors;
pub(crate) mod known_secrets;
mod lists;
pub(crate) mod overlap;
pub(crate) mod pins;
pub(crate) mod ports;
mod wrapper;
