//! Why something cannot be had from the vault.
//!
//! Owns the causes, what each means for what was read before, and their words for the operator. Invariant: no message holds a text of the
//! vault's, a token or a value.

use std::io;

use placet_egress::EgressError;

use crate::error::{of_file, place_of};

/// Why something cannot be had from the vault. No message holds a value, or words of the vault's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaultError {
    /// It cannot be asked.
    #[error("the vault cannot be asked: {0}")]
    Unreachable(EgressError),
    /// It is a node that sends others on.
    #[error(
        "the vault redirects instead of answering: name the active node, or let the nodes forward requests"
    )]
    Standby,
    /// It answers, but cannot serve.
    #[error("the vault answers {status}: {}", of_status(*.status))]
    NotReady {
        /// The status.
        status: u16,
    },
    /// Our token is not accepted.
    #[error("the vault does not accept our token: it has expired or was revoked")]
    TokenRefused,
    /// The log-in was refused.
    #[error(
        "the vault refuses the log-in at `auth/{mount}` as `{role}` (status {status}): check the role, its bound claims and audience, and the JWT's expiry"
    )]
    LoginRefused {
        /// Where the method is mounted.
        mount: String,
        /// The role.
        role: String,
        /// The status.
        status: u16,
    },
    /// The file with our token or our JWT cannot be used.
    #[error("what proves to the vault who we are cannot be used, {place}: {problem}")]
    Proof {
        /// Where the file is; not what names it, where that leads to none.
        place: String,
        /// What is wrong.
        problem: String,
    },
    /// No policy lets our token do it.
    #[error("the vault does not let us {what}: no policy of our token permits it")]
    Denied {
        /// What.
        what: String,
    },
    /// There is nothing of this name.
    #[error(
        "the vault has nothing at `{path}`: it is deleted, or the path is another (version 2 of the key-value engine has `data` after its mount)"
    )]
    Absent {
        /// The entry.
        path: String,
    },
    /// What is there cannot be used.
    #[error("what the vault has at `{path}` cannot be used: {problem}")]
    Unusable {
        /// The entry.
        path: String,
        /// What is wrong.
        problem: String,
    },
    /// The answer is none of the vault's.
    #[error("the answer is not a vault's: {problem}")]
    Malformed {
        /// What is wrong.
        problem: &'static str,
    },
    /// What was read is too old, or its lease is over.
    #[error("what the vault had at `{path}` could not be read again in time")]
    Stale {
        /// The entry.
        path: String,
    },
}

fn of_status(status: u16) -> &'static str {
    match status {
        429 => "too many requests",
        503 => "it is sealed, or being maintained",
        _ => "it cannot serve at present",
    }
}

impl VaultError {
    /// Whether what was read before was taken back with it: the entry is gone, or we may not have it any more.
    pub(super) fn takes_back(&self) -> bool {
        match self {
            Self::Denied { .. } | Self::Absent { .. } => true,
            Self::Unreachable(_)
            | Self::Standby
            | Self::NotReady { .. }
            | Self::TokenRefused
            | Self::LoginRefused { .. }
            | Self::Proof { .. }
            | Self::Unusable { .. }
            | Self::Malformed { .. }
            | Self::Stale { .. } => false,
        }
    }

    /// Whether the vault did not get to judging what was asked, so that the same may be asked again.
    pub(super) fn is_transient(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::Standby
            | Self::NotReady { .. }
            | Self::TokenRefused
            | Self::LoginRefused { .. }
            | Self::Proof { .. } => true,
            Self::Denied { .. }
            | Self::Absent { .. }
            | Self::Unusable { .. }
            | Self::Malformed { .. }
            | Self::Stale { .. } => false,
        }
    }

    pub(super) fn proof(path: &std::path::Path, error: &io::Error) -> Self {
        Self::Proof { place: place_of(path), problem: of_file(error.kind()) }
    }
}

impl From<EgressError> for VaultError {
    fn from(error: EgressError) -> Self {
        if matches!(error, EgressError::Redirected { .. }) {
            Self::Standby
        } else {
            Self::Unreachable(error)
        }
    }
}
