//! Why there is no credential for a call.
//!
//! Owns the causes and their two messages. `Display` is for the log; [`BrokerError::refusal`] has what a caller may read. Invariant: no
//! text of a token service is in either; of its answers only the error codes that the RFCs define are named.

use placet_types::error::{ErrorCode, Problem, Refusal};

/// Why there is no credential for a call. Nothing was sent to the call's target then.
///
/// Exhaustive on purpose: a new cause has to be told to callers in words of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// The caller's token is not in memory: it came before a restart, or was never kept.
    #[error("the caller's token is not in memory")]
    SubjectMissing,
    /// The caller's token has expired, or would before the call is made.
    #[error("the caller's token has expired, or is about to")]
    SubjectExpired,
    /// The token service does not accept the caller's token.
    #[error("the token service refuses the caller's token: {code}")]
    SubjectRefused {
        /// The error code.
        code: &'static str,
    },
    /// The caller's token was revoked here.
    #[error("the caller's tokens were revoked")]
    SubjectRevoked,
    /// The token of who acts is missing, or is the caller's own.
    #[error("there is no token of who acts: {problem}")]
    NoActor {
        /// Why.
        problem: &'static str,
    },
    /// The contract names a token service that is not configured.
    #[error("no token service is named `{name}`")]
    UnknownService {
        /// The name.
        name: String,
    },
    /// What we prove ourselves with at the token service cannot be used.
    #[error("the client's secret cannot be used: {problem}")]
    ClientSecret {
        /// Why; names a secret, never shows one.
        problem: String,
    },
    /// The token service does not accept us.
    #[error("the token service refuses its client: {code}")]
    ClientRefused {
        /// The error code.
        code: &'static str,
    },
    /// The token service knows us, and does not let us ask for this.
    #[error("the token service does not let its client ask for this: {code}")]
    ClientNotEntitled {
        /// The error code.
        code: &'static str,
    },
    /// The token service does not understand the request.
    #[error("the token service refuses the form of the request: {code}")]
    Misconfigured {
        /// The error code.
        code: &'static str,
    },
    /// The token service, or something before it, gives an answer that the RFCs do not know: nothing is known of this grant by it.
    #[error("the token service cannot be understood: {problem}")]
    Puzzling {
        /// What it does.
        problem: &'static str,
    },
    /// The token service issues nothing for this target.
    #[error("the token service refuses the target: {code}")]
    TargetRefused {
        /// The error code.
        code: &'static str,
    },
    /// The token service does not grant this to this user.
    #[error("the token service refuses the grant: {code}")]
    GrantRefused {
        /// The error code.
        code: &'static str,
    },
    /// The token service wants the user to sign in more strongly first.
    #[error("the token service refuses the grant: insufficient_user_authentication")]
    StrongerSignIn,
    /// The caller's token lacks scopes that the call needs, and the contract asks for none that it lacks.
    #[error("the caller's token lacks `{}`", missing.join(" "))]
    ScopeMissing {
        /// Those that it lacks.
        missing: Vec<String>,
        /// All that the call needs.
        needed: Vec<String>,
    },
    /// The token service cannot be asked, or answers with what is no answer.
    #[error("the token service cannot be asked: {problem}")]
    Unavailable {
        /// Why, in our words.
        problem: String,
    },
    /// The token service does not accept an exchange, and does not say whether for its form or for a token that it was shown.
    #[error("the token service refuses the exchange: {code}")]
    ExchangeRefused {
        /// The error code.
        code: &'static str,
    },
    /// The form of the answer, or its times, are not what they should be: nothing is known of this grant by it.
    #[error("the token service's answer cannot be used: {problem}")]
    AnswerUnusable {
        /// Which check failed.
        problem: &'static str,
    },
    /// The answer is not what was asked for.
    #[error("the token service's answer is refused: {problem}")]
    AnswerRefused {
        /// Which check failed.
        problem: &'static str,
    },
    /// The answer grants less than the call needs.
    #[error("the token service grants fewer scopes than the call needs")]
    TooNarrow,
    /// A credential was to be used at another host than it was minted for.
    #[error("the credential is for another host")]
    OtherHost,
    /// The credential's time is over before it was used.
    #[error("the credential's time is over")]
    GrantExpired,
    /// The call's time is over.
    #[error("the call's time was over before there was a credential")]
    OutOfTime,
}

/// What it takes for a call to have a credential after all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Nothing but time: the same may go well later.
    Time,
    /// The caller, with another token.
    Caller,
    /// An operator, who fixes a secret or the configuration.
    Operator,
    /// Nothing that this call could wait for.
    None,
}

