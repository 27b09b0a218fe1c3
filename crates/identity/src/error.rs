//! Why a token, a key set or the set-up was refused.
//!
//! Owns the causes and their two messages: `Display` is for the log, [`IdentityError::refusal`] has what the caller may read.
//! Invariant: neither holds bytes of a token, and the caller's message does not tell which check failed.

use std::{
    fmt, io,
    net::IpAddr,
    path::{Path, PathBuf},
};

use placet_types::error::{ErrorCode, Refusal};

/// The longest name or value of a token that is echoed in a log line.
const ECHO_CHARS_MAX: usize = 64;
/// When to retry after keys were unavailable.
const RETRY_AFTER_MS: u64 = 5_000;

/// Why a token was refused. `Display` is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// The token is longer than the limit.
    #[error("the token is longer than {0} bytes")]
    TooLong(usize),
    /// The token is not a signed JWT in compact form.
    #[error("the {part} of the token is malformed: {problem}")]
    Malformed {
        /// The part.
        part: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The header has a member that could change what is verified.
    #[error("the header member `{0}` is not accepted")]
    HeaderRefused(&'static str),
    /// The header asks for an algorithm that the issuer may not use, or that its key is not for.
    #[error("the algorithm is not accepted from issuer `{0}`")]
    AlgorithmRefused(String),
    /// The token is not an access token.
    #[error("the token of issuer `{issuer}` is not an access token: {problem}")]
    TypeRefused {
        /// The issuer.
        issuer: String,
        /// What shows it.
        problem: &'static str,
    },
    /// This issuer is not configured.
    #[error("the issuer `{0}` is not known")]
    UnknownIssuer(String),
    /// The issuer has no key of this name.
    #[error("the issuer `{issuer}` has no key `{kid}`")]
    UnknownKey {
        /// The issuer.
        issuer: String,
        /// The key's name in the token.
        kid: String,
    },
    /// The issuer's keys were never loaded, or not for too long.
    #[error("the keys of issuer `{0}` are not available")]
    KeysUnavailable(String),
    /// The signature is not by the issuer's key.
    #[error("the signature is not by the key of issuer `{0}`")]
    SignatureInvalid(String),
    /// A required claim is not there.
    #[error("the claim `{0}` is missing")]
    ClaimMissing(String),
    /// A claim does not have the required form.
    #[error("the claim `{claim}` is not accepted: {problem}")]
    ClaimRefused {
        /// The claim.
        claim: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The token is for another service.
    #[error("the token of issuer `{0}` is not for this service")]
    AudienceRefused(String),
    /// The token has expired.
    #[error("the token of issuer `{0}` has expired")]
    Expired(String),
    /// The token is not valid yet, or was issued in the future.
    #[error("the token of issuer `{issuer}` is not valid yet: `{claim}` lies in the future")]
    NotYetValid {
        /// The issuer.
        issuer: String,
        /// `nbf` or `iat`.
        claim: &'static str,
    },
    /// The token's lifetime is longer than the issuer's tokens may have.
    #[error("the token of issuer `{issuer}` lives longer than {lifetime_s_max} s")]
    LifetimeTooLong {
        /// The issuer.
        issuer: String,
        /// The limit.
        lifetime_s_max: u64,
    },
    /// The user's log-in was too long ago.
    #[error("the user of issuer `{0}` logged in too long ago")]
    AuthenticationTooOld(String),
    /// A client certificate identifies nobody.
    #[error("the client certificate is not accepted: {0}")]
    CertificateRefused(&'static str),
    /// The token is bound to a key that its bearer did not show.
    #[error("the token is bound to a key: {0}")]
    KeyNotShown(&'static str),
    /// Neither a token nor a certificate was shown.
    #[error("missing credentials")]
    NothingShown,
    /// A user's token that an agent may hold is shown as if the user were there.
    #[error("the token of issuer `{0}` is a user's, and an agent may hold it")]
    HeldByAgent(String),
    /// The two tokens of a call do not belong together.
    #[error("the delegation does not fit the caller: {0}")]
    BindingRefused(&'static str),
}

impl IdentityError {
    /// What the caller gets: the code, and one text for every token that does not verify.
    const fn told(&self) -> (ErrorCode, &'static str) {
        match self {
            Self::Expired(_) => (ErrorCode::CredentialExpired, "the token has expired"),
            Self::AuthenticationTooOld(_) => {
                (ErrorCode::CredentialExpired, "the user has to log in again")
            }
            Self::BindingRefused(_) => (
                ErrorCode::Unauthenticated,
                "the delegation token does not belong to the calling token",
            ),
            Self::HeldByAgent(_) => (
                ErrorCode::PolicyDenied,
                "this user's token is one that an agent may hold: it goes into Placet-Delegation beside the agent's own; to act as the person, sign in at the console, or use a token of a client that the operator has listed in `person_clients` of this issuer",
            ),
            Self::KeysUnavailable(_) => {
                (ErrorCode::IdentityUnavailable, "who calls cannot be verified at present")
            }
            Self::NothingShown => {
                (ErrorCode::Unauthenticated, "a bearer token is needed in the Authorization header")
            }
            Self::CertificateRefused(_) => {
                (ErrorCode::Unauthenticated, "the client certificate is not valid for this service")
            }
            Self::TooLong(_)
            | Self::Malformed { .. }
            | Self::HeaderRefused(_)
            | Self::AlgorithmRefused(_)
            | Self::TypeRefused { .. }
            | Self::UnknownIssuer(_)
            | Self::UnknownKey { .. }
            | Self::SignatureInvalid(_)
            | Self::ClaimMissing(_)
            | Self::ClaimRefused { .. }
            | Self::AudienceRefused(_)
            | Self::NotYetValid { .. }
            | Self::KeyNotShown(_)
            | Self::LifetimeTooLong { .. } => {
                (ErrorCode::Unauthenticated, "the token is not valid for this service")
            }
        }
    }

    /// The code that the caller gets.
    pub const fn code(&self) -> ErrorCode {
        self.told().0
    }

    /// Whether the same token may be accepted in a moment: nothing was found wrong with it.
    pub fn is_transient(&self) -> bool {
        self.code() == ErrorCode::IdentityUnavailable
    }

    /// The refusal with both messages.
    pub fn refusal(&self) -> Refusal {
        let refusal = Refusal::new(self.code(), self.told().1).with_detail(self);
        if refusal.code == ErrorCode::IdentityUnavailable {
            return refusal.with_retry_after_ms(RETRY_AFTER_MS);
        }
        refusal
    }
}

/// A name from a token, short and without control characters, so that it cannot fake a line of a log.
pub(crate) fn echo(text: &str) -> String {
    text.chars().take(ECHO_CHARS_MAX).map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// What went wrong with a file, in plain words.
pub(crate) fn of_file(kind: io::ErrorKind) -> String {
    if kind == io::ErrorKind::NotFound {
        "there is no such file or folder".to_owned()
    } else if kind == io::ErrorKind::InvalidInput {
        "it is not a file".to_owned()
    } else {
        kind.to_string()
    }
}

/// Where a file is, for a message. A path that leads to no file may be a value given by mistake: of that only the folder is shown.
pub(crate) fn place_of(path: &Path) -> String {
    if path.symlink_metadata().is_ok() {
        return format!("`{}`", path.display());
    }
    match path.parent().filter(|folder| folder.is_dir()) {
        Some(folder) => format!("the file that is named, in the folder `{}`", folder.display()),
        None => "the file that is named".to_owned(),
    }
}

/// Why a key set could not be loaded. The set that was loaded before stays in use for a while.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// It could not be fetched or read.
    #[error("the key set could not be loaded: {0}")]
    Unavailable(String),
    /// What was loaded is not an acceptable key set.
    #[error("the key set cannot be used: {0}")]
    Unusable(String),
    /// It has no usable key.
    #[error("the key set has no usable key")]
    Empty,
    /// The agent of the Workload API does not know the trust domain.
    #[error(
        "the agent of the Workload API has no trust bundle of `{0}`: is it the agent's own, or federated with it?"
    )]
    NotInBundles(String),
}

impl KeyError {
    pub(crate) fn unreadable(path: &Path, kind: io::ErrorKind) -> Self {
        let problem = of_file(kind);
        Self::Unavailable(format!("the file `{}` cannot be read: {problem}", path.display()))
    }

    pub(crate) fn interrupted() -> Self {
        Self::Unavailable("it was interrupted".to_owned())
    }
}

/// Why identity could not be set up. These are for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SetupError {
    /// An issuer's configuration cannot be used.
    #[error("issuer `{issuer}`: {problem}")]
    Issuer {
        /// The issuer.
        issuer: String,
        /// What is wrong.
        problem: String,
    },
    /// A limit is out of range.
    #[error("{0}")]
    Limits(&'static str),
    /// Development tokens would be accepted from other machines.
    #[error("development tokens are accepted on loopback only, not on `{0}`")]
    OffLoopback(IpAddr),
    /// The file of the development key cannot be used.
    #[error("the development key `{}` cannot be used: {problem}", path.display())]
    DevKeyFile {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// The operating system gives no randomness.
    #[error("the operating system gives no random bytes")]
    NoRandomness,
    /// A development token cannot be made as asked for.
    #[error("the development token cannot be made: {0}")]
    Mint(String),
}

impl SetupError {
    pub(crate) fn dev_key(path: &std::path::Path, problem: impl fmt::Display) -> Self {
        Self::DevKeyFile { path: path.to_path_buf(), problem: problem.to_string() }
    }
}
