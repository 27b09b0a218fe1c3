//! Changes of nodes.

use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeEvent {
    pub(crate) node: u32,
    #[serde(flatten)]
    pub(crate) change: NodeChange,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum NodeChange {
    Started {
        pid: u32,
    },
    /// It takes calls.
    Ready {
        /// How long its recovery took, in milliseconds.
        after_ms: u64,
    },
    /// It refused to start, with a message.
    Refused {
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
        code: Option<i32>,
    },
    /// It ended without being asked to: fail-stop.
    Exited {
        code: Option<i32>,
        /// The end of its output.
        why: String,
    },
    /// Its clock was set off against the machine's.
    ClockShifted {
        by_ms: i64,
    },
}
