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
use crate::journal::frame::{encode, frame_bytes};

/// The form of an export that this build writes.
const EXPORT_VERSION: u16 = 1;

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

/// The chain hash that an entry has by its fields, whatever it says itself.
pub fn entry_hash(entry: &LogEntry) -> [u8; 32] {
    encode(entry, &mut Vec::with_capacity(frame_bytes(entry.payload.len())))
}

/// The first line of an export of a whole log.
///
/// # Errors
/// It cannot be written.
pub fn export_header(origin: &NoteName) -> Result<String, SealError> {
    let (origin, peaks) = (origin.clone(), Vec::new());
    let header = ExportHeader { placet_log: EXPORT_VERSION, origin, first_seq: 1, peaks };
    let line = serde_json::to_string(&header);
    line.map_err(|_error| SealError::Export("it cannot be written as JSON"))
}

/// The line of an entry.
///
/// # Errors
/// Its payload is not text.
pub fn export_line(entry: &LogEntry) -> Result<String, SealError> {
    let line = serde_json::to_string(entry);
    line.map_err(|_error| SealError::Export("its payload is not text"))
}
