//! The audit log as a store shows it: entries, tree heads, proofs.
//!
//! Owns what a store must provide about its chain. How proofs are made and checked is in [`crate::proof`]. A store has one log (embedded)
//! or one for each epoch (a fleet).

use async_trait::async_trait;

use placet_types::{clock::Timestamp, ids::RecordId};

use crate::{audit::Subject, store::StoreError};

/// One entry of a log, with everything its hash covers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogEntry {
    /// Its place, from 1, without gaps.
    pub seq: u64,
    /// The epoch of the process that wrote it.
    pub epoch: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// What kind of payload it has.
    pub kind: u8,
    /// The last entry known to be durable when this one was made.
    pub durable_seq: u64,
    /// The hash of the entry before it; zeros for the first.
    pub prev: [u8; 32],
    /// The entry's JSON.
    pub payload: Vec<u8>,
    /// The hash of this entry, which the next one names and the tree has as a leaf.
    pub hash: [u8; 32],
}

/// The head of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeHead {
    /// The log's name within the store.
    pub log: String,
    /// How many entries it has.
    pub size: u64,
    /// The root of the Merkle tree over their hashes (RFC 9162 section 2.1).
    pub root: [u8; 32],
    /// The hash of the last entry; zeros where there is none.
    pub head: [u8; 32],
    /// The epoch of the process that read it.
    pub epoch: u64,
    /// When it was read.
    pub at: Timestamp,
}

/// What a store provides about its audit chain. Only durable entries are shown. Every method returns [`StoreError`] when the store cannot
/// tell, or has no such log or entries.
#[async_trait]
pub trait AuditLog: Send + Sync {
    /// The heads of all logs.
    async fn heads(&self) -> Result<Vec<TreeHead>, StoreError>;
    /// Up to `limit` entries of `log` from `from` on.
    async fn entries(
        &self,
        log: &str,
        from: u64,
        limit: usize,
    ) -> Result<Vec<LogEntry>, StoreError>;
    /// The entries with events about a subject, as log and sequence number, in order within each log. Complete, however old they are.
    async fn entries_about(&self, subject: &Subject) -> Result<Vec<(String, u64)>, StoreError>;
    /// The log and entry that recorded a record's current state.
    async fn entry_of(&self, record_id: RecordId) -> Result<Option<(String, u64)>, StoreError>;
    /// The audit path of entry `seq` in the tree over the first `size` entries (RFC 9162 section 2.1.3).
    async fn inclusion(&self, log: &str, seq: u64, size: u64) -> Result<Vec<[u8; 32]>, StoreError>;
    /// The proof that the tree over `from` entries is a prefix of that over `to` (RFC 9162 section 2.1.4).
    async fn consistency(&self, log: &str, from: u64, to: u64)
    -> Result<Vec<[u8; 32]>, StoreError>;
}
