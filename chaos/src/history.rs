//! The history of a run: everything that was asked, answered, done to the nodes and found at the end, in order.
//!
//! Owns the forms of its events, which are lines of JSON. It holds what was observed from outside, never what was meant.
//! Not here: judging it (`checker`), causing it.

use placet_testkit::moment::Moment;
use serde::{Deserialize, Serialize};

pub mod canonical;
pub mod fault;
pub mod file;
mod in_batch;
pub mod journal;
pub mod node;
mod over_mcp;
pub mod people;
pub mod probe;
pub mod request;

use fault::FaultEvent;
use node::NodeEvent;
use people::{GrantAsked, OperatorAct, VoteReply, VoteSent};
use probe::Probe;
use request::{Lost, Reply, Sent};

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// When, on this machine.
    #[serde(flatten)]
    pub at: Moment,
    /// What.
    #[serde(flatten)]
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum What {
    /// The run begins: always the first event.
    Run(Box<RunInfo>),
    /// A request was sent.
    Sent(Box<Sent>),
    /// Its answer came.
    Reply(Box<Reply>),
    /// Its answer never came: its outcome is unknown to the client.
    Lost(Lost),
    /// Somebody decided on an approval.
    VoteSent(VoteSent),
    /// The answer to a decision.
    VoteReply(VoteReply),
    /// Somebody requested a standing grant.
    GrantAsked(GrantAsked),
    /// An operator acted on a record.
    Operator(OperatorAct),
    /// A node changed.
    Node(NodeEvent),
    /// An injector begins. Its kind, and whether it succeeded, is in the events that follow.
    Injecting,
    /// A fault was injected.
    Fault(FaultEvent),
    /// The run entered another phase.
    Phase(Phase),
    /// A final probe.
    Probe(Box<Probe>),
}

/// The parameters of the run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunInfo {
    /// The seed of the schedule.
    pub seed: u64,
    /// `embedded` or `postgres`.
    pub store: String,
    /// How many nodes.
    pub nodes: u32,
    /// How long the witness honours the token of a keyed tool, in milliseconds.
    pub keyed_window_ms: u64,
    /// After how long «not found» means «did not happen», in milliseconds.
    pub settle_delay_ms: u64,
}

/// The phases of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "snake_case")]
pub enum Phase {
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
pub enum Class {
    /// Changes nothing.
    Read,
    /// Honours the token for a window.
    Keyed,
    /// Can be probed.
    Queryable,
    /// Neither.
    Opaque,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Keyed, Self::Queryable, Self::Opaque];

    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Keyed => "keyed",
            Self::Queryable => "queryable",
            Self::Opaque => "opaque",
        }
    }
}
