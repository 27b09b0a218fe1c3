//! Changes of nodes.

use serde::{Deserialize, Serialize};

/// A change of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// Which node, from 0.
    pub node: u32,
    /// What.
    #[serde(flatten)]
    pub change: NodeChange,
}

/// The kind of change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub enum NodeChange {
    /// Its process was started.
    Started {
        /// The process.
        pid: u32,
    },
    /// It takes calls.
    Ready {
        /// How long its recovery took, in milliseconds.
        after_ms: u64,
    },
    /// It refused to start, with a message.
    Refused {
        /// The message.
        why: String,
    },
    /// SIGKILL.
    Killed,
    /// SIGSTOP.
    Paused,
    /// SIGCONT.
    Resumed,
    /// SIGTERM.
    StopAsked,
    /// It ended after it was asked to.
    Stopped {
        /// Its exit code.
        code: Option<i32>,
    },
    /// It ended without being asked to: fail-stop.
    Exited {
        /// Its exit code.
        code: Option<i32>,
        /// The end of its output.
        why: String,
    },
    /// Its clock was set off against the machine's.
    ClockShifted {
        /// By how much, in milliseconds.
        by_ms: i64,
    },
}
