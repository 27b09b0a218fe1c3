//! The effect machine, move by move.

use std::collections::BTreeSet;

use placet_types::{
    clock::Timestamp,
    digest::Digest,
    error::ErrorCode,
    ids::{
        ApprovalId, CapabilityId, CapabilityName, DecisionId, IdempotencyKey, KeyScope,
        PrincipalId, RecordId, RunId, TenantId, ToolCallId,
    },
};
use proptest::prelude::*;

use super::{Attempt, Class, EffectRecord, EffectState, RECORD_VERSION, dispatch_token};

fn digest() -> Digest {
    Digest::of(b"anything")
}

fn approval_id() -> ApprovalId {
    ApprovalId::new("apr_1").unwrap()
}

fn attempt(number: u32, token: &str) -> Attempt {
    Attempt {
        number,
        token: token.to_owned(),
        class: Class::Opaque,
        deadline_at: Timestamp::from_ms(2_000),
        first_dispatched_at: Timestamp::from_ms(1_000),
        after_unknown: false,
        epoch: 1,
        adopted_by: None,
        decision_id: DecisionId::new("dec_1").unwrap(),
        bundle_digest: digest(),
        request_digest: digest(),
        contract_digest: digest(),
        approval_id: None,
    }
}

/// One state of each kind.
fn states() -> Vec<EffectState> {
    let (approval_id, expires_at, result, code) =
        (approval_id(), Timestamp::from_ms(9_000), digest(), ErrorCode::AdapterFailed);
    vec![
        EffectState::Claimed { epoch: 1 },
        EffectState::PendingApproval { approval_id: approval_id.clone(), expires_at },
        EffectState::Approved { approval_id: approval_id.clone(), expires_at },
        EffectState::Dispatched(attempt(1, "plc_a")),
        EffectState::Succeeded { result, resolved_by: None },
        EffectState::FailedFinal { code, result, resolved_by: None },
        EffectState::FailedRetriable { code, result, approval_id: None },
        EffectState::Indeterminate {
            attempt: attempt(1, "plc_a"),
            reason: "lost".to_owned(),
            result, rearm: None
        },
        EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id },
    ]
}

#[test]
fn the_machine_knows_exactly_these_moves() {
    let legal = BTreeSet::from([
        ("claimed", "pending_approval"),
        ("claimed", "dispatched"),
        ("pending_approval", "pending_approval"),
        ("pending_approval", "approved"),
        ("pending_approval", "denied"),
        ("approved", "pending_approval"),
        ("approved", "denied"),
        ("approved", "dispatched"),
        ("dispatched", "succeeded"),
        ("dispatched", "failed_final"),
        ("dispatched", "failed_retriable"),
        ("dispatched", "indeterminate"),
        ("failed_retriable", "dispatched"),
        ("indeterminate", "succeeded"),
        ("indeterminate", "failed_final"),
    ]);
    for from in states() {
        for to in states() {
            let expected = legal.contains(&(from.name(), to.name()));
            assert_eq!(from.may_become(&to), expected, "{} to {}", from.name(), to.name());
        }
    }
}

#[test]
fn a_dispatched_record_is_dispatched_again_only_as_a_later_attempt_with_the_same_token() {
    let keyed = |number, token| {
        EffectState::Dispatched(Attempt {
            class: Class::Keyed { window_ms: 1_000 },
            ..attempt(number, token)
        })
    };
    for (number, token, expected) in [
        (2, "plc_a", true),
        (7, "plc_a", true),
        (1, "plc_a", false),
        (0, "plc_a", false),
        (2, "plc_b", false),
    ] {
        assert_eq!(
            keyed(1, "plc_a").may_become(&keyed(number, token)),
            expected,
            "attempt {number} with {token}"
        );
    }
}

#[test]
fn only_a_class_that_is_safe_to_repeat_is_dispatched_again_without_an_answer() {
    for (class, expected) in [
        (Class::ReadOnly, true),
        (Class::Keyed { window_ms: 1_000 }, true),
        (Class::Queryable { settle_delay_ms: 1_000 }, false),
        (Class::Opaque, false),
    ] {
        let dispatched = |number| {
            EffectState::Dispatched(Attempt { class: class.clone(), ..attempt(number, "plc_a") })
        };
        assert_eq!(dispatched(1).may_become(&dispatched(2)), expected, "{class:?}");
    }
}

#[test]
fn a_second_attempt_cannot_claim_to_be_safer_than_the_first() {
    let first = EffectState::Dispatched(attempt(1, "plc_a"));
    let second = EffectState::Dispatched(Attempt { class: Class::ReadOnly, ..attempt(2, "plc_a") });
    assert!(!first.may_become(&second));
}

#[test]
fn an_unknown_outcome_is_dispatched_again_only_under_a_new_token() {
    let unknown = EffectState::Indeterminate {
        attempt: attempt(1, "plc_a"),
        reason: "lost".to_owned(),
        result: digest(), rearm: None
    };
    for (number, token, expected) in [(2, "plc_b", true), (2, "plc_a", false), (1, "plc_b", false)]
    {
        let next = EffectState::Dispatched(attempt(number, token));
        assert_eq!(unknown.may_become(&next), expected, "attempt {number} with {token}");
    }
}

