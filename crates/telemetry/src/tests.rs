//! The telemetry from the outside: spans that reach a collector, lines that reach a log.

mod collectors;
mod export;
mod logs;
mod spans;
