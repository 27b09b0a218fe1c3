//! Telling people and callers what happens to held calls: routes, messages, delivery.
//!
//! Owns which channel gets which notices, the forms of the messages, and their delivery: in order for each call, at least once, retried
//! until it is too late. Does not own the facts: they come from the audit chain; waiting messages are in the ledger's outbox. Invariants:
//! a message decides nothing and contains no token, no argument that is marked sensitive, and no text that an agent or a person wrote;
//! nothing here can delay a call.

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