#[test]
fn an_outcome_is_unknown_only_of_the_attempt_that_was_dispatched() {
    let dispatched = EffectState::Dispatched(attempt(2, "plc_a"));
    for (number, expected) in [(1, false), (2, true), (3, false)] {
        let unknown = EffectState::Indeterminate {
            attempt: attempt(number, "plc_a"),
            reason: "lost".to_owned(),
            result: digest(), rearm: None
        };
        assert_eq!(dispatched.may_become(&unknown), expected, "attempt {number}");
    }
}

#[test]
fn a_dispatch_counts_from_one() {
    assert!(
        !EffectState::Claimed { epoch: 1 }
            .may_become(&EffectState::Dispatched(attempt(0, "plc_a")))
    );
}

#[test]
fn a_key_returns_to_absent_only_where_nothing_has_happened() {
    let removable: Vec<_> =
        states()
        .into_iter()
        .filter(|state| record(state.clone()).may_be_removed())
        .map(|state| state.name())
        .collect();
    assert_eq!(removable, ["claimed", "pending_approval", "approved"]);
}

#[test]
fn recovery_looks_at_what_has_no_end_yet() {
    let open: Vec<_> =
        states().iter().filter(|state| state.is_open()).map(EffectState::name).collect();
    assert_eq!(open, ["claimed", "pending_approval", "approved", "dispatched"]);
}

fn scope() -> KeyScope {
    KeyScope {
        tenant: TenantId::new("acme").unwrap(),
        kind: placet_types::principal::PrincipalKind::Agent,
        agent: PrincipalId::new("scribe").unwrap(),
        on_behalf_of: None,
        capability: CapabilityId::from_tool_name("files__delete").unwrap(),
    }
}

fn record(state: EffectState) -> EffectRecord {
    let key = IdempotencyKey::new("k1").unwrap();
    EffectRecord {
        version: RECORD_VERSION,
        record_id: RecordId::derive(&scope(), &key),
        scope: scope(),
        key,
        call_id: ToolCallId::new("call_1").unwrap(),
        run_id: RunId::new("run_1").unwrap(),
        requested_digest: digest(),
        parked: digest(),
        created_at: Timestamp::from_ms(0),
        updated_at: Timestamp::from_ms(0),
        rev: 4,
        arm: 1,
        attempts: 1,
        unknown: None,
        state,
    }
}

#[test]
fn a_move_counts_and_a_dispatch_counts_the_attempt() {
    let now = Timestamp::from_ms(5);
    let retriable = record(EffectState::FailedRetriable {
        code: ErrorCode::AdapterUnavailable,
        result: digest(),
        approval_id: None,
    });
    let dispatched = retriable.moved(EffectState::Dispatched(attempt(2, "plc_a")), now).unwrap();
    assert_eq!((dispatched.rev, dispatched.attempts, dispatched.updated_at), (5, 2, now));
    let settled = dispatched.moved(EffectState::Succeeded { result: digest(), resolved_by: None }, now).unwrap();
    assert_eq!((settled.rev, settled.attempts), (6, 2));
    let error = settled.moved(EffectState::Claimed { epoch: 2 }, now).unwrap_err();
    assert_eq!((error.from, error.to), ("succeeded", "claimed"));
}

#[test]
fn every_state_survives_its_json() {
    for state in states() {
        let before = record(state);
        let text = serde_json::to_string(&before).unwrap();
        assert_eq!(serde_json::from_str::<EffectRecord>(&text).unwrap(), before);
        assert!(text.contains(before.state.name()), "{text}");
    }
}

#[test]
fn a_record_with_a_field_from_the_future_is_refused() {
    let mut json = serde_json::to_value(record(EffectState::Claimed { epoch: 1 })).unwrap();
    json["later"] = serde_json::json!(1);
    assert!(serde_json::from_value::<EffectRecord>(json).is_err());
}

proptest! {
    #[test]
    fn a_token_is_one_records_and_one_arms(a in "[a-z]{1,8}", b in "[a-z]{1,8}", arm in 0_u32..3, other in 0_u32..3) {
        let id = |key: &str| RecordId::derive(&scope(), &IdempotencyKey::new(key).unwrap());
        let token = dispatch_token(&id(&a), arm);
        prop_assert_eq!(&token, &dispatch_token(&id(&a), arm));
        prop_assert_eq!(token == dispatch_token(&id(&b), other), a == b && arm == other);
        prop_assert!(CapabilityName::new(token.clone()).is_ok(), "{} is no plain word", token);
        prop_assert_eq!(token.len(), 44);
    }

    #[test]
    fn no_path_leaves_an_end(steps in proptest::collection::vec(0_usize..9, 1..12)) {
        let kinds = states();
        let mut current = record(EffectState::Claimed { epoch: 1 });
        for step in steps {
            let before = current.clone();
            if let Ok(next) = current.moved(kinds[step].clone(), Timestamp::from_ms(1)) {
                current = next;
            }
            if matches!(before.state.name(), "succeeded" | "failed_final" | "denied") {
                prop_assert_eq!(&current, &before);
            }
        }
    }
}

#[test]
fn every_state_that_a_stored_record_can_be_in_is_named() {
    for state in states() {
        let listed = EffectState::NAMES.contains(&state.name());
        assert_eq!(listed, !matches!(state, EffectState::Claimed { .. }), "{}", state.name());
    }
    assert_eq!(EffectState::NAMES.len().saturating_add(1), names(&states()).len());
}

fn names(states: &[EffectState]) -> std::collections::BTreeSet<&'static str> {
    states.iter().map(EffectState::name).collect()
}
