//! What an adapter is: the contract of a kind, its limits, and the one method that can have an effect.
//!
//! Owns the [`adapter::Adapter`] trait and the typed outcome of a call. Does not connect to anything. Invariant: nothing but a
//! [`placet_ledger::dispatch::Dispatch`] makes an adapter act; `discover` and `probe` have no effects.

pub mod adapter;
#[cfg(feature = "test-support")]
pub mod conformance;
pub mod outcome;
pub mod scrub;
