//! The outbox: messages to people, until they are sent or given up.
//!
//! Owns the form in which the ledger keeps it. Not here: what a message says, nor to whom it goes (`placet-notify`). Invariant: how far the
//! log was read is recorded in the same commit as the messages found in it, so that a node that continues misses none.

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
    /// Until when reminders of approvals that end soon were sent.
    pub as_of: Timestamp,
}

/// The identity of a message.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageKey {
    /// The channel it goes over.
    pub channel: ChannelName,
    /// What it is about: the same whichever node reads the log.
    pub of: String,
}

/// A message to be sent.
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

/// The state of the outbox.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outbox {
    /// How far the log was read; `None` if no message was ever sent.
    pub read_to: Option<ReadTo>,
    /// What waits.
    pub waiting: Vec<WaitingMessage>,
}

impl Outbox {
    /// Applies a change.
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
