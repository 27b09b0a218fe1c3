//! The `process` section of a child process in a contract: what it may use.
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

/// The limits of a child process and of everything it starts. It gains no privileges by set-user-ID programs or file capabilities. Core
/// dumps are never written, because they would contain the secrets of the environment.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProcessFile {
    /// The maximum address space of each process, in bytes. Node and Java reserve far more than they use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes_max: Option<NonZeroU64>,
    /// The connections that the process may open. Absent: no TCP connections and no TCP ports, where the kernel can enforce that (Landlock;
    /// Linux 6.7 or later); UDP and Unix sockets are not covered. A capability over a network needs `unconfined`: the reviewer of the
    /// program vouches that it connects only where it should.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<ChildNetwork>,
    /// The files that the process may use, where the kernel can enforce that (Landlock; Linux 6.2 or later). Absent: those that its user
    /// may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<ChildFiles>,
    /// The maximum number of files and sockets that each process has open at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_files_max: Option<NonZeroU64>,
    /// The maximum number of processes and threads of the user that the process runs as; beyond it, no more can be started. Does not limit
    /// root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes_max: Option<NonZeroU64>,
    /// The maximum processor time of each process, in seconds. The process is killed after that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_s_max: Option<NonZeroU64>,
    /// The maximum size of a file that the process writes, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_bytes_max: Option<NonZeroU64>,
}

/// The connections that a child process may open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChildNetwork {
    /// Any connection. It does not go through Placet's egress.
    Unconfined,
}

/// The files that a child process may use: everything below these paths, and nothing else. A path is absolute or relative to the data
/// folder, and must exist when the process starts. At most 64 paths in all.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ChildFiles {
    /// Paths that the process may read and execute. They must include its own program, its interpreter and its libraries.
    pub read: Vec<String>,
    /// Paths that the process may read, execute and change.
    pub write: Vec<String>,
}

impl ProcessFile {
    /// Checks the section: the key of a broken rule, and what is wrong.
    pub(super) fn check(&self) -> Result<(), (&'static str, String)> {
        let Some(files) = &self.files else {
            return Ok(());
        };
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
    fn files_are_bounded() {
        let paths = |count: usize| vec!["/usr"; count];
        for (process, place) in [
            (json!({}), None),
            (json!({ "files": {} }), None),
            (json!({ "files": { "read": paths(60), "write": paths(4) } }), None),
            (json!({ "files": { "read": paths(60), "write": paths(5) } }), Some("files")),
            (json!({ "files": { "read": [""] } }), Some("files.read")),
            (json!({ "files": { "write": ["a\u{0}b"] } }), Some("files.write")),
            (json!({ "files": { "write": ["a".repeat(4_097)] } }), Some("files.write")),
        ] {
            assert_eq!(refused(process.clone()), place, "{process}");
        }
        let unknown = json!({ "files": { "execute": ["/usr"] } });
        assert!(serde_json::from_value::<ProcessFile>(unknown).is_err());
    }
}
