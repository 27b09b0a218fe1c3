//! What an adapter can say about a call.
//!
//! Owns the distinction that the ledger rests on: done, failed, certainly nothing happened, or unknown.

use serde_json::Value;

use placet_types::envelope::result::{Citation, Mutation};

/// What became of one call.
#[derive(Debug)]
pub enum Outcome {
    /// The endpoint did it.
    Done(Answer),
    /// The endpoint was asked and reports that it failed; the call is over.
    Failed(Answer),
    /// Certainly nothing happened: nothing was sent, or the endpoint refused before acting.
    NothingHappened(AdapterError),
    /// It was sent and the outcome is not known: a timeout, a broken connection, an answer that is none.
    Unknown(String),
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
}

/// Why an endpoint could not be asked, or did not act.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdapterError {
    /// It cannot be reached; trying again later may help.
    #[error("unreachable: {0}")]
    Unavailable(String),
    /// It is not what the contract says: another protocol version, another tool list.
    #[error("not as the contract says: {0}")]
    Drifted(String),
    /// It refused the credential.
    #[error("credential refused: {0}")]
    CredentialRefused(String),
    /// It answered something that is no answer.
    #[error("unusable answer: {0}")]
    Garbled(String),
    /// The contract names something this kind of adapter does not have.
    #[error("misconfigured: {0}")]
    Misconfigured(String),
    /// The endpoint refused the call before acting.
    #[error("refused: {0}")]
    Refused(String),
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
