//! The seal: signed statements about a log, which anybody can check without trusting the machine that made them.
//!
//! Owns the signing key and its forms, signed checkpoints, receipts, the exported form of a log and its verification.
//! Not here: hashes and proofs (`placet_ledger::proof`), where a log is kept (`journal`, `postgres`). Invariants: a key never leaves its
//! type except into its own file; a checkpoint is signed only if it extends the last one that was signed; what is verified is compared
//! whole, and every error says what is wrong and where.

use placet_ledger::proof::TreeHead;

mod checkpoint;
mod error;
mod export;
mod key;
mod receipt;
mod verify;

#[cfg(test)]
mod tests;

pub use checkpoint::{CheckpointFile, Sealer, verify_checkpoint};
pub use error::SealError;
pub use export::{ExportHeader, ExportLine, entry_hash, export_header, export_line};
pub use key::{SealKey, SealPublic};
pub use receipt::{sign_receipt, verify_receipt, verify_receipt_under};
pub(crate) use verify::Walk;
pub use verify::{LogFault, VerifyLogError, WholeLog, verify_whole};

/// The head of a log: its tree and its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// How many entries, and the root over them.
    pub head: TreeHead,
    /// The chain hash of the last entry; zeros in an empty log.
    pub chain: [u8; 32],
}
