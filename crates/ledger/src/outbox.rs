//! The outbox: what people are to be told of, until it is sent or given up.
//!
//! Owns the form in which the ledger keeps it. Not here: what a message says, nor to whom it goes (`placet-notify`). Invariant: how far the
//! log was read is kept in the same commit as what was found in it, so that a node that goes on misses no message.

use std::collections::{BTreeMap, BTreeSet};

use placet_types::{clock::Timestamp, ids::ChannelName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How far the log was read for messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadTo {
    /// The last entry that was read, of each log.
    pub places: BTreeMap<String, u64>,
    /// Up to when people were told of approvals that end soon.
    pub as_of: Timestamp,
}

/// Which message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageKey {
    /// The channel it goes over.
    pub channel: ChannelName,
    /// What it is of: the same whichever node reads the log.
    pub of: String,
}

/// A message that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingMessage {
    /// Which.
    pub key: MessageKey,
    /// What it says, in the sender's own form.
    pub body: Value,
}

/// What one commit changes of the outbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OutboxChange {
    /// How far the log was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_to: Option<ReadTo>,
    /// Messages that are to be sent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub put: Vec<WaitingMessage>,
    /// Messages that were sent or given up.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub done: BTreeSet<MessageKey>,
}

/// The outbox as it stands.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outbox {
    /// How far the log was read; nothing: nobody was ever told of anything.
    pub read_to: Option<ReadTo>,
    /// What waits.
    pub waiting: Vec<WaitingMessage>,
}

impl Outbox {
    /// Takes a change over.
    pub fn take(&mut self, change: &OutboxChange) {
        if let Some(read_to) = &change.read_to {
            self.read_to = Some(read_to.clone());
        }
        let is_put = |key: &MessageKey| change.put.iter().any(|put| put.key == *key);
        self.waiting.retain(|one| !change.done.contains(&one.key) && !is_put(&one.key));
        let waits = change.put.iter().filter(|put| !change.done.contains(&put.key));
        self.waiting.extend(waits.cloned());
    }
}
