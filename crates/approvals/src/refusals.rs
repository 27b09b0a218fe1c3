//! Refusals of the approval service that policy did not decide.
//!
//! Owns the words, and the check of a reason, which every decision needs.

use placet_ledger::{approval::VoteError, ledger::LedgerError, refusal::ledger_refusal};
use placet_types::{
    error::{ErrorCode, Refusal},
    text::is_hidden,
};

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 2_000;

/// The token was revoked for its subject.
pub fn revoked() -> Refusal {
    Refusal::new(
        ErrorCode::CredentialExpired,
        "the token is no longer accepted; get a new one for the same principal and repeat the same call",
    )
    .with_detail("an operator has revoked the subject's tokens")
}

/// Too many concurrent decisions: this one did not succeed.
pub(crate) fn crowded() -> Refusal {
    Refusal::new(
        ErrorCode::InProgress,
        "others are deciding at this moment; look at the approval again",
    )
}

/// What is wrong with one field of a request.
pub(crate) fn refused(message: &str, pointer: &str, problem: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::ValidationError, message).with_problem(pointer, problem)
}

/// What was read from the ledger, or the refusal if it cannot be read.
pub(crate) fn read<T>(read: Result<T, impl Into<LedgerError>>) -> Result<T, Refusal> {
    read.map_err(|error| ledger_refusal(&error.into()))
}

/// A decision that does not count.
pub(crate) fn not_counted(error: &VoteError) -> Refusal {
    let message = error.to_string();
    match error {
        VoteError::Stale => {
            refused(&message, "/digest", "is not the digest of the current proposal")
        }
        VoteError::Elsewhere => {
            refused(&message, "/args", "would have other tenants asked than those that are")
        }
        VoteError::Late { .. }
        | VoteError::Twice
        | VoteError::Author
        | VoteError::Full
        | VoteError::NotAsked
        | VoteError::Unchanged => Refusal::new(ErrorCode::ValidationError, message),
    }
}

pub(crate) fn invalid(pointer: &str, problem: impl Into<String>) -> Refusal {
    refused("this cannot be arranged", pointer, problem)
}

/// The refusal for a cursor that no longer exists.
pub(crate) fn gone() -> Refusal {
    let problem = "the list has no such place any more; read it from the start";
    refused("there is no such place to go on from", "/after", problem)
}

/// Refuses a decision whose reason is missing or too long.
pub(crate) fn check_reason(reason: &str, pointer: &str) -> Result<(), Refusal> {
    let is_blank = reason.chars().all(|c| c.is_whitespace() || is_hidden(c));
    if is_blank || reason.len() > REASON_BYTES_MAX {
        let problem = format!("must be 1 to {REASON_BYTES_MAX} bytes of visible text");
        return Err(refused("the reason is missing or too long", pointer, problem));
    }
    Ok(())
}
