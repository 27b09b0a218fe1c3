//! The `process` section of a child process in a contract: what it may use, and whether it may become somebody else.
//!
//! Owns the form and its defaults. Does not enforce anything: whoever starts the process does. Invariant: what is not said is the careful
//! side where there is one, and no bound where only the operator can know it.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The bounds of a child process and of everything it starts. A core is never written, because it would hold the secrets of the environment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessFile {
    /// Whether programs with the rights of others (set-user-ID, file capabilities) give it those, as `sudo` and old `ping` do. Unless Placet is root,
    /// `command` itself is no such program but one that starts it: else no bounds could be set to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gains_privileges: bool,
    /// Its address space, in bytes; for each process by itself. Node and Java reserve far more than they use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<NonZeroU64>,
    /// Which connections it may open. Nothing bounds them, so a capability over a network needs `unconfined` here: the word of whoever reviewed the
    /// program that it goes only where it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<ChildNetwork>,
    /// Files and sockets that a process of it has open at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files_max: Option<NonZeroU64>,
    /// Processes and threads of the user it runs as, beyond which it starts no more; does not bind root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_max: Option<NonZeroU64>,
    /// Seconds of processor time of one process of it, after which it is killed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_max: Option<NonZeroU64>,
    /// The largest file that it writes, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes_max: Option<NonZeroU64>,
}

/// Which connections a child process may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChildNetwork {
    /// Any: what it opens does not go through Placet's egress.
    Unconfined,
}

impl ProcessFile {
    /// Whether nothing is said.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }
}
