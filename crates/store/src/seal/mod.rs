//! The seal: what a log says about itself under a key, and how anybody checks it without trusting the machine that said it.
//!
//! Owns the signing key and its forms, signed checkpoints, receipts, the exported form of a log and its verification.
//! Not here: hashes and proofs (`placet_ledger::proof`), where a log is kept (`journal`, `tree`). Invariants: a key never leaves
//! its type but into its own file; a checkpoint is signed only if it comes after the last one that was signed; what is
//! verified is compared whole, and every error says what is wrong and where.

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

/// A log as it stands: its tree and its chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// How many entries, and the root over them.
    pub head: TreeHead,
    /// The chain hash of the last entry; zeros in an empty log.
    pub chain: [u8; 32],
}
