//! Reload: policies, contracts, directory and issuers are read again and replace the active ones, all or nothing.
//!
//! Owns what the composition root has to provide, and what callers are told. The policy actor orders activations; what is active is in
//! [`crate::active`]. Invariant: nothing changes before everything was read, checked and recorded in the ledger.

use std::{fmt, sync::Arc};

use futures::future::BoxFuture;
use placet_identity::NextIssuers;
use placet_ledger::policies::ReplacedPolicies;
use placet_policy::snapshot::Snapshot;
use placet_types::{
    contract::Contract,
    digest::Digest,
    directory::Directory,
    error::{ErrorCode, Problem, Refusal},
};

/// Reads the configured files again.
pub trait Files: fmt::Debug + Send + Sync {
    /// Reads and checks everything that reloads.
    ///
    /// # Errors
    /// What is wrong with the files, for people to read.
    fn read(&self) -> BoxFuture<'_, Result<Loaded, Vec<String>>>;

    /// A digest over the bytes of the files.
    ///
    /// # Errors
    /// Why they cannot be read.
    fn fingerprint(&self) -> BoxFuture<'_, Result<Digest, String>>;
}

/// What was read.
#[derive(Debug)]
pub struct Loaded {
    /// The policies, compiled for the contracts and the directory.
    pub policies: Arc<Snapshot>,
    /// The contracts of the environment.
    pub contracts: Vec<Arc<Contract>>,
    /// The directory.
    pub directory: Arc<Directory>,
    /// The accepted issuers.
    pub issuers: NextIssuers,
    /// The digest of their configuration.
    pub issuers_digest: Digest,
    /// How the files were read.
    pub read: Read,
}

/// How files were read.
#[derive(Debug, Clone)]
pub struct Read {
    /// The digest over their bytes.
    pub fingerprint: Digest,
    /// The changed configuration keys that take effect only at the next start.
    pub needs_restart: Vec<String>,
}

/// Why a reload changed nothing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// This engine was not started from files.
    #[error("there are no files to reload")]
    NoFiles,
    /// The files cannot be used.
    #[error("the files cannot be used:{}", lines(.0))]
    Files(Vec<String>),
    /// They were active before, and another node replaced them.
    #[error("what this node has was active before and is not brought back by a reload: {0}")]
    Replaced(Box<ReplacedPolicies>),
    /// The ledger did not confirm it: the engine ends, and the next start finds out which policies are active.
    #[error("the ledger did not confirm the reload: {0}")]
    NotKept(String),
    /// The policy actor is being restarted.
    #[error("nothing can be reloaded at this moment; look what is active, and try once more")]
    Unavailable,
}

fn lines(problems: &[String]) -> String {
    problems.iter().map(|problem| format!("\n  {problem}")).collect()
}

impl ReloadError {
    /// What the caller is told, who is an operator and may know what is in the files.
    pub(crate) fn refusal(&self) -> Refusal {
        let problems: Vec<String> = match self {
            Self::Files(problems) => problems.clone(),
            Self::Replaced(replaced) => vec![replaced.to_string()],
            Self::NoFiles | Self::NotKept(_) | Self::Unavailable => {
                return Refusal::new(ErrorCode::Overloaded, self.to_string());
            }
        };
        let located = |problem| Problem { pointer: String::new(), problem };
        Refusal::new(
            ErrorCode::ValidationError,
            "the files cannot be used; nothing was reloaded, what was active stays active",
        )
        .with_problems(problems.into_iter().map(located).collect())
    }
}

/// Who asked for a reload, and what they allow it to do.
#[derive(Debug)]
pub(crate) struct Order {
    /// For the audit.
    pub(crate) by: String,
    /// The epoch of the activation that an operator allows to be rolled back.
    pub(crate) rolls_back: Option<u64>,
}
