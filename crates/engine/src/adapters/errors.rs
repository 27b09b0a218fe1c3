//! What a failure of an adapter says to the caller, to operators and to the log.
//!
//! Owns the words. Invariant: nothing that a server says of itself reaches a caller, and no argument of a call reaches the log.

use placet_adapter::outcome::AdapterError;
use placet_types::{
    contract::credential::CredentialKind,
    error::{ErrorCode, Refusal},
};

/// What the caller is told when the target knows the credential but does not allow the call with it.
pub(crate) const FORBIDDEN: &str =
    "the target does not allow the call with this credential; nothing was executed";

/// What the caller is told when the live definition of a tool is not the one that was reviewed.
pub(crate) fn tool_changed() -> Refusal {
    Refusal::new(
        ErrorCode::ToolChanged,
        "the tool changed upstream since it was reviewed; an operator has to review it; nothing was executed",
    )
}

/// What the caller is told about a failure before which nothing happened, when the target was sent a credential of this kind.
pub(crate) fn unavailable(error: &AdapterError, kind: CredentialKind) -> Refusal {
    let (code, message) = match error {
        AdapterError::SchemaMismatch(_) => return tool_changed().with_detail(error),
        AdapterError::CredentialRefused(_) => {
            let is_ours = is_ours(kind);
            let code = if is_ours {
                ErrorCode::CredentialMisconfigured
            } else {
                ErrorCode::CredentialRefused
            };
            (code, "the target refused the credential; nothing was executed")
        }
        // A target that knows the credential may object to what the call asks for, which is the caller's choice.
        AdapterError::Forbidden(_) => (ErrorCode::CredentialRefused, FORBIDDEN),
        AdapterError::Refused(reason) => {
            return Refusal::new(
                ErrorCode::AdapterFailed,
                format!("the tool refused the call: {}", shown(reason)),
            )
            .with_detail(logged(error));
        }
        AdapterError::Unavailable(_)
        | AdapterError::NoSession(_)
        | AdapterError::InvalidResponse(_)
        | AdapterError::Misconfigured(_) => {
            (ErrorCode::AdapterUnavailable, "the tool cannot be reached; nothing was executed")
        }
    };
    Refusal::new(code, message).with_detail(error)
}

/// What the caller is told about a failure before the call was sent. What a server says about its own listing or greeting goes to the log
/// only: no record would bring it into the run, as happens with answers to a call.
pub(crate) fn unreached(error: AdapterError) -> Refusal {
    // Whatever credential calls are sent with: before there is one, the contract's own secret is presented, or nothing.
    let kind = CredentialKind::StaticSecret;
    match error {
        AdapterError::Refused(reason) => unavailable(&AdapterError::Unavailable(reason), kind),
        // It contained nothing of a call that its caller could change.
        AdapterError::Forbidden(_) => {
            Refusal::new(ErrorCode::CredentialMisconfigured, FORBIDDEN).with_detail(error)
        }
        AdapterError::SchemaMismatch(_)
        | AdapterError::CredentialRefused(_)
        | AdapterError::NoSession(_)
        | AdapterError::Unavailable(_)
        | AdapterError::InvalidResponse(_)
        | AdapterError::Misconfigured(_) => unavailable(&error, kind),
    }
}

/// The error for the log and the audit. A tool that refuses tends to quote its arguments, which belong in neither.
pub(crate) fn logged(error: &AdapterError) -> String {
    if matches!(error, AdapterError::Refused(_)) {
        return "refused by the tool, in words that only the caller is told".to_owned();
    }
    error.to_string()
}

/// The tool's own words, bounded.
fn shown(reason: &str) -> String {
    reason.chars().filter(|c| !c.is_control()).take(500).collect()
}

/// What operators are told of a target that does not accept it.
pub(crate) const NOT_TAKEN: &str = "the target does not accept the credential";

/// What operators are told of one that knows it but does not allow the call.
pub(crate) const NOT_ALLOWED: &str = "the target does not allow the call with the credential";

/// What an operator has to fix after this failure, in our words; `None` where it is not the credential.
pub(crate) const fn fault_of(error: &AdapterError) -> Option<&'static str> {
    match error {
        AdapterError::CredentialRefused(_) => Some(NOT_TAKEN),
        AdapterError::Forbidden(_) => Some(NOT_ALLOWED),
        AdapterError::Unavailable(_)
        | AdapterError::NoSession(_)
        | AdapterError::SchemaMismatch(_)
        | AdapterError::InvalidResponse(_)
        | AdapterError::Misconfigured(_)
        | AdapterError::Refused(_) => None,
    }
}

/// Whether operators have to fix a target's refusal of a credential of this kind, because it fails for every caller. A credential minted
/// for a user may be refused because of that user.
pub(crate) const fn is_ours(kind: CredentialKind) -> bool {
    match kind {
        CredentialKind::StaticSecret | CredentialKind::ClientCredentials => true,
        CredentialKind::TokenExchange => false,
    }
}
