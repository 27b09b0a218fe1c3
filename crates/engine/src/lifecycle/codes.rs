//! What an error code means for the call that it refuses before anything was sent: one table.
//!
//! Owns what becomes of the record and the approval, and whether it is a security event. Whether the caller may repeat the call is
//! [`ErrorCode::retryable`]. The table is the same for a call that waits under its approval, one that operators re-armed, and one that was
//! sent before.

use placet_credentials::Remedy;
use placet_types::error::ErrorCode;

/// What becomes of a call that is refused before it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Prospect {
    /// The obstacle may pass, or be removed: the approval and the record stay, and the engine tries again.
    Retry,
    /// Only a new token of its caller helps: the approval and the record stay until that comes.
    AwaitCaller,
    /// Waiting would not help.
    End,
}

/// Why a call is refused, where its code alone does not say what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The code alone.
    Code,
    /// A lockdown is in force.
    Lockdown,
    /// There is no credential; the remedy says who or what can provide one.
    Credential(Remedy),
}

/// What becomes of a call that is refused with this code for this cause.
pub(crate) const fn prospect(code: ErrorCode, cause: Cause) -> Prospect {
    match cause {
        Cause::Code => of_code(code),
        Cause::Lockdown => Prospect::Retry,
        Cause::Credential(Remedy::Time | Remedy::Operator) => Prospect::Retry,
        Cause::Credential(Remedy::Caller) => Prospect::AwaitCaller,
        Cause::Credential(Remedy::None) => Prospect::End,
    }
}

/// The table. A code whose obstacle does not pass ends the call: approval is then asked for again rather than kept.
const fn of_code(code: ErrorCode) -> Prospect {
    match code {
        ErrorCode::AdapterUnavailable
        | ErrorCode::BudgetExhausted
        | ErrorCode::CredentialMisconfigured
        | ErrorCode::DeadlineExceeded
        | ErrorCode::IdentityUnavailable
        | ErrorCode::InProgress
        | ErrorCode::LedgerUnavailable
        | ErrorCode::Overloaded
        | ErrorCode::RateLimited => Prospect::Retry,
        ErrorCode::CredentialExpired => Prospect::AwaitCaller,
        ErrorCode::AdapterFailed
        | ErrorCode::ApprovalDenied
        | ErrorCode::ApprovalExpired
        | ErrorCode::ApprovalPending
        | ErrorCode::ApprovalVoid
        | ErrorCode::ApprovalWithdrawn
        | ErrorCode::ControlConflict
        | ErrorCode::CredentialRefused
        | ErrorCode::IdempotencyConflict
        | ErrorCode::Internal
        | ErrorCode::KeyTooOld
        | ErrorCode::ModeUpgraded
        | ErrorCode::NotFound
        | ErrorCode::OutcomeUnknown
        | ErrorCode::PolicyDenied
        | ErrorCode::PolicyError
        | ErrorCode::ResultExpired
        | ErrorCode::RunNotFound
        | ErrorCode::RunTaken
        | ErrorCode::ToolChanged
        | ErrorCode::ToolNotFound
        | ErrorCode::Unauthenticated
        | ErrorCode::ValidationError => Prospect::End,
    }
}

/// Whether the refusal is a security event, whatever the call (TM-15).
pub(crate) const fn is_security_event(code: ErrorCode) -> bool {
    matches!(code, ErrorCode::ModeUpgraded | ErrorCode::PolicyError | ErrorCode::ToolChanged)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_has_one_prospect() {
        let with = |wanted: Prospect| -> Vec<&str> {
            let codes = ErrorCode::ALL.iter().copied();
            codes
                .filter(|code| prospect(*code, Cause::Code) == wanted)
                .map(ErrorCode::as_str)
                .collect()
        };
        assert_eq!(
            with(Prospect::Retry),
            [
                "IDENTITY_UNAVAILABLE",
                "IN_PROGRESS",
                "CREDENTIAL_MISCONFIGURED",
                "RATE_LIMITED",
                "BUDGET_EXHAUSTED",
                "DEADLINE_EXCEEDED",
                "ADAPTER_UNAVAILABLE",
                "OVERLOADED",
                "LEDGER_UNAVAILABLE",
            ]
        );
        assert_eq!(with(Prospect::AwaitCaller), ["CREDENTIAL_EXPIRED"]);
    }

    #[test]
    fn the_remedy_of_a_credential_decides_whatever_its_code() {
        for code in [ErrorCode::CredentialRefused, ErrorCode::CredentialMisconfigured] {
            for (remedy, wanted) in [
                (Remedy::Time, Prospect::Retry),
                (Remedy::Operator, Prospect::Retry),
                (Remedy::Caller, Prospect::AwaitCaller),
                (Remedy::None, Prospect::End),
            ] {
                assert_eq!(prospect(code, Cause::Credential(remedy)), wanted, "{code} {remedy:?}");
            }
        }
    }

    #[test]
    fn a_lockdown_ends_nothing_and_a_denial_by_policy_does() {
        assert_eq!(prospect(ErrorCode::PolicyDenied, Cause::Lockdown), Prospect::Retry);
        assert_eq!(prospect(ErrorCode::PolicyDenied, Cause::Code), Prospect::End);
    }
}
