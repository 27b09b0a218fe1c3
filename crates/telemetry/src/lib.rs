//! Spans, metrics, logs and their export.
//!
//! Owns the names of spans, attributes and metrics, W3C trace context, the OTLP export over gRPC and HTTP, the log lines
//! and the redaction of all of them. Does not own a decision, a socket (those are `placet-egress`'s) or the environment.
//!
//! Invariants:
//! - only spans made by [`trace`] are exported, and none of its functions takes arguments or results of a tool: they
//!   cannot get into a trace;
//! - every text passes [`redact`] before it is written or exported, as the second line of defence;
//! - nothing in here blocks a call: queues are bounded, what does not fit is dropped and counted.

mod exporter;
mod http_client;
mod log;

pub mod export;
pub mod metrics;
pub mod names;
pub mod redact;
pub mod trace;
pub mod traceparent;

#[cfg(any(test, feature = "test-support"))]
pub mod testing;

#[cfg(test)]
mod tests;
