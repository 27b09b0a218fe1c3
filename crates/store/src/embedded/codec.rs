//! The stored formats: entries of the journal, and values of the state.
//!
//! Owns the versioned JSON of an entry (one for each commit), the checked envelope around a record of the state, and the state's own
//! metadata. Not here: what is kept where (`keys`).
//! Invariants: an unknown version is refused, never guessed at; a value is read only under the key it was written for.

use std::mem::{swap, take};

use serde::{Deserialize, Serialize};

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::audit::AuditEvent;
use placet_ledger::directive::Directive;
use placet_ledger::outbox::OutboxChange;
use placet_ledger::policies::PolicyState;
use placet_ledger::proof::Frontier;
use placet_ledger::reservation::Reservation;
use placet_ledger::run::{RunRecord, RunTaint};
use placet_ledger::store::{Admission, Changes, Durability, EffectChange};
use placet_types::digest::Digest;
use placet_types::ids::{ApprovalId, DirectiveId, TenantId};

use crate::journal::Place;

/// The version of [`Entry`] that this build writes and reads.
pub const ENTRY_VERSION: u16 = 1;

/// An entry with changes of records, runs or budgets.
pub(super) const KIND_CHANGE: u8 = 1;
/// An entry with audit events only: the state ignores it.
pub(super) const KIND_AUDIT: u8 = 2;

/// What one commit recorded.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The version of this entry; another number is refused.
    pub version: u16,
    /// The new versions of effect records, or their removal, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub effects: Vec<EffectChange>,
    /// The new versions of approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalRecord>,
    /// The new versions of entries of the approval service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directives: Vec<Directive>,
    /// The standing grant that was used once more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spend: Option<DirectiveId>,
    /// Runs opened, unless they were open already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunRecord>,
    /// What was taken from a run's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserve: Option<Reservation>,
    /// What was returned to a run's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refund: Option<Reservation>,
    /// Taint added to runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taint: Vec<RunTaint>,
    /// Policies that became active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activate: Option<PolicyState>,
    /// Contents that were deleted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget_content: Vec<(TenantId, Digest)>,
    /// Approvals that were dropped, with their last revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget_approvals: Vec<(ApprovalId, u64)>,
    /// Entries of the approval service that were dropped, with their last revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub forget_directive: Vec<(DirectiveId, u64)>,
    /// Changes to the messages for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outbox: Option<Box<OutboxChange>>,
    /// Events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit: Vec<AuditEvent>,
}

impl Entry {
    /// An entry that records nothing yet.
    fn new() -> Self {
        Self { version: ENTRY_VERSION, ..Self::default() }
    }

    /// Swaps the recorded parts between this entry and `changes`.
    fn swap(&mut self, changes: &mut Changes) {
        swap(&mut self.effects, &mut changes.effects);
        swap(&mut self.approvals, &mut changes.approvals);
        swap(&mut self.directives, &mut changes.directives);
        swap(&mut self.spend, &mut changes.spend);
        swap(&mut self.runs, &mut changes.runs);
        swap(&mut self.reserve, &mut changes.reserve);
        swap(&mut self.refund, &mut changes.refund);
        swap(&mut self.taint, &mut changes.taint);
        swap(&mut self.activate, &mut changes.activate);
        swap(&mut self.forget_content, &mut changes.forget_content);
        swap(&mut self.forget_approvals, &mut changes.forget_approvals);
        swap(&mut self.forget_directive, &mut changes.forget_directive);
        swap(&mut self.outbox, &mut changes.outbox);
        swap(&mut self.audit, &mut changes.audit);
    }

    /// The changes that it records.
    pub(super) fn into_changes(mut self) -> Changes {
        let mut changes = Changes::new(Durability::Synced, Admission::Completion);
        self.swap(&mut changes);
        changes
    }
}

/// The kind and the payload of the entry that `changes` become. `changes` is the same afterwards.
pub(crate) fn encode_entry(changes: &mut Changes) -> Result<(u8, Vec<u8>), serde_json::Error> {
    let mut entry = Entry::new();
    entry.swap(changes);
    let payload = serde_json::to_vec(&entry);
    let audit = take(&mut entry.audit);
    let kind = if entry == Entry::new() { KIND_AUDIT } else { KIND_CHANGE };
    entry.audit = audit;
    entry.swap(changes);
    Ok((kind, payload?))
}

/// Why this build cannot read these bytes.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    /// Of a version that this build does not know.
    #[error("unknown version {0}")]
    Version(u16),
    /// Of a kind that this build does not know.
    #[error("unknown kind {0}")]
    Kind(u8),
    /// Not in the format that it states.
    #[error("malformed: {0}")]
    Malformed(#[from] serde_json::Error),
}

