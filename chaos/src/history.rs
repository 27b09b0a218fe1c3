//! The history of a run: everything that was asked, answered, done to the nodes and found at the end, in order.
//!
//! Owns the forms of its events, which are lines of JSON. It holds what was observed from outside, never what was meant.
//! Not here: judging it (`checker`), causing it.

use placet_testkit::moment::Moment;
use serde::{Deserialize, Serialize};

pub(crate) mod canonical;
pub(crate) mod fault;
pub(crate) mod file;
mod in_batch;
pub(crate) mod journal;
pub(crate) mod node;
mod over_mcp;
pub(crate) mod people;
pub(crate) mod probe;
pub(crate) mod request;

use fault::FaultEvent;
use node::NodeEvent;
use people::{GrantAsked, OperatorAct, VoteReply, VoteSent};
use probe::Probe;
use request::{Lost, Reply, Sent};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Event {
    #[serde(flatten)]
    pub(crate) at: Moment,
    #[serde(flatten)]
    pub(crate) what: What,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub(crate) enum What {
    /// The run begins: always the first event.
    Run(Box<RunInfo>),
    Sent(Box<Sent>),
    Reply(Box<Reply>),
    /// Its answer never came: its outcome is unknown to the client.
    Lost(Lost),
    VoteSent(VoteSent),
    VoteReply(VoteReply),
    GrantAsked(GrantAsked),
    Operator(OperatorAct),
    Node(NodeEvent),
    /// An injector begins. Its kind, and whether it succeeded, is in the events that follow.
    Injecting,
    Fault(FaultEvent),
    Phase(Phase),
    Probe(Box<Probe>),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunInfo {
    pub(crate) seed: u64,
    /// `embedded` or `postgres`.
    pub(crate) store: String,
    pub(crate) nodes: u32,
    pub(crate) keyed_window_ms: u64,
    pub(crate) settle_delay_ms: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub(crate) enum Phase {
    /// Load without faults.
    Load,
    /// Load with faults.
    Faults,
    /// No more faults: whatever is open has to be settled now.
    Quiet,
    /// Nothing more is sent; probes follow.
    Probing,
    /// The end. A history without it is incomplete.
    Ended,
}

/// The class of a tool, as its contract declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Class {
    /// Changes nothing.
    Read,
    /// Honours the token for a window.
    Keyed,
    /// Can be probed.
    Queryable,
    /// Neither.
    Opaque,
}
