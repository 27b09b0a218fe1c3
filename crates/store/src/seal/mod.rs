//! The seal: signed statements about a log, which anybody can check without trusting the machine that made them.
//!
//! Owns the signing key and its forms, signed checkpoints, receipts, the exported form of a log and its verification.
//! Not here: hashes and proofs (`placet_ledger::proof`), where a log is kept (`journal`, `postgres`), what is signed when (`notary`).
//! Invariants: a key never leaves its type except into its own file; what is verified is compared whole, and every error says what is
//! wrong and where.

mod checkpoint;
mod error;
mod export;
mod key;
mod receipt;
mod verify;

#[cfg(test)]
mod tests;

pub(crate) use checkpoint::check_after;
pub use checkpoint::{sign_checkpoint, verify_checkpoint};
pub use error::SealError;
pub use export::{ExportHeader, entry_hash, export_header, export_line};
pub use key::{SealKey, SealPublic};
pub use receipt::{sign_receipt, verify_receipt, verify_receipt_under};
pub(crate) use verify::Walk;
