//! Entries of the ledger's log as they were exported.
//!
//! Owns the reduction of an exported entry to what the checker looks at. Reads plain JSON: none of the ledger's types, so that a
//! mistake in them is not made twice.

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod directive;
mod image;

pub use directive::{DirectiveImage, GrantImage};
pub use image::{ApprovalImage, AttemptImage, RecordImage, Resolved};

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct JournalEntry {
    /// The log: one for an embedded ledger, one for each epoch of a shared one.
    pub log: String,
    /// Its number in the log, from 1.
    pub seq: u64,
    /// The epoch that wrote it.
    pub epoch: u64,
    /// When, by the ledger's clock.
    pub at_ms: i64,
    /// The hash of this entry.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub hash: String,
    /// The hash of the entry before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prev: String,
    /// Changes of records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<RecordChange>,
    /// Changes of approvals.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub approvals: Vec<ApprovalImage>,
    /// Changes of entries of the approval service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub directives: Vec<DirectiveImage>,
    /// The standing grant that was used once more.
    pub spend: Option<String>,
    /// Events.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub audit: Vec<AuditImage>,
}

/// A change of a record.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordChange {
    /// It became this.
    Put(Box<RecordImage>),
    /// Its key became free again: nothing had happened.
    Removed {
        /// The record.
        record_id: String,
        /// Its last revision.
        rev: u64,
    },
    /// It was forgotten, long after its end.
    Forgotten {
        /// The record.
        record_id: String,
        /// Its last revision.
        rev: u64,
    },
}

impl RecordChange {
    /// The record.
    pub fn record_id(&self) -> &str {
        match self {
            Self::Put(image) => &image.record_id,
            Self::Removed { record_id, .. } | Self::Forgotten { record_id, .. } => record_id,
        }
    }

    /// Its revision.
    pub const fn rev(&self) -> u64 {
        match self {
            Self::Put(image) => image.rev,
            Self::Removed { rev, .. } | Self::Forgotten { rev, .. } => *rev,
        }
    }
}

/// An event of the audit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditImage {
    /// What happened.
    pub kind: String,
    /// In which tenant.
    pub tenant: Option<String>,
    /// To which call.
    pub call_id: Option<String>,
    /// Under which record.
    pub record_id: Option<String>,
    /// With which code.
    pub code: Option<String>,
    /// Digests by name, such as `bundle`.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub digests: std::collections::BTreeMap<String, String>,
}

impl JournalEntry {
    /// Reads an exported entry: its head (`seq`, `epoch`, `at_ms`, `hash`, `prev`) and its content under `payload`.
    ///
    /// # Errors
    /// When something that the checker needs is missing.
    pub fn read(log: &str, line: &Value) -> Result<Self> {
        let missing = |name: &str| anyhow!("an exported entry has no usable `{name}`");
        let payload = line.get("payload").ok_or_else(|| missing("payload"))?;
        let list = |name: &str| payload.get(name).and_then(Value::as_array).into_iter().flatten();
        let text = |name: &str| line.get(name).and_then(Value::as_str).map(str::to_owned);
        let number = |name: &str| line.get(name).and_then(Value::as_u64);
        Ok(Self {
            log: log.to_owned(),
            seq: number("seq").ok_or_else(|| missing("seq"))?,
            epoch: number("epoch").ok_or_else(|| missing("epoch"))?,
            at_ms: line.get("at_ms").and_then(Value::as_i64).ok_or_else(|| missing("at_ms"))?,
            hash: text("hash").unwrap_or_default(),
            prev: text("prev").unwrap_or_default(),
            changes: list("effects")
                .map(|change| change_of(change).ok_or_else(|| missing("effects")))
                .collect::<Result<_, _>>()?,
            approvals: list("approvals")
                .map(|one| ApprovalImage::read(one).ok_or_else(|| missing("approvals")))
                .collect::<Result<_, _>>()?,
            directives: list("directives")
                .map(|one| DirectiveImage::read(one).ok_or_else(|| missing("directives")))
                .collect::<Result<_, _>>()?,
            spend: payload.get("spend").and_then(Value::as_str).map(str::to_owned),
            audit: list("audit")
                .map(|one| AuditImage::deserialize(one).map_err(|_unusable| missing("audit")))
                .collect::<Result<_, _>>()?,
        })
    }
}

fn change_of(change: &Value) -> Option<RecordChange> {
    let gone = |name: &str| {
        let gone = change.get(name)?;
        Some((gone.get("record_id")?.as_str()?.to_owned(), gone.get("rev")?.as_u64()?))
    };
    if let Some(record) = change.get("put") {
        return RecordImage::read(record).map(|image| RecordChange::Put(Box::new(image)));
    }
    if let Some((record_id, rev)) = gone("removed") {
        return Some(RecordChange::Removed { record_id, rev });
    }
    let (record_id, rev) = gone("forgotten")?;
    Some(RecordChange::Forgotten { record_id, rev })
}

#[cfg(test)]
mod tests;
