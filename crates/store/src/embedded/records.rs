//! Records read from the entries that hold them.
//!
//! Owns the way from the number of an entry to a record, with the records of the last entries at hand. Not here: which entry is
//! the last one that wrote a record (`index`). Records of archived entries stand in tables of the checkpoint. Invariant: a record is read from an entry whose checksum verifies, or is an error.

use std::sync::Arc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::{DIRECTIVE_VERSION, Directive};
use placet_ledger::record::EffectRecord;
use placet_ledger::run::RunRecord;
use placet_types::ids::{ApprovalId, RecordId};

use super::codec::{EffectEntry, Entry, Stored, decode_entry, decode_value};
use super::index::Change;
use super::keeper::Bodies;
use super::keys;
use super::recent::Recent;
use crate::journal::{JournalError, JournalReader};
use crate::rules::Op;

/// Reads records from durable entries.
#[derive(Debug)]
pub(super) struct Records {
    pub(super) journal: JournalReader,
    bodies: Bodies,
    effects: Recent<RecordId, EffectRecord>,
    approvals: Recent<ApprovalId, ApprovalRecord>,
}

impl Records {
    pub(super) fn new(journal: JournalReader, bodies: Bodies) -> Self {
        Self { journal, bodies, effects: Recent::default(), approvals: Recent::default() }
    }

    /// An effect record as an entry made it.
    pub(super) fn effect(
        &self,
        record_id: &RecordId,
        seq: u64,
    ) -> Result<Arc<EffectRecord>, String> {
        if let Some(record) = self.effects.get(record_id, seq) {
            return Ok(record);
        }
        let Some(entry) = self.entry(seq)? else {
            let record: EffectRecord = self.archived(&keys::effect(record_id), seq)?;
            let record = Arc::new(record);
            self.effects.put(*record_id, seq, Arc::clone(&record));
            return Ok(record);
        };
        let effects = entry.effects.into_iter().rev();
        let record = effects.filter_map(|effect| match effect {
            EffectEntry::Put(record) => Some(record),
            EffectEntry::Removed { .. } | EffectEntry::Forgotten { .. } => None,
        });
        let mut record = record.filter(|record| record.record_id == *record_id);
        let record = Arc::new(*record.next().ok_or_else(|| not_in(seq))?);
        self.effects.put(*record_id, seq, Arc::clone(&record));
        Ok(record)
    }

    /// An approval as an entry made it.
    pub(super) fn approval(
        &self,
        approval_id: &ApprovalId,
        seq: u64,
    ) -> Result<Arc<ApprovalRecord>, String> {
        if let Some(approval) = self.approvals.get(approval_id, seq) {
            return Ok(approval);
        }
        let Some(entry) = self.entry(seq)? else {
            let approval: ApprovalRecord = self.archived(&keys::approval(approval_id), seq)?;
            let approval = Arc::new(approval);
            self.approvals.put(approval_id.clone(), seq, Arc::clone(&approval));
            return Ok(approval);
        };
        let mut approvals = entry.approvals.into_iter().rev();
        let approval = approvals.find(|approval| approval.approval_id == *approval_id);
        let approval = Arc::new(approval.ok_or_else(|| not_in(seq))?);
        self.approvals.put(approval_id.clone(), seq, Arc::clone(&approval));
        Ok(approval)
    }

    /// Keeps the records of new entries at hand.
    pub(super) fn remember(&self, changes: &[Change]) {
        for change in changes {
            for op in &change.ops {
                match op {
                    Op::Effect { after, .. } => {
                        self.effects.put(after.record_id, change.seq, Arc::clone(after));
                    }
                    Op::Approval { after, .. } => {
                        let approval_id = after.approval_id.clone();
                        self.approvals.put(approval_id, change.seq, Arc::clone(after));
                    }
                    Op::Removed(_)
                    | Op::ApprovalGone(_)
                    | Op::Directive { .. }
                    | Op::DirectiveGone(_)
                    | Op::Run(_) => {}
                }
            }
        }
    }

    /// An entry; `None`: it was archived, and its segment is not at hand.
    fn entry(&self, seq: u64) -> Result<Option<Entry>, String> {
        let frame = match self.journal.read(seq) {
            Ok(frame) => frame,
            Err(JournalError::Archived { .. } | JournalError::Absent { .. }) => return Ok(None),
            Err(error) => return Err(error.to_string()),
        };
        decode_entry(frame.kind, &frame.payload)
            .map(Some)
            .map_err(|error| format!("entry {seq} cannot be read: {error}"))
    }

    /// The form of a record that an archived entry made.
    fn archived<T: serde::de::DeserializeOwned>(&self, key: &[u8], seq: u64) -> Result<T, String> {
        let value = self.bodies.get().get_filtered(key).map_err(|error| error.to_string())?;
        let stored = value.and_then(|value| decode_value(key, &value));
        let stored = stored.filter(|stored| stored.seq == seq);
        let stored = stored.ok_or_else(|| format!("entry {seq} is not there"))?;
        serde_json::from_slice(&stored.body)
            .map_err(|error| format!("a record of entry {seq} cannot be read: {error}"))
    }
}

fn not_in(seq: u64) -> String {
    format!("entry {seq} does not hold the record it should")
}

/// An entry of the approval service, which stands in the index itself.
pub(super) fn decode_directives(stored: &Stored) -> Result<Directive, String> {
    let refused = |why: String| format!("a directive of entry {} {why}", stored.seq);
    let entry: Directive = serde_json::from_slice(&stored.body)
        .map_err(|error| refused(format!("cannot be read: {error}")))?;
    if entry.version == DIRECTIVE_VERSION {
        Ok(entry)
    } else {
        Err(refused(format!("has the unknown version {}", entry.version)))
    }
}

/// A run, which stands in the index itself.
pub(super) fn decode_run(stored: &Stored) -> Result<RunRecord, String> {
    serde_json::from_slice(&stored.body)
        .map_err(|error| format!("a run of entry {} cannot be read: {error}", stored.seq))
}
