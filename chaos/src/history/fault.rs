//! The faults by their numbers.
//!
//! Owns their list, with a line about each: F1 to F24, without those that only other levels can inject (F12, F13, F21). Causes none.

use serde::{Deserialize, Serialize};

use crate::listed::listed;

listed! {
    /// A kind of fault.
    #[derive(clap::ValueEnum, Serialize, Deserialize)]
    #[value(rename_all = "verbatim")]
    FaultKind {
        F1 = "F1", "duplicates of the same request";
        F2 = "F2", "duplicates with a changed argument, or another form of the same";
        F3 = "F3", "the same key from another principal or tenant";
        F4 = "F4", "kill during a call";
        F5 = "F5", "kill during recovery";
        F6 = "F6", "client gone in the middle of a call";
        F7 = "F7", "the upstream hangs, resets, lies or answers twice";
        F8 = "F8", "the process of the upstream ends";
        F9 = "F9", "a node paused for longer than its lease";
        F10 = "F10", "clock jumps";
        F11 = "F11", "disk errors, full disk, slow disk";
        F14 = "F14", "votes twice, late, in conflict or by the requester";
        F15 = "F15", "policy or credential changed between gate and dispatch";
        F16 = "F16", "«not found», and then the effect appears";
        F17 = "F17", "the window of a keyed token passes before recovery";
        F18 = "F18", "a retry after the result's retention";
        F19 = "F19", "a huge result, or one with secrets";
        F20 = "F20", "the database: killed backends, failover, exhausted pool";
        F22 = "F22", "overload";
        F23 = "F23", "a graceful stop in all states";
        F24 = "F24", "the upstream refuses a call after its effect";
    }
}

/// A fault that really happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct FaultEvent {
    pub(crate) kind: FaultKind,
    /// The node, if it happened at one.
    pub(crate) node: Option<u32>,
    pub(crate) detail: String,
}