#[derive(Deserialize)]
struct VersionOnly {
    version: u16,
}

/// Decodes an entry.
///
/// # Errors
/// [`DecodeError`] when the bytes cannot be read.
pub fn decode_entry(kind: u8, payload: &[u8]) -> Result<Entry, DecodeError> {
    if kind != KIND_CHANGE && kind != KIND_AUDIT {
        return Err(DecodeError::Kind(kind));
    }
    match serde_json::from_slice::<Entry>(payload) {
        Ok(entry) if entry.version == ENTRY_VERSION => Ok(entry),
        Ok(entry) => Err(DecodeError::Version(entry.version)),
        // A later version may have fields that this build does not know: say so rather than "malformed".
        Err(error) => match serde_json::from_slice::<VersionOnly>(payload) {
            Ok(found) if found.version != ENTRY_VERSION => Err(DecodeError::Version(found.version)),
            Ok(_) | Err(_) => Err(error.into()),
        },
    }
}

const MAGIC: [u8; 4] = *b"PLIX";
const VALUE_VERSION: u8 = 4;

/// A record of the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stored {
    /// The entry that wrote this version.
    pub(super) seq: u64,
    /// Its JSON.
    pub(super) body: Vec<u8>,
}

/// The envelope: magic, version, sequence number, CRC-32C over the key and all of these and the body, body.
pub(super) fn encode_value(key: &[u8], seq: u64, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(body.len().saturating_add(17));
    out.extend_from_slice(&MAGIC);
    out.push(VALUE_VERSION);
    out.extend_from_slice(&seq.to_le_bytes());
    let crc = checksum(key, &out, body);
    out.extend_from_slice(&crc.to_le_bytes());
    out.extend_from_slice(body);
    out
}

/// Opens the envelope; `None`: this was not written under this key.
pub(super) fn decode_value(key: &[u8], bytes: &[u8]) -> Option<Stored> {
    let (head, rest) = bytes.split_first_chunk::<13>()?;
    let (crc, body) = rest.split_first_chunk::<4>()?;
    if checksum(key, head, body) != u32::from_le_bytes(*crc) {
        return None;
    }
    let (magic, fields) = head.split_first_chunk::<4>()?;
    let ([version], seq) = fields.split_first_chunk::<1>()?;
    if *magic != MAGIC || *version != VALUE_VERSION {
        return None;
    }
    Some(Stored { seq: u64::from_le_bytes(seq.try_into().ok()?), body: body.to_vec() })
}

fn checksum(key: &[u8], head: &[u8], body: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(crc32c::crc32c(key), head), body)
}

/// The place of a content, as the value of its key.
pub(super) fn encode_place(place: &Place) -> Vec<u8> {
    let mut out = place.segment.to_be_bytes().to_vec();
    out.extend_from_slice(&place.offset.to_be_bytes());
    out.extend_from_slice(&place.bytes.to_be_bytes());
    out
}

/// Reads such a value; `None`: it is not one.
pub(super) fn decode_place(bytes: &[u8]) -> Option<Place> {
    let (segment, rest) = bytes.split_first_chunk::<8>()?;
    let (offset, rest) = rest.split_first_chunk::<8>()?;
    Some(Place {
        segment: u64::from_be_bytes(*segment),
        offset: u64::from_be_bytes(*offset),
        bytes: u32::from_be_bytes(rest.try_into().ok()?),
    })
}

/// The state's own metadata.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Meta {
    /// The last entry applied to it; 0: none.
    pub(super) applied_seq: u64,
    /// Its hash: a state of another journal has a different one.
    pub(super) head: [u8; 32],
    /// How many keys there are besides this one.
    pub(super) keys: u64,
    /// The sum over those keys and their values.
    pub(super) sum: u64,
    /// The right edge of the Merkle tree over the entries.
    pub(super) frontier: Frontier,
}

impl Meta {
    pub(super) fn encode(&self, key: &[u8]) -> Vec<u8> {
        let mut body = self.head.to_vec();
        body.extend_from_slice(&self.keys.to_le_bytes());
        body.extend_from_slice(&self.sum.to_le_bytes());
        body.extend_from_slice(&self.frontier.to_bytes());
        encode_value(key, self.applied_seq, &body)
    }

    pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Option<Self> {
        let stored = decode_value(key, bytes)?;
        let (head, rest) = stored.body.split_first_chunk::<32>()?;
        let (keys, rest) = rest.split_first_chunk::<8>()?;
        let (sum, frontier) = rest.split_first_chunk::<8>()?;
        Some(Self {
            applied_seq: stored.seq,
            head: *head,
            keys: u64::from_le_bytes(*keys),
            sum: u64::from_le_bytes(*sum),
            frontier: Frontier::from_bytes(frontier)?,
        })
    }
}
