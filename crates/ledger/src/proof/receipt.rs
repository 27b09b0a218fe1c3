//! Receipts: proof for a caller of what became of a call.
//!
//! Owns what a receipt claims, and the check that its entry is in the log it names. Not here: the signature and the JWS around it
//! (`placet-store`). Invariant I15: a receipt holds digests, names and codes; never an argument, a result or a secret.

use placet_types::clock::Timestamp;
use placet_types::digest::Digest;
use placet_types::error::ErrorCode;
use placet_types::ids::{CapabilityId, RecordId, TenantId, ToolCallId};
use serde::{Deserialize, Serialize};

use super::note::NoteName;
use super::{Inclusion, ProofError, TreeHead};

/// The version of [`ReceiptClaims`] that this build writes and reads.
pub const RECEIPT_VERSION: u16 = 1;

/// The type of the JWS that carries a receipt.
pub const RECEIPT_TYPE: &str = "placet-receipt+jwt";

/// The engine's statement of what became of a call, and where its log records that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptClaims {
    /// The version; others are refused.
    pub version: u16,
    /// The issuer: the name of the key.
    pub iss: NoteName,
    /// When, in seconds since 1970.
    pub iat: i64,
    /// The call.
    pub call_id: ToolCallId,
    /// The record of its effect.
    pub record_id: RecordId,
    /// In which tenant.
    pub tenant: TenantId,
    /// Which operation.
    pub capability: CapabilityId,
    /// The state of the record, for example `succeeded`.
    pub state: String,
    /// The code, where the state has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<ErrorCode>,
    /// What was asked for: capability and arguments before defaults.
    pub requested_digest: Digest,
    /// What an approval binds; absent where nothing was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_digest: Option<Digest>,
    /// The recorded result, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<Digest>,
    /// Whether the call was answered from the record of an earlier one.
    pub replayed: bool,
    /// The log.
    pub log: NoteName,
    /// The entry that recorded the state.
    pub seq: u64,
    /// The chain hash of that entry.
    pub entry: Digest,
    /// When it was written.
    pub at: Timestamp,
    /// How many entries the log had when the receipt was made.
    pub tree_size: u64,
    /// The root over them.
    pub root: Digest,
    /// The hashes from the entry to the root.
    pub path: Vec<Digest>,
}

impl ReceiptClaims {
    /// The proof that the receipt carries.
    pub fn inclusion(&self) -> Inclusion {
        Inclusion { seq: self.seq, size: self.tree_size, path: self.path.clone() }
    }

    /// The head that its proof leads to.
    pub const fn head(&self) -> TreeHead {
        TreeHead { size: self.tree_size, root: self.root }
    }

    /// Checks that the entry it names is in the tree it names.
    ///
    /// # Errors
    /// It is not.
    pub fn check(&self) -> Result<(), ProofError> {
        self.inclusion().verify(self.entry.as_bytes(), &self.root)
    }
}
