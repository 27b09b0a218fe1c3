//! What people are told when the approval service refuses something that policy did not.
//!
//! Owns the words, and the check of a reason, which every decision needs.

use placet_ledger::approval::VoteError;
use placet_types::error::{ErrorCode, Problem, Refusal};

/// The longest reason, in bytes.
const REASON_BYTES_MAX: usize = 2_000;

/// A token that counts no more: somebody revoked what its subject had.
#[must_use]
pub fn revoked() -> Refusal {
    Refusal::new(
        ErrorCode::CredentialExpired,
        "the token is no longer accepted; get a new one for the same principal and repeat the same call",
    )
    .with_detail("an operator has revoked the subject's tokens")
}

/// So many decide at the same time that this one did not come through.
pub(crate) fn crowded() -> Refusal {
    Refusal::new(
        ErrorCode::InProgress,
        "others are deciding at this moment; look at the approval again",
    )
}

/// A decision that does not count.
pub(crate) fn not_counted(error: &VoteError) -> Refusal {
    let refusal = Refusal::new(ErrorCode::ValidationError, error.to_string());
    match error {
        VoteError::Stale => refusal.with_problems(vec![Problem {
            pointer: "/digest".to_owned(),
            problem: "is not the digest of the current proposal".to_owned(),
        }]),
        VoteError::Elsewhere => refusal.with_problems(vec![Problem {
            pointer: "/args".to_owned(),
            problem: "would have other tenants asked than those that are".to_owned(),
        }]),
        VoteError::Late { .. }
        | VoteError::Twice
        | VoteError::Author
        | VoteError::Full
        | VoteError::NotAsked
        | VoteError::Unchanged => refusal,
    }
}

pub(crate) fn invalid(pointer: &str, problem: impl Into<String>) -> Refusal {
    Refusal::new(ErrorCode::ValidationError, "this cannot be arranged")
        .with_problems(vec![Problem { pointer: pointer.to_owned(), problem: problem.into() }])
}

/// What is said of a place to go on from that is not there.
pub(crate) fn gone() -> Refusal {
    let problem = "the list has no such place any more; read it from the start".to_owned();
    Refusal::new(ErrorCode::ValidationError, "there is no such place to go on from")
        .with_problems(vec![Problem { pointer: "/after".to_owned(), problem }])
}

/// Refuses a decision without a reason, or with a novel.
pub(crate) fn check_reason(reason: &str, pointer: &str) -> Result<(), Refusal> {
    if reason.trim().is_empty() || reason.len() > REASON_BYTES_MAX {
        let problem = format!("must be 1 to {REASON_BYTES_MAX} bytes of text");
        return Err(Refusal::new(ErrorCode::ValidationError, "a decision needs a reason")
            .with_problems(vec![Problem { pointer: pointer.to_owned(), problem }]));
    }
    Ok(())
}
