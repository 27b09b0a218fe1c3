//! What callers are told when the ledger fails.
//!
//! Owns one refusal for each cause, and that an error of the ledger tells a caller no more than it should. Decides nothing.

use placet_types::error::{ErrorCode, Execution, Refusal};

use crate::{ledger::LedgerError, store::StoreError};

/// A refusal for what can happen only through a bug in the engine.
pub fn internal(error: impl std::fmt::Display) -> Refusal {
    Refusal::new(ErrorCode::Internal, "a fault inside the engine; nothing was executed")
        .with_detail(error)
}

/// Checks that a state to list by exists; a misspelt one would list nothing, which looks like an answer.
///
/// # Errors
/// [`ErrorCode::ValidationError`] naming the existing states.
pub fn known_state(state: Option<&str>, names: &[&str]) -> Result<(), Refusal> {
    if state.is_none_or(|state| names.contains(&state)) {
        return Ok(());
    }
    let problem = format!("must be one of {}", names.join(", "));
    Err(Refusal::new(ErrorCode::ValidationError, "there is no such state")
        .with_problem("/state", problem))
}

/// A refusal because the ledger cannot tell the state of a call.
pub fn lookup_refusal(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(
        ErrorCode::LedgerUnavailable,
        "the ledger cannot say how this call stands; ask again, or repeat it with the same key",
    )
    .with_execution(Execution::Unknown)
    .with_detail(error)
}

/// A refusal because the ledger failed to do it.
pub fn ledger_refusal(error: &LedgerError) -> Refusal {
    let unavailable = || {
        Refusal::new(
            ErrorCode::LedgerUnavailable,
            "the ledger cannot be written; nothing was executed",
        )
    };
    let refusal = match error {
        LedgerError::Store(StoreError::BudgetExhausted) => {
            Refusal::new(ErrorCode::BudgetExhausted, "the run has used up its budget")
        }
        LedgerError::Store(StoreError::Conflict) => {
            Refusal::new(ErrorCode::InProgress, "the same call moved on at this moment; repeat it")
                .with_retry_after_ms(50)
        }
        LedgerError::Vote(vote) => Refusal::new(ErrorCode::ValidationError, vote.to_string()),
        LedgerError::SamePerson => Refusal::new(
            ErrorCode::ValidationError,
            "another person than the first has to agree that the call is sent again",
        ),
        LedgerError::Store(StoreError::PolicyMoved) => Refusal::new(
            ErrorCode::Overloaded,
            "the policies changed while this call was decided; repeat it",
        ),
        LedgerError::Store(StoreError::DirectiveMoved) => Refusal::new(
            ErrorCode::Overloaded,
            "freezes, grants or revocations changed while this call was decided; repeat it",
        ),
        LedgerError::Store(StoreError::GrantSpent) => Refusal::new(
            ErrorCode::InProgress,
            "a standing grant was used up at this moment; repeat the call",
        )
        .with_retry_after_ms(50),
        LedgerError::Store(StoreError::Uncertain(_)) => Refusal::new(
            ErrorCode::LedgerUnavailable,
            "the ledger stopped while it kept this, and whether it is kept is not known yet; ask again, or repeat the call with the same key",
        )
        .with_execution(Execution::Unknown),
        LedgerError::Store(StoreError::LockTimeout(_)) => Refusal::new(
            ErrorCode::LedgerUnavailable,
            "this is not in force: it has to wait for every node, and one that hangs, or another session of the database, holds it up; \
             try again at once, and have an operator stop that node or end that session; the log says how to find it",
        )
        .with_retry_after_ms(1_000),
        LedgerError::Store(_) => unavailable(),
        LedgerError::PermitMismatch
        | LedgerError::EditMismatch
        | LedgerError::WrongState(_)
        | LedgerError::Encoding(_) => internal(error),
    };
    refusal.with_detail(error)
}
