//! What an adapter can say about a call.
//!
//! Owns the distinction that the ledger rests on: done, failed, not executed, or unknown. Invariant: an error answer of a
//! target counts as "not executed" only by its contract ([`Outcome::under`]), whatever the adapter makes of it.

use serde_json::Value;

use placet_types::{
    contract::{Capability, not_executed::ErrorAnswer},
    envelope::result::{Citation, Mutation},
};

/// The outcome of one call.
#[derive(Debug)]
pub enum Outcome {
    /// The endpoint did it.
    Done(Answer),
    /// The endpoint was called and reports a failure; the call has ended.
    Failed(Answer),
    /// Nothing happened: no byte of the call was sent, or the adapter itself refused it before acting. Never used for an
    /// endpoint's answer to a call that may have an effect.
    NotExecuted(AdapterError),
    /// It was sent, and the endpoint answered with an error of its protocol. Whether that means "not executed" is for the contract to say.
    Rejected(Rejection),
    /// It was sent and the outcome is not known: a timeout, a broken connection, an invalid answer.
    Unknown(String),
}

impl Outcome {
    /// The outcome as the contract lets it count: an error answer that the contract does not name says nothing about the effect.
    #[must_use]
    pub fn under(self, capability: &Capability) -> Self {
        if let Self::Rejected(Rejection { answer, .. }) = &self
            && !capability.not_executed.counts(answer)
        {
            return Self::Unknown(format!("the endpoint answered with {answer}"));
        }
        self
    }

    /// Why the call was not executed, if it was not; for outcomes that have gone through [`Self::under`].
    pub const fn not_executed(&self) -> Option<&AdapterError> {
        match self {
            Self::NotExecuted(error) | Self::Rejected(Rejection { error, .. }) => Some(error),
            Self::Done(_) | Self::Failed(_) | Self::Unknown(_) => None,
        }
    }
}

/// An error with which an endpoint answered a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The answer.
    pub answer: ErrorAnswer,
    /// The error that it means, if it counts.
    pub error: AdapterError,
}

/// What the endpoint answered.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Answer {
    /// Its answer as JSON.
    pub output: Value,
    /// Sources it names.
    pub citations: Vec<Citation>,
    /// What it changed, where it says so.
    pub mutations: Vec<Mutation>,
    /// What the call cost, in cents, where it says so.
    pub cost_cents: Option<u64>,
}

/// Why an endpoint could not be called, or did not act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// It cannot be reached; trying again later may help.
    #[error("unreachable: {0}")]
    Unavailable(String),
    /// It differs from the contract: another protocol version, another tool list.
    #[error("not as the contract says: {0}")]
    SchemaMismatch(String),
    /// It refused the credential before acting, as unknown or no longer valid: another one may be accepted.
    #[error("credential refused: {0}")]
    CredentialRefused(String),
    /// It refused before acting what the credential does not allow: there is no retry with another one.
    #[error("not allowed with the credential: {0}")]
    Forbidden(String),
    /// There is no session for the call's owner: the endpoint refused or ended it, or there is no room for one. Says nothing about
    /// other owners' calls. A later attempt begins a new one.
    #[error("no session: {0}")]
    NoSession(String),
    /// Its answer is not valid.
    #[error("unusable answer: {0}")]
    InvalidResponse(String),
    /// The contract names something this kind of adapter does not have.
    #[error("misconfigured: {0}")]
    Misconfigured(String),
    /// The endpoint refused the call before acting.
    #[error("refused: {0}")]
    Refused(String),
}

impl AdapterError {
    /// The same error with its text changed.
    #[must_use]
    pub fn map_text(self, change: impl FnOnce(String) -> String) -> Self {
        match self {
            Self::Unavailable(text) => Self::Unavailable(change(text)),
            Self::SchemaMismatch(text) => Self::SchemaMismatch(change(text)),
            Self::CredentialRefused(text) => Self::CredentialRefused(change(text)),
            Self::Forbidden(text) => Self::Forbidden(change(text)),
            Self::NoSession(text) => Self::NoSession(change(text)),
            Self::InvalidResponse(text) => Self::InvalidResponse(change(text)),
            Self::Misconfigured(text) => Self::Misconfigured(change(text)),
            Self::Refused(text) => Self::Refused(change(text)),
        }
    }

    /// The error, short enough for a log and a record. Adapters leave the text of their endpoint whole, since a secret that is cut off
    /// can no longer be recognised: call this only after secrets were removed, or where nobody looks for them.
    #[must_use]
    pub fn shortened(self) -> Self {
        self.map_text(shortened)
    }
}

/// The longest reason that is kept.
const REASON_BYTES_MAX: usize = 600;

/// A reason, short enough for a log and a record; see [`AdapterError::shortened`].
pub fn shortened(reason: String) -> String {
    cut(reason, REASON_BYTES_MAX)
}

/// At most the first `bytes_max` bytes of a text, with a mark if it is cut.
pub fn cut(mut text: String, bytes_max: usize) -> String {
    if text.len() > bytes_max {
        text.truncate(text.floor_char_boundary(bytes_max));
        text.push('…');
    }
    text
}

/// What a probe found.
#[derive(Debug)]
pub enum Probe {
    /// The effect happened; this is its result.
    Committed(Answer),
    /// The endpoint does not know the token.
    NotFound,
    /// It cannot say.
    Unknown,
}
