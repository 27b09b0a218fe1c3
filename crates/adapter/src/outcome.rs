//! What an adapter can say about a call.
//!
//! Owns the distinction that the ledger rests on: done, failed, nothing happened, or unknown. Invariant: an error with which a
//! target answers a call counts as "not executed" by its contract only ([`Outcome::under`]), whatever the adapter makes of it.

use serde_json::Value;

use placet_types::{
    contract::{Capability, not_executed::ErrorAnswer},
    envelope::result::{Citation, Mutation},
};

/// What became of one call.
#[derive(Debug)]
pub enum Outcome {
    /// The endpoint did it.
    Done(Answer),
    /// The endpoint was asked and reports that it failed; the call is over.
    Failed(Answer),
    /// nothing happened: no byte of the call was sent, or the adapter itself refused it before acting. Never said of what an
    /// endpoint has answered to a call that may have an effect.
    NotExecuted(AdapterError),
    /// It was sent, and the endpoint answered with an error of its protocol. Whether that means "not executed" is for the contract to say.
    Rejected(Rejection),
    /// It was sent and the outcome is not known: a timeout, a broken connection, an answer that is none.
    Unknown(String),
}

impl Outcome {
    /// The outcome as the contract of the call lets it count: an error answer that it does not name says nothing about the effect.
    #[must_use]
    pub fn under(self, capability: &Capability) -> Self {
        if let Self::Rejected(Rejection { answer, .. }) = &self
            && !capability.not_executed.counts(answer)
        {
            return Self::Unknown(format!("the endpoint answered with {answer}"));
        }
        self
    }

    /// Why the call was not executed, where it was not: asked of an outcome that has gone through [`Self::under`].
    #[must_use]
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
    /// What it says, where it counts.
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

/// Why an endpoint could not be asked, or did not act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// It cannot be reached; trying again later may help.
    #[error("unreachable: {0}")]
    Unavailable(String),
    /// It is not what the contract says: another protocol version, another tool list.
    #[error("not as the contract says: {0}")]
    SchemaMismatch(String),
    /// It refused the credential before anything happened, since it does not know it, or knows it no more: another one may be taken.
    #[error("credential refused: {0}")]
    CredentialRefused(String),
    /// It refused before acting what the credential does not allow: nothing is tried again with another one.
    #[error("not allowed with the credential: {0}")]
    Forbidden(String),
    /// There is no session for whom the call is made: the endpoint refused or ended it, or no place is left for one. Says nothing about
    /// calls for others. A later try begins a new one.
    #[error("no session: {0}")]
    NoSession(String),
    /// It answered something that is no answer.
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
    /// The same error in other words.
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

    /// The error in as many words as a log and a record take. An adapter leaves the words of its endpoint whole, since what is cut off a
    /// secret hides the rest of it: only where secrets are removed already, or nobody looks for them, this is to be called.
    #[must_use]
    pub fn shortened(self) -> Self {
        self.map_text(shortened)
    }
}

/// The longest reason that is kept.
const REASON_BYTES_MAX: usize = 600;

/// A reason as a log and a record take it; see [`AdapterError::shortened`].
#[must_use]
pub fn shortened(reason: String) -> String {
    cut(reason, REASON_BYTES_MAX)
}

/// At most the first `bytes_max` bytes of a text, and a sign where it is cut.
#[must_use]
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
