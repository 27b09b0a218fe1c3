//! Calls that count as not executed: under which approval the record lets them be sent again.

use placet_types::{contract::Dedup, error::ErrorCode, ids::ApprovalId};

use super::{approval_id, attempt, digest};
use crate::record::{Attempt, EffectState};

#[test]
fn a_refused_call_is_resent_only_under_the_approval_it_kept() {
    let (result, other) = (digest(), ApprovalId::new("apr_2").unwrap());
    let approved =
        |class: Dedup| Attempt { class, approval_id: Some(approval_id()), ..attempt(1, "plc_a") };
    let failed = |code, approval_id| EffectState::FailedRetriable { code, result, approval_id };
    for (class, code, kept) in [
        (Dedup::Opaque, ErrorCode::AdapterUnavailable, true),
        (Dedup::Opaque, ErrorCode::AdapterFailed, false),
        (Dedup::Queryable { settle_delay_ms: 1 }, ErrorCode::AdapterFailed, false),
        (Dedup::Keyed { window_ms: 1_000 }, ErrorCode::AdapterFailed, true),
    ] {
        let sent = EffectState::Dispatched(approved(class));
        assert_eq!(sent.may_become(&failed(code, Some(approval_id()))), kept, "{class:?} {code}");
        assert!(sent.may_become(&failed(code, None)));
        assert!(!sent.may_become(&failed(code, Some(other.clone()))));
    }
    let again = EffectState::Dispatched(approved(Dedup::Opaque));
    let code = ErrorCode::AdapterUnavailable;
    assert!(failed(code, Some(approval_id())).may_become(&again));
    assert!(!failed(code, None).may_become(&again));
    assert!(failed(code, None).may_become(&EffectState::Dispatched(attempt(2, "plc_a"))));
}
