//! What callers are told of every cause: the code, and with it the status.

use std::collections::BTreeSet;

use placet_types::error::{ErrorCode, Execution};

use crate::BrokerError;

/// A place in the table for every cause. The list has no rest: a new cause does not compile until it has one.
const fn place(error: &BrokerError) -> usize {
    match error {
        BrokerError::SubjectMissing => 0,
        BrokerError::SubjectExpired => 1,
        BrokerError::SubjectRefused(_) => 2,
        BrokerError::SubjectRevoked => 3,
        BrokerError::NoActor(_) => 4,
        BrokerError::UnknownService(_) => 5,
        BrokerError::ClientSecret(_) => 6,
        BrokerError::ClientRefused(_) => 7,
        BrokerError::ClientNotEntitled(_) => 8,
        BrokerError::Misconfigured(_) => 9,
        BrokerError::Puzzling(_) => 10,
        BrokerError::TargetRefused(_) => 11,
        BrokerError::GrantRefused(_) => 12,
        BrokerError::StrongerSignIn => 13,
        BrokerError::ScopeMissing { .. } => 14,
        BrokerError::Unavailable(_) => 15,
        BrokerError::AnswerRefused(_) => 16,
        BrokerError::TooNarrow => 17,
        BrokerError::OtherHost => 18,
        BrokerError::GrantExpired => 19,
        BrokerError::OutOfTime => 20,
        BrokerError::ExchangeRefused(_) => 21,
        BrokerError::AnswerUnusable(_) => 22,
    }
}

const PLACES: usize = 23;

fn every_cause() -> [(BrokerError, ErrorCode, u16); PLACES] {
    use ErrorCode::{
        AdapterUnavailable as Away, CredentialExpired as Expired,
        CredentialMisconfigured as Misconfigured, CredentialRefused as Refused, DeadlineExceeded,
    };
    let (problem, text, name) = ("it is so", || "it is so".to_owned(), "corp".to_owned());
    [
        (BrokerError::SubjectMissing, Expired, 401),
        (BrokerError::SubjectExpired, Expired, 401),
        (BrokerError::SubjectRefused("invalid_grant"), Expired, 401),
        (BrokerError::SubjectRevoked, Expired, 401),
        (BrokerError::NoActor(problem), Refused, 403),
        (BrokerError::UnknownService(name), Misconfigured, 502),
        (BrokerError::ClientSecret(text()), Misconfigured, 502),
        (BrokerError::ClientRefused("invalid_client"), Misconfigured, 502),
        (BrokerError::ClientNotEntitled("unauthorized_client"), Misconfigured, 502),
        (BrokerError::Misconfigured("invalid_request"), Misconfigured, 502),
        (BrokerError::Puzzling(problem), Misconfigured, 502),
        (BrokerError::TargetRefused("invalid_target"), Refused, 403),
        (BrokerError::GrantRefused("access_denied"), Refused, 403),
        (BrokerError::StrongerSignIn, Refused, 403),
        (BrokerError::ScopeMissing { missing: vec![text()], needed: vec![text()] }, Refused, 403),
        (BrokerError::Unavailable(text()), Away, 503),
        (BrokerError::AnswerRefused(problem), Refused, 403),
        (BrokerError::TooNarrow, Refused, 403),
        (BrokerError::OtherHost, Refused, 403),
        (BrokerError::GrantExpired, Away, 503),
        (BrokerError::OutOfTime, DeadlineExceeded, 504),
        (BrokerError::ExchangeRefused("invalid_request"), Misconfigured, 502),
        (BrokerError::AnswerUnusable(problem), Misconfigured, 502),
    ]
}

#[test]
fn every_cause_has_its_code_and_what_no_caller_can_repair_is_not_laid_at_a_callers_api() {
    let causes = every_cause();
    let places: BTreeSet<usize> = causes.iter().map(|(error, ..)| place(error)).collect();
    assert_eq!(places, (0..PLACES).collect(), "each cause once");
    for (error, code, status) in causes {
        let refused = error.refusal();
        assert_eq!((refused.code, refused.code.http_status()), (code, status), "{error:?}");
        assert_eq!(refused.execution, Execution::NotExecuted, "{error:?}");
        // Anyone who sends messages to operators looks for these codes.
        let is_told = error.for_operators().is_none() || refused.code.lacks_credential();
        assert!(is_told, "{error:?}");
    }
}
