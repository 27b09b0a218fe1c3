//! Telling people and callers what happens to held calls: routes, messages, delivery.
//!
//! Owns which channel is told of what, the forms of the messages, and their delivery: in order for each call, at least once, tried again
//! until it is too late. Does not own the facts: they come from the audit chain; what waits is in the ledger's outbox. Invariants:
//! a message decides nothing and holds no token, no argument that is marked sensitive, and no text that an agent or a person wrote;
//! nothing here can hold a call up.

pub mod config;
mod entry;
mod ledger_reader;
pub mod message;
pub mod notice;
pub mod notifier;
mod outbox;
mod reading;
mod render;
mod route;
pub mod schedule;
pub mod sender;
pub mod signature;
mod smtp;
#[cfg(test)]
mod tests;
