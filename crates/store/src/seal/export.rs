//! A log as lines of JSON, with everything that is needed to verify it elsewhere.
//!
//! ```text
//! {"placet_log":1,"origin":"placet.example/journal","first_seq":1,"peaks":[]}
//! {"seq":1,"epoch":1,"at_ms":1800000000000,"kind":2,"durable_seq":0,"prev":"0000…","hash":"9b0e…","payload":"{…}"}
//! …
//! ```
//!
//! The payload is a text, not an object: its very bytes are hashed. A part of a log begins with the peaks of the entries before it.
//!
//! Owns the form, and the hash of an entry. Not here: verifying (`verify`), reading a log. Invariant: the hash of an entry is over
//! the bytes of its frame in the journal, wherever the entry is kept.

use placet_ledger::log::LogEntry;
use placet_ledger::proof::note::NoteName;
use placet_types::digest::Digest;
use serde::{Deserialize, Serialize};

use super::SealError;
use crate::journal::frame::{Header, encode, frame_bytes};

/// The form of an export that this build writes and reads.
pub(super) const EXPORT_VERSION: u16 = 1;

/// The first line of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportHeader {
    /// The form; another number is refused.
    pub placet_log: u16,
    /// The log, as its checkpoints call it.
    pub origin: NoteName,
    /// The first entry that follows.
    pub first_seq: u64,
    /// The peaks of the tree over the entries before it, the largest first.
    pub peaks: Vec<Digest>,
}

/// One entry of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportLine {
    /// Its place, from 1, without gaps.
    pub seq: u64,
    /// The epoch of the process that wrote it.
    pub epoch: u64,
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// What kind of payload it has.
    pub kind: u8,
    /// The last entry that was known to be durable when this one was made.
    pub durable_seq: u64,
    /// The hash of the entry before it; zeros for the first.
    #[serde(with = "hash_text")]
    pub prev: [u8; 32],
    /// The hash of this entry.
    #[serde(with = "hash_text")]
    pub hash: [u8; 32],
    /// The entry's JSON, byte for byte.
    pub payload: String,
}

impl From<ExportLine> for LogEntry {
    fn from(line: ExportLine) -> Self {
        Self {
            seq: line.seq,
            epoch: line.epoch,
            at_ms: line.at_ms,
            kind: line.kind,
            durable_seq: line.durable_seq,
            prev: line.prev,
            payload: line.payload.into_bytes(),
            hash: line.hash,
        }
    }
}

/// The chain hash that an entry has by its fields, whatever it says itself.
pub fn entry_hash(entry: &LogEntry) -> [u8; 32] {
    let header = Header {
        kind: entry.kind,
        seq: entry.seq,
        epoch: entry.epoch,
        at_ms: entry.at_ms,
        durable_seq: entry.durable_seq,
        prev: entry.prev,
    };
    let mut bytes = Vec::with_capacity(frame_bytes(entry.payload.len()));
    encode(&header, &entry.payload, &mut bytes)
}

/// The first line of an export of a whole log.
///
/// # Errors
/// It cannot be written.
pub fn export_header(origin: &NoteName) -> Result<String, SealError> {
    let (origin, peaks) = (origin.clone(), Vec::new());
    json(&ExportHeader { placet_log: EXPORT_VERSION, origin, first_seq: 1, peaks })
}

/// The line of an entry.
///
/// # Errors
/// Its payload is not text.
pub fn export_line(entry: &LogEntry) -> Result<String, SealError> {
    let payload = String::from_utf8(entry.payload.clone());
    let payload = payload.map_err(|_bytes| SealError::Export("its payload is not text"))?;
    json(&ExportLine {
        seq: entry.seq,
        epoch: entry.epoch,
        at_ms: entry.at_ms,
        kind: entry.kind,
        durable_seq: entry.durable_seq,
        prev: entry.prev,
        hash: entry.hash,
        payload,
    })
}

fn json<T: Serialize>(value: &T) -> Result<String, SealError> {
    serde_json::to_string(value).map_err(|_error| SealError::Export("it cannot be written as JSON"))
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
