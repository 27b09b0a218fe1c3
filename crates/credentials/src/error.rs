//! Why a call has no credential.
//!
//! Owns the causes and their two messages. `Display` is for the log; [`BrokerError::refusal`] has what a caller may read. Invariant:
//! neither contains any text of a token service; of its responses only the error codes that the RFCs define are named.

use placet_types::error::{ErrorCode, Refusal};

/// Why a call has no credential. Nothing was then sent to the call's target.
///
/// Exhaustive on purpose: a new cause needs its own message to callers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// The caller's token is not in memory: it came before a restart, or was never kept.
    #[error("the caller's token is not in memory")]
    SubjectMissing,
    /// The caller's token has expired, or would before the call is made.
    #[error("the caller's token has expired, or is about to")]
    SubjectExpired,
    /// The token service does not accept the caller's token.
    #[error("the token service refuses the caller's token: {0}")]
    SubjectRefused(&'static str),
    /// The caller's token was revoked here.
    #[error("the caller's tokens were revoked")]
    SubjectRevoked,
    /// The token of who acts is missing, or is the caller's own.
    #[error("there is no token of who acts: {0}")]
    NoActor(&'static str),
    /// The contract names a token service that is not configured.
    #[error("no token service is named `{0}`")]
    UnknownService(String),
    /// What we prove ourselves with at the token service cannot be used.
    #[error("the client's secret cannot be used: {0}")]
    ClientSecret(String),
    /// The token service does not accept us.
    #[error("the token service refuses its client: {0}")]
    ClientRefused(&'static str),
    /// The token service knows us, and does not let us ask for this.
    #[error("the token service does not let its client ask for this: {0}")]
    ClientNotEntitled(&'static str),
    /// The token service does not understand the request.
    #[error("the token service refuses the form of the request: {0}")]
    Misconfigured(&'static str),
    /// The token service, or something in front of it, sends a response that the RFCs do not define: it says nothing about this grant.
    #[error("the token service cannot be understood: {0}")]
    Puzzling(&'static str),
    /// The token service issues nothing for this target.
    #[error("the token service refuses the target: {0}")]
    TargetRefused(&'static str),
    /// The token service does not grant this to this user.
    #[error("the token service refuses the grant: {0}")]
    GrantRefused(&'static str),
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
    /// The token service cannot be reached, or its response cannot be parsed.
    #[error("the token service cannot be asked: {0}")]
    Unavailable(String),
    /// The token service does not accept an exchange, and does not say whether for its form or for a token that it was shown.
    #[error("the token service refuses the exchange: {0}")]
    ExchangeRefused(&'static str),
    /// The response is malformed, or its times are wrong: it says nothing about this grant.
    #[error("the token service's answer cannot be used: {0}")]
    AnswerUnusable(&'static str),
    /// The response does not match the request.
    #[error("the token service's answer is refused: {0}")]
    AnswerRefused(&'static str),
    /// The answer grants less than the call needs.
    #[error("the token service grants fewer scopes than the call needs")]
    TooNarrow,
    /// A credential was to be used at another host than it was minted for.
    #[error("the credential is for another host")]
    OtherHost,
    /// The credential expired before it was used.
    #[error("the credential's time is over")]
    GrantExpired,
    /// The call's deadline passed.
    #[error("the call's time was over before there was a credential")]
    OutOfTime,
}

/// The message to a caller about a credential that cannot be used for the call.
const UNFIT: &str = "the credential that was issued is not fit for this call; nothing was executed";

/// What has to change before a call can have a credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Remedy {
    /// Only time: a later attempt may succeed.
    Time,
    /// The caller sends another token.
    Caller,
    /// An operator, who fixes a secret or the configuration.
    Operator,
    /// Nothing that this call could wait for.
    None,
}

/// What a cause means.
struct Meaning {
    remedy: Remedy,
    /// The message to the operator who has to fix it.
    fault: Option<&'static str>,
    code: ErrorCode,
    /// The message to the caller.
    message: &'static str,
}

impl Meaning {
    const fn passes(code: ErrorCode, message: &'static str) -> Self {
        Self { remedy: Remedy::Time, fault: None, code, message }
    }

    const fn callers(code: ErrorCode, message: &'static str) -> Self {
        Self { remedy: Remedy::Caller, fault: None, code, message }
    }

    const fn operators(fault: &'static str) -> Self {
        Self {
            remedy: Remedy::Operator,
            fault: Some(fault),
            code: ErrorCode::CredentialMisconfigured,
            message: "the credential broker is misconfigured for this tool; nothing was executed",
        }
    }

    const fn refused(message: &'static str) -> Self {
        let code = ErrorCode::CredentialRefused;
        Self { remedy: Remedy::None, fault: None, code, message }
    }
}

impl BrokerError {
    /// The table of causes.
    const fn meaning(&self) -> Meaning {
        match self {
            Self::SubjectMissing | Self::SubjectExpired => Meaning::callers(
                ErrorCode::CredentialExpired,
                "the token that the call was made with has expired; get a new one for the same principal and repeat the same call",
            ),
            Self::SubjectRefused(_) | Self::SubjectRevoked => Meaning::callers(
                ErrorCode::CredentialExpired,
                "the token that the call was made with is no longer accepted; get a new one for the same principal and repeat the same call",
            ),
            Self::StrongerSignIn => Meaning::callers(
                ErrorCode::CredentialRefused,
                "the tool wants the user to sign in more strongly first; nothing was executed",
            ),
            Self::UnknownService(_) => {
                Meaning::operators("the contract names a token service that is not configured")
            }
            Self::ClientSecret(_) => Meaning::operators(
                "what proves this client at the token service cannot be read or used",
            ),
            Self::ClientRefused(_) => {
                Meaning::operators("the token service does not accept this client")
            }
            Self::ClientNotEntitled(_) => Meaning::operators(
                "the token service does not let this client ask for such credentials",
            ),
            Self::Puzzling(_) => Meaning::operators(
                "the token service, or what stands before it, answers what the RFCs do not know",
            ),
            Self::ExchangeRefused(_) => Meaning::operators(
                "the token service does not accept the exchange: its form, or a token that it is shown",
            ),
            Self::AnswerUnusable(_) => Meaning::operators(
                "the token service's answer cannot be used: its form is wrong, or its times are by our clock",
            ),
            Self::Misconfigured(_) => Meaning {
                remedy: Remedy::None,
                ..Meaning::operators("the token service does not accept the form of the request")
            },
            Self::AnswerRefused(_) => Meaning {
                fault: Some("the token service gives another token than was asked for"),
                ..Meaning::refused(UNFIT)
            },
            Self::OtherHost => Meaning::refused(UNFIT),
            Self::NoActor(_) => Meaning::refused(
                "the tool wants to know who acts for whom, and the call's tokens do not say that; nothing was executed",
            ),
            Self::TargetRefused(_) => Meaning::refused(
                "no credential is issued for this tool's target; nothing was executed",
            ),
            Self::GrantRefused(_) | Self::TooNarrow => Meaning::refused(
                "the scopes that the tool needs are not granted to this user; nothing was executed",
            ),
            Self::ScopeMissing { .. } => Meaning::refused(
                "the token lacks a scope that the tool needs; get one that has it and repeat the same call",
            ),
            Self::Unavailable(_) | Self::GrantExpired => Meaning::passes(
                ErrorCode::AdapterUnavailable,
                "credentials for the tool are unavailable; nothing was executed",
            ),
            Self::OutOfTime => Meaning::passes(
                ErrorCode::DeadlineExceeded,
                "the call ran out of time before it had a credential; nothing was executed",
            ),
        }
    }

    /// What has to change before the same call can have a credential.
    pub const fn remedy(&self) -> Remedy {
        self.meaning().remedy
    }

    /// The message to the operator who has to fix it; `None` where it is not theirs to fix.
    pub const fn for_operators(&self) -> Option<&'static str> {
        self.meaning().fault
    }

    /// The refusal of the call.
    pub fn refusal(&self) -> Refusal {
        let Meaning { code, message, .. } = self.meaning();
        let refusal = Refusal::new(code, message).with_detail(self);
        if let Self::ScopeMissing { needed, .. } = self {
            return refusal.with_scopes_needed(needed.clone());
        }
        if code == ErrorCode::CredentialExpired {
            let problem = "send the same call with a new token of the same principal";
            return refusal.with_problem("", problem);
        }
        refusal
    }
}
