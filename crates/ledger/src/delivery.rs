//! What the sender of messages notes in the chain: what went out, what was given up, how far it has read.
//!
//! Owns the form of these notes. Does not own the sending, nor what is sent. Invariant: the chain is the only memory of the sender, so
//! that whichever node goes on knows what went out before.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use placet_types::{clock::Timestamp, ids::ChannelName};

/// The most messages that a [`DeliveryMark::ReadTo`] names as not sent yet.
pub const WAITING_MAX: usize = 512;

/// One note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "mark", rename_all = "snake_case", deny_unknown_fields)]
pub enum DeliveryMark {
    /// The receiver took them.
    Sent {
        /// Over which channel.
        channel: ChannelName,
        /// What they are of.
        of: Vec<String>,
    },
    /// Nobody took them for as long as it is tried, or the receiver wants none.
    GivenUp {
        /// Over which channel.
        channel: ChannelName,
        /// What they are of.
        of: Vec<String>,
    },
    /// Everything up to here was looked at, and is sent or given up but for what still waits.
    ReadTo {
        /// The last entry that was looked at, of each log.
        places: BTreeMap<String, u64>,
        /// Up to when approvals that end soon were told of.
        as_of: Timestamp,
        /// What waits still: the entries that tell of it, by log.
        waiting: BTreeMap<String, Vec<WaitingAt>>,
    },
}

/// A message that waits, by the entry that tells of it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WaitingAt {
    /// The entry.
    pub seq: u64,
    /// Over which channel.
    pub channel: ChannelName,
}
