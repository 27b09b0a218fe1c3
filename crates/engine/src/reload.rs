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
    ids::TenantId,
};

/// The place in a request to reload that allows a roll-back, as a JSON Pointer: a refusal names it if only that could help.
pub const ROLL_BACK: &str = "/roll_back";

/// Reads the configured files again.
pub trait Files: fmt::Debug + Send + Sync {
    /// Reads and checks everything that reloads.
    ///
    /// # Errors
    /// What is wrong with the files, for people to read.
    fn read(&self) -> BoxFuture<'_, Result<Loaded, Vec<String>>>;
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
    /// What an operator is told whose tenant is the only one, and who may know what is in the files.
    pub(crate) fn refusal(&self) -> Refusal {
        let located = |pointer: &str, problem| Problem { pointer: pointer.to_owned(), problem };
        let (message, problems): (_, Vec<Problem>) = match self {
            Self::Files(problems) => (
                "the files cannot be used; nothing was reloaded, what was active stays active"
                    .to_owned(),
                problems.iter().cloned().map(|problem| located("", problem)).collect(),
            ),
            Self::Replaced(replaced) => (
                format!(
                    "the files were replaced by a later activation, and a reload does not bring them back; nothing was reloaded, what was \
                     active stays active. To bring them back on every node: `placet reload --roll-back {}`",
                    replaced.active.epoch
                ),
                vec![located(ROLL_BACK, replaced.to_string())],
            ),
            Self::NoFiles | Self::NotKept(_) | Self::Unavailable => {
                return Refusal::new(ErrorCode::Overloaded, self.to_string());
            }
        };
        Refusal::new(ErrorCode::ValidationError, message).with_problems(problems)
    }

    /// What an operator is told where the files are of several tenants: how many problems there are, which the log names.
    pub(crate) fn refusal_to_one_of_several(&self) -> Refusal {
        let Self::Files(problems) = self else { return self.refusal() };
        let count = problems.len();
        Self::Files(vec![format!(
            "problems: {count}; the files are of several tenants, so only the log of the server names what is wrong"
        )])
        .refusal()
    }
}

/// Who asked for a reload, and what they allow it to do.
#[derive(Debug)]
pub(crate) struct Order {
    /// For the audit.
    pub(crate) by: String,
    /// The epoch of the activation that an operator allows to be rolled back.
    pub(crate) rolls_back: Option<u64>,
    /// The tenant of the operator who asked, if one did.
    pub(crate) reader: Option<TenantId>,
}

#[cfg(test)]
mod tests {
    use placet_ledger::{
        policies::{PolicyState, ReplacedPolicies},
        testing::policy_digests,
    };
    use placet_types::{clock::Timestamp, digest::Digest};

    use super::{ROLL_BACK, ReloadError};

    #[test]
    fn replaced_files_are_not_called_unusable() {
        let digests = policy_digests("new");
        let refusal = ReloadError::Replaced(Box::new(ReplacedPolicies {
            what: "policies",
            digest: Digest::of(b"old"),
            replaced_at: Timestamp::from_ms(0),
            replaced_by: digests.policies,
            active: PolicyState { epoch: 7, digests },
        }))
        .refusal();
        assert!(refusal.message.contains("`placet reload --roll-back 7`"), "{refusal}");
        assert!(!refusal.message.contains("cannot be used"), "{refusal}");
        assert_eq!(refusal.problems[0].pointer, ROLL_BACK);
    }

    #[test]
    fn problems_of_files_of_several_tenants_are_only_counted() {
        let error = ReloadError::Files(vec!["`bot` of tenant `acme`".into(), "`key1`".into()]);
        assert_eq!(error.refusal().problems.len(), 2);
        let counted = error.refusal_to_one_of_several().problems;
        let text = &counted[0].problem;
        assert!(counted.len() == 1 && text.contains(": 2"), "{text}");
        assert!(!text.contains("acme") && !text.contains("key1"), "{text}");
    }
}
