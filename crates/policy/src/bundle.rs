//! A bundle of policies as text, and what can be wrong with it.
//!
//! Owns the source form and the problem form. Does not read the folder (the binary does) nor interpret the policies: that
//! is [`crate::snapshot::Snapshot::compile`].

use std::fmt;

use placet_types::digest::{Digest, DigestBuilder};
use serde::Serialize;

/// The most files a bundle may have.
pub const FILES_MAX: usize = 1_000;
/// The longest policy file, in bytes.
pub const FILE_BYTES_MAX: usize = 1_048_576;
/// The most policies a bundle may have.
pub const POLICIES_MAX: usize = 10_000;

/// One `*.cedar` file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyFile {
    /// Its name within the bundle's folder.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The policies of a bundle, as files in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BundleSource {
    /// The files.
    pub files: Vec<PolicyFile>,
}

impl BundleSource {
    /// Puts the files in the order of their names, on which the digest depends.
    pub fn new(files: impl IntoIterator<Item = PolicyFile>) -> Self {
        let mut files: Vec<PolicyFile> = files.into_iter().collect();
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Self { files }
    }

    /// The digest that names this bundle in decisions and audits: over every file's name and text.
    pub fn digest(&self) -> Digest {
        let mut sorted: Vec<&PolicyFile> = self.files.iter().collect();
        sorted.sort_by(|a, b| a.name.cmp(&b.name));
        DigestBuilder::new("placet.bundle.v1")
            .list("names", sorted.iter().map(|file| file.name.as_bytes()))
            .list("texts", sorted.iter().map(|file| file.text.as_bytes()))
            .finish()
    }
}

/// How bad a problem is. Either kind keeps a bundle from being used: an unread warning is a hole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The bundle cannot be used to decide.
    Error,
    /// The bundle could be decided with, but would hardly do what its author meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// One thing that is wrong with a bundle.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct BundleProblem {
    /// The file; empty when the problem is of the bundle as a whole.
    pub file: String,
    /// The line in it, from 1.
    pub line: Option<u32>,
    /// The policy, by its `@id`.
    pub policy: Option<String>,
    /// How bad it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
}

impl BundleProblem {
    pub(crate) fn of_bundle(message: impl Into<String>) -> Self {
        Self {
            file: String::new(),
            line: None,
            policy: None,
            severity: Severity::Error,
            message: message.into(),
            help: None,
        }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl fmt::Display for BundleProblem {
    /// `file:line: severity: policy: message (help)`, each part only where it is known.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.file.as_str(), self.line) {
            ("", _) => f.write_str("bundle: ")?,
            (file, Some(line)) => write!(f, "{file}:{line}: ")?,
            (file, None) => write!(f, "{file}: ")?,
        }
        write!(f, "{}: ", self.severity)?;
        if let Some(policy) = &self.policy {
            write!(f, "policy `{policy}`: ")?;
        }
        f.write_str(&self.message)?;
        self.help.as_ref().map_or(Ok(()), |help| write!(f, " ({help})"))
    }
}
