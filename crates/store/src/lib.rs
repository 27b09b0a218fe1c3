//! The store: where Placet keeps what it guarantees. The journal is the truth and the audit chain at once, with the contents that its
//! entries name; the state is derived from its entries.
//!
//! Not here: what a record means (`placet-ledger`), what may happen (`placet-policy`).
//! Invariant: nothing is acknowledged before it is as durable as its request asked for.

mod claims;
pub mod embedded;
pub mod journal;
pub mod notary;
pub mod postgres;
mod present;
pub mod progress;
mod rules;
pub mod seal;
pub mod sessions;
pub mod stats;
#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    clippy::wildcard_enum_match_arm,
    reason = "small numbers, and matches that name only what the test is about"
)]
mod testing;
pub mod transfer;
