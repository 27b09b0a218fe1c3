//! The audit log as a store shows it: entries, tree heads, proofs.
//!
//! Owns what a store must provide about its chain. How proofs are made and checked is in [`crate::proof`]. A store has one log (embedded)
//! or one for each epoch (a fleet).

use async_trait::async_trait;

use placet_types::{clock::Timestamp, ids::RecordId};
use serde::{Deserialize, Serialize};

use crate::{audit::Subject, store::StoreError};

/// One entry of a log, with everything its hash covers. Exports hold it as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    #[serde(with = "hash_text")]
    pub prev: [u8; 32],
    /// The hash of this entry, which the next one names and the tree has as a leaf.
    #[serde(with = "hash_text")]
    pub hash: [u8; 32],
    /// The entry's JSON, byte for byte.
    #[serde(with = "payload_text")]
    pub payload: Vec<u8>,
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

/// A hash as 64 lowercase hexadecimal digits.
mod hash_text {
    use serde::{Deserialize as _, Deserializer, Serializer, de};

    pub(super) fn serialize<S: Serializer>(hash: &[u8; 32], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&hex::encode(hash))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 32], D::Error> {
        let text = String::deserialize(from)?;
        let mut hash = [0; 32];
        let decoded = hex::decode_to_slice(&text, &mut hash);
        if decoded.is_err() || hex::encode(hash) != text {
            return Err(de::Error::custom("a hash is written as 64 lowercase hexadecimal digits"));
        }
        Ok(hash)
    }
}

/// A payload as a text, not as an object: its very bytes are hashed.
mod payload_text {
    use serde::{Deserialize as _, Deserializer, Serializer, ser};

    pub(super) fn serialize<S: Serializer>(payload: &[u8], to: S) -> Result<S::Ok, S::Error> {
        let text = std::str::from_utf8(payload);
        to.serialize_str(text.map_err(|_bytes| ser::Error::custom("its payload is not text"))?)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        String::deserialize(from).map(String::into_bytes)
    }
}