impl BrokerError {
    /// What it takes for the same call to have a credential after all.
    #[must_use]
    pub const fn remedy(&self) -> Remedy {
        match self {
            Self::Unavailable { .. } | Self::GrantExpired | Self::OutOfTime => Remedy::Time,
            Self::SubjectMissing
            | Self::SubjectExpired
            | Self::SubjectRefused { .. }
            | Self::SubjectRevoked
            | Self::StrongerSignIn => Remedy::Caller,
            Self::ClientSecret { .. }
            | Self::ClientRefused { .. }
            | Self::ClientNotEntitled { .. }
            | Self::Puzzling { .. }
            | Self::ExchangeRefused { .. }
            | Self::AnswerUnusable { .. }
            | Self::UnknownService { .. } => Remedy::Operator,
            Self::NoActor { .. }
            | Self::Misconfigured { .. }
            | Self::TargetRefused { .. }
            | Self::GrantRefused { .. }
            | Self::AnswerRefused { .. }
            | Self::TooNarrow
            | Self::ScopeMissing { .. }
            | Self::OtherHost => Remedy::None,
        }
    }

    /// What an operator is told who has to fix it; nothing where it is not theirs.
    #[must_use]
    pub const fn for_operators(&self) -> Option<&'static str> {
        match self {
            Self::UnknownService { .. } => {
                Some("the contract names a token service that is not configured")
            }
            Self::ClientSecret { .. } => {
                Some("what proves this client at the token service cannot be read or used")
            }
            Self::ClientRefused { .. } => Some("the token service does not accept this client"),
            Self::ClientNotEntitled { .. } => {
                Some("the token service does not let this client ask for such credentials")
            }
            Self::Puzzling { .. } => Some(
                "the token service, or what stands before it, answers what the RFCs do not know",
            ),
            Self::Misconfigured { .. } => {
                Some("the token service does not accept the form of the request")
            }
            Self::ExchangeRefused { .. } => Some(
                "the token service does not accept the exchange: its form, or a token that it is shown",
            ),
            Self::AnswerUnusable { .. } => Some(
                "the token service's answer cannot be used: its form is wrong, or its times are by our clock",
            ),
            Self::AnswerRefused { .. } => {
                Some("the token service gives another token than was asked for")
            }
            Self::SubjectMissing
            | Self::SubjectExpired
            | Self::SubjectRefused { .. }
            | Self::SubjectRevoked
            | Self::NoActor { .. }
            | Self::TargetRefused { .. }
            | Self::GrantRefused { .. }
            | Self::StrongerSignIn
            | Self::ScopeMissing { .. }
            | Self::Unavailable { .. }
            | Self::TooNarrow
            | Self::OtherHost
            | Self::GrantExpired
            | Self::OutOfTime => None,
        }
    }

    /// The refusal of the call.
    #[must_use]
    pub fn refusal(&self) -> Refusal {
        let (code, message) = match self {
            Self::SubjectMissing | Self::SubjectExpired => (
                ErrorCode::CredentialExpired,
                "the token that the call was made with has expired; get a new one for the same principal and repeat the same call",
            ),
            Self::SubjectRefused { .. } | Self::SubjectRevoked => (
                ErrorCode::CredentialExpired,
                "the token that the call was made with is no longer accepted; get a new one for the same principal and repeat the same call",
            ),
            Self::NoActor { .. } => (
                ErrorCode::CredentialRefused,
                "the tool wants to know who acts for whom, and the call's tokens do not say that; nothing was executed",
            ),
            Self::UnknownService { .. }
            | Self::ClientSecret { .. }
            | Self::ClientRefused { .. }
            | Self::ClientNotEntitled { .. }
            | Self::Puzzling { .. }
            | Self::ExchangeRefused { .. }
            | Self::AnswerUnusable { .. }
            | Self::Misconfigured { .. } => (
                ErrorCode::CredentialMisconfigured,
                "the credential broker is misconfigured for this tool; nothing was executed",
            ),
            Self::TargetRefused { .. } => (
                ErrorCode::CredentialRefused,
                "no credential is issued for this tool's target; nothing was executed",
            ),
            Self::StrongerSignIn => (
                ErrorCode::CredentialRefused,
                "the tool wants the user to sign in more strongly first; nothing was executed",
            ),
            Self::GrantRefused { .. } | Self::TooNarrow => (
                ErrorCode::CredentialRefused,
                "the scopes that the tool needs are not granted to this user; nothing was executed",
            ),
            Self::ScopeMissing { .. } => (
                ErrorCode::CredentialRefused,
                "the token lacks a scope that the tool needs; get one that has it and repeat the same call",
            ),
            Self::AnswerRefused { .. } | Self::OtherHost => (
                ErrorCode::CredentialRefused,
                "the credential that was issued is not fit for this call; nothing was executed",
            ),
            Self::Unavailable { .. } | Self::GrantExpired => (
                ErrorCode::AdapterUnavailable,
                "credentials for the tool are unavailable; nothing was executed",
            ),
            Self::OutOfTime => (
                ErrorCode::DeadlineExceeded,
                "the call ran out of time before it had a credential; nothing was executed",
            ),
        };
        let refusal = Refusal::new(code, message).with_detail(self);
        if let Self::ScopeMissing { needed, .. } = self {
            return refusal.with_scopes_needed(needed.clone());
        }
        if code == ErrorCode::CredentialExpired {
            return refusal.with_problems(vec![Problem {
                pointer: String::new(),
                problem: "send the same call with a new token of the same principal".to_owned(),
            }]);
        }
        refusal
    }
}
