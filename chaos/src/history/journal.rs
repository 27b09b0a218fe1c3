//! Entries of the ledger's log as they were exported.
//!
//! Owns the reduction of an exported entry to what the checker looks at. Reads plain JSON: none of the ledger's types, so that a
//! mistake in them is not made twice.

use anyhow::{Result, anyhow};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod directive;
mod image;

pub(crate) use directive::DirectiveImage;
#[cfg(test)]
pub(crate) use directive::GrantImage;
pub(crate) use image::{ApprovalImage, AttemptImage, RecordImage, Resolved};

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub(crate) struct JournalEntry {
    /// The log: one for an embedded ledger, one for each epoch of a shared one.
    pub(crate) log: String,
    /// Its number in the log, from 1.
    pub(crate) seq: u64,
    pub(crate) epoch: u64,
    /// When, by the ledger's clock.
    pub(crate) at_ms: i64,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) hash: String,
    /// The hash of the entry before.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) prev: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) changes: Vec<RecordChange>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) approvals: Vec<ApprovalImage>,
    /// Changes of entries of the approval service.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) directives: Vec<DirectiveImage>,
    /// The standing grant that was used once more.
    pub(crate) spend: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) audit: Vec<AuditImage>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RecordChange {
    /// It became this.
    Put(Box<RecordImage>),
    /// Its key became free again: nothing had happened.
    Removed { record_id: String, rev: u64 },
    /// It was forgotten, long after its end.
    Forgotten { record_id: String, rev: u64 },
}

impl RecordChange {
    pub(crate) fn record_id(&self) -> &str {
        match self {
            Self::Put(image) => &image.record_id,
            Self::Removed { record_id, .. } | Self::Forgotten { record_id, .. } => record_id,
        }
    }

    pub(crate) const fn rev(&self) -> u64 {
        match self {
            Self::Put(image) => image.rev,
            Self::Removed { rev, .. } | Self::Forgotten { rev, .. } => *rev,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AuditImage {
    pub(crate) kind: String,
    pub(crate) tenant: Option<String>,
    pub(crate) call_id: Option<String>,
    pub(crate) record_id: Option<String>,
    pub(crate) code: Option<String>,
    /// Digests by name, such as `bundle`.
    #[serde(default, skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub(crate) digests: std::collections::BTreeMap<String, String>,
}

impl JournalEntry {
    /// Reads an exported entry: its head (`seq`, `epoch`, `at_ms`, `hash`, `prev`) and its content under `payload`.
    pub(crate) fn read(log: &str, line: &Value) -> Result<Self> {
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
