//! The `process` section of a child process in a contract: what it may use, and whether it may become somebody else.
//!
//! Owns the form and its defaults. Enforces nothing: the code that starts the process does. Invariant: an absent key means the safe
//! choice if there is one, and no limit where only the operator can know it.

use std::num::NonZeroU64;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The most paths in `files`.
const PATHS_MAX: usize = 64;
/// The longest of them, in bytes (`PATH_MAX` of Linux).
const PATH_BYTES_MAX: usize = 4_096;

/// The bounds of a child process and of everything it starts. A core is never written, because it would hold the secrets of the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessFile {
    /// Whether programs with the rights of others (set-user-ID, file capabilities) give it those, as `sudo` and old `ping` do. Unless Placet is root,
    /// `command` itself is no such program but one that starts it: else no bounds could be set to it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub gains_privileges: bool,
    /// Its address space, in bytes; for each process by itself. Node and Java reserve far more than they use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<NonZeroU64>,
    /// Which connections it may open. Absent: it opens no TCP connection and binds no TCP port, where the kernel can enforce that (Landlock; Linux 6.7 or
    /// later); UDP and Unix sockets are not covered. A capability over a network needs `unconfined` here: the word of the one who reviewed the program that
    /// it goes only where it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<ChildNetwork>,
    /// Which files it may use, where the kernel can enforce that (Landlock; Linux 6.2 or later). Absent: those that its user may use. Not together
    /// with `gains_privileges`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<ChildFiles>,
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

/// Which files a child process may use: what is below these paths, and nothing else. A path is absolute, or relative to the data folder, and is
/// there when the process starts. At most 64 in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChildFiles {
    /// What it may read and execute: its own program, its interpreter and its libraries too.
    pub read: Vec<String>,
    /// What it may read, execute and change.
    pub write: Vec<String>,
}

impl ProcessFile {
    /// Checks the section: the key of a broken rule, and what is wrong.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let Some(files) = &self.files else {
            return Ok(());
        };
        if self.gains_privileges {
            let problem = "cannot be enforced on a process with `gains_privileges`: remove one";
            return Err(("files", problem.to_owned()));
        }
        if files.read.len().saturating_add(files.write.len()) > PATHS_MAX {
            return Err(("files", format!("names more than {PATHS_MAX} paths")));
        }
        for (key, paths) in [("files.read", &files.read), ("files.write", &files.write)] {
            let is_wrong = |path: &String| {
                path.is_empty() || path.len() > PATH_BYTES_MAX || path.contains('\0')
            };
            if paths.iter().any(is_wrong) {
                let problem =
                    format!("a path must have 1 to {PATH_BYTES_MAX} bytes and no zero byte");
                return Err((key, problem));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::ProcessFile;

    fn refused(process: Value) -> Option<&'static str> {
        let process: ProcessFile = serde_json::from_value(process).unwrap();
        process.check().err().map(|(key, _)| key)
    }

    #[test]
    fn files_are_bounded_and_need_a_process_without_more_rights() {
        let paths = |count: usize| vec!["/usr"; count];
        for (process, place) in [
            (json!({}), None),
            (json!({ "files": {} }), None),
            (json!({ "files": { "read": paths(60), "write": paths(4) } }), None),
            (json!({ "files": { "read": paths(60), "write": paths(5) } }), Some("files")),
            (json!({ "files": { "read": [""] } }), Some("files.read")),
            (json!({ "files": { "write": ["a\u{0}b"] } }), Some("files.write")),
            (json!({ "files": { "write": ["a".repeat(4_097)] } }), Some("files.write")),
            (json!({ "files": { "read": ["/usr"] }, "gains_privileges": true }), Some("files")),
        ] {
            assert_eq!(refused(process.clone()), place, "{process}");
        }
        let unknown = json!({ "files": { "execute": ["/usr"] } });
        assert!(serde_json::from_value::<ProcessFile>(unknown).is_err());
    }
}
