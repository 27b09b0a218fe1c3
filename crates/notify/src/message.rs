//! One message: its content, its recipient, its identity.
//!
//! Owns identity and content; the form for a channel is `render`'s. Invariant: the identity follows from the content and the channel
//! alone, so that a message that is sent twice is recognised.

use std::{collections::BTreeSet, sync::Arc};

use placet_types::{clock::Timestamp, digest::DigestBuilder, ids::ChannelName};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::notice::Notice;
pub use crate::route::Scope;

/// A notice, and how much of it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// The notice.
    pub notice: Arc<Notice>,
    /// How much of it.
    pub scope: Scope,
}

/// The content of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// One notice.
    One(Told),
    /// The gathered notices.
    Digest(Vec<Told>),
    /// A test of the channel.
    Test,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Its identity: the same each time it is sent.
    pub id: String,
    /// When its event happened, or the digest was due.
    pub at: Timestamp,
    /// What it says.
    pub content: Content,
}

impl Message {
    /// A message with one notice.
    pub fn one(channel: &ChannelName, told: Told) -> Self {
        let id = identity(channel, std::iter::once(told.notice.of.as_str()));
        Self { id, at: told.notice.at, content: Content::One(told) }
    }

    /// A message with the notices gathered until `due`.
    pub fn digest(channel: &ChannelName, due: Timestamp, told: Vec<Told>) -> Self {
        let id = identity(channel, told.iter().map(|told| told.notice.of.as_str()));
        Self { id, at: due, content: Content::Digest(told) }
    }

    /// A message that tests the channel.
    pub fn test(channel: &ChannelName, at: Timestamp) -> Self {
        let id = identity(channel, std::iter::once(at.to_string().as_str()));
        Self { id, at, content: Content::Test }
    }

    /// Its notices.
    pub fn told(&self) -> &[Told] {
        match &self.content {
            Content::One(told) => std::slice::from_ref(told),
            Content::Digest(told) => told,
            Content::Test => &[],
        }
    }
}

fn identity<'a>(channel: &ChannelName, of: impl Iterator<Item = &'a str>) -> String {
    let builder =
        DigestBuilder::new("placet.message.v1").field("channel", channel.as_str().as_bytes());
    let builder = of.fold(builder, |builder, of| builder.field("of", of.as_bytes()));
    let digest = hex::encode(builder.finish().as_bytes());
    let half: String = digest.chars().take(32).collect();
    format!("msg_{half}")
}

/// Arguments as approvers see them.
#[derive(Debug, Clone, PartialEq)]
pub struct Preview {
    /// The arguments, with sensitive values masked.
    pub arguments: Value,
    /// Where they are masked, as JSON Pointers (RFC 6901).
    pub masked: BTreeSet<String>,
}

/// A message to be delivered: with the arguments, if the channel shows them.
#[derive(Debug, Clone)]
pub struct Letter {
    /// The message.
    pub message: Message,
    /// The arguments as approvers see them.
    pub preview: Option<Preview>,
}

impl From<Message> for Letter {
    /// Without arguments.
    fn from(message: Message) -> Self {
        Self { message, preview: None }
    }
}
