//! The effect machine, move by move.

use std::collections::BTreeSet;

use placet_types::{
    clock::Timestamp,
    contract::Dedup,
    digest::Digest,
    error::ErrorCode,
    ids::{
        ApprovalId, CapabilityId, CapabilityName, DecisionId, IdempotencyKey, PrincipalId,
        RecordId, RunId, TenantId, ToolCallId,
    },
    principal::KeyScope,
};
use proptest::prelude::*;

use super::{
    Attempt, EffectRecord, EffectState, RECORD_VERSION, Rearm, Resolution, dispatch_token,
};

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
        class: Dedup::Opaque,
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
        grant: None,
        reserve: None,
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
            result,
            rearm: None,
        },
        EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id },
        EffectState::Rearmed { by: vec![word("olga")] },
    ]
}

fn word(operator: &str) -> Rearm {
    Rearm {
        operator: PrincipalId::new(operator).unwrap(),
        evidence: "the bank's statement does not show it".to_owned(),
        at: Timestamp::from_ms(5_000),
    }
}

fn operator() -> Resolution {
    Resolution::Operator { operator: PrincipalId::new("olga").unwrap() }
}

fn unknown(number: u32, rearm: Option<Rearm>) -> EffectState {
    EffectState::Indeterminate {
        attempt: attempt(number, "plc_a"),
        reason: "lost".to_owned(),
        result: digest(),
        rearm: rearm.map(Box::new),
    }
}

fn tombstone_of(state: &EffectState) -> EffectState {
    EffectState::Tombstone {
        was: state.name().to_owned(),
        code: state.code(),
        settled_at: Timestamp::from_ms(0),
    }
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
        ("failed_retriable", "pending_approval"),
        ("indeterminate", "rearmed"),
        ("rearmed", "pending_approval"),
        ("rearmed", "dispatched"),
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
            class: Dedup::Keyed { window_ms: 1_000 },
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
        (Dedup::ReadOnly, true),
        (Dedup::Keyed { window_ms: 1_000 }, true),
        (Dedup::Queryable { settle_delay_ms: 1_000 }, false),
        (Dedup::Opaque, false),
    ] {
        let dispatched =
            |number| EffectState::Dispatched(Attempt { class, ..attempt(number, "plc_a") });
        assert_eq!(dispatched(1).may_become(&dispatched(2)), expected, "{class:?}");
    }
}

#[test]
fn a_second_attempt_cannot_claim_to_be_safer_than_the_first() {
    let first = EffectState::Dispatched(attempt(1, "plc_a"));
    let second = EffectState::Dispatched(Attempt { class: Dedup::ReadOnly, ..attempt(2, "plc_a") });
    assert!(!first.may_become(&second));
}

#[test]
fn an_unknown_outcome_is_never_dispatched_again_without_a_re_arm() {
    for (number, token) in [(2, "plc_b"), (2, "plc_a"), (1, "plc_b")] {
        let next = EffectState::Dispatched(attempt(number, token));
        assert!(!unknown(1, None).may_become(&next), "attempt {number} with {token}");
    }
}

#[test]
fn an_unknown_outcome_ends_only_with_evidence_about_its_own_attempt() {
    let ends = |resolved_by: Option<Resolution>| {
        [
            EffectState::Succeeded { result: digest(), resolved_by: resolved_by.clone() },
            EffectState::FailedFinal {
                code: ErrorCode::AdapterFailed,
                result: digest(),
                resolved_by,
            },
        ]
    };
    for (by, expected) in [
        (None, false),
        (Some(Resolution::LateAnswer { attempt: 2 }), true),
        (Some(Resolution::LateAnswer { attempt: 1 }), false),
        (Some(Resolution::Probe { attempt: 2 }), true),
        (Some(Resolution::Probe { attempt: 3 }), false),
        (Some(operator()), true),
    ] {
        for end in ends(by.clone()) {
            assert_eq!(unknown(2, None).may_become(&end), expected, "{by:?}");
        }
    }
    let dispatched = EffectState::Dispatched(attempt(2, "plc_a"));
    for end in ends(Some(operator())) {
        assert!(!dispatched.may_become(&end), "nobody resolves what is under way");
    }
}

#[test]
fn a_re_arm_takes_the_first_operator_and_another_person() {
    let rearmed =
        |by: &[&str]| EffectState::Rearmed { by: by.iter().map(|one| word(one)).collect() };
    assert!(unknown(1, None).may_become(&unknown(1, Some(word("olga")))));
    assert!(!unknown(1, Some(word("olga"))).may_become(&unknown(1, Some(word("piet")))));
    let asked = unknown(1, Some(word("olga")));
    for (by, expected) in [
        (&["olga", "piet"][..], true),
        (&["piet", "olga"], true),
        (&["olga", "olga"], false),
        (&["piet", "rosa"], false),
        (&[], false),
    ] {
        assert_eq!(asked.may_become(&rearmed(by)), expected, "{by:?}");
    }
}

#[test]
fn a_re_armed_record_has_a_new_token_and_never_forgets_what_is_unknown() {
    let now = Timestamp::from_ms(9_000);
    let lost = record(unknown(1, None));
    let rearmed = lost.moved(EffectState::Rearmed { by: vec![word("olga")] }, now).unwrap();
    assert_eq!((rearmed.arm, rearmed.unknown.is_some()), (2, true));
    assert_ne!(
        dispatch_token(&lost.record_id, lost.arm),
        dispatch_token(&rearmed.record_id, rearmed.arm)
    );
    let pending = EffectState::PendingApproval { approval_id: approval_id(), expires_at: now };
    let approved = EffectState::Approved { approval_id: approval_id(), expires_at: now };
    let pending = rearmed.moved(pending, now).unwrap();
    let approved = pending.moved(approved, now).unwrap();
    for waiting in [&rearmed, &pending, &approved] {
        assert!(!waiting.may_be_removed(), "{}", waiting.state.name());
        let denied =
            EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id: approval_id() };
        assert!(waiting.moved(denied.clone(), now).is_err());
        let ended = waiting.moved(waiting.ended_without_dispatch(denied), now).unwrap();
        assert_eq!(ended.state, lost.state);
    }
    let careless = EffectState::Dispatched(attempt(2, "plc_b"));
    assert!(approved.moved(careless, now).is_err(), "an attempt that forgets the earlier one");
    let careful = Attempt { after_unknown: true, ..attempt(2, "plc_b") };
    let sent = approved.moved(EffectState::Dispatched(careful), now).unwrap();
    for not_executed in [
        EffectState::FailedRetriable {
            code: ErrorCode::AdapterUnavailable,
            result: digest(),
            approval_id: None,
        },
        EffectState::FailedFinal {
            code: ErrorCode::AdapterFailed,
            result: digest(),
            resolved_by: None,
        },
    ] {
        assert!(sent.moved(not_executed, now).is_err());
    }
    let done = EffectState::Succeeded { result: digest(), resolved_by: None };
    assert!(sent.moved(done, now).is_ok());
}

#[test]
fn a_dispatch_is_adopted_by_another_epoch_and_with_nothing_else_changed() {
    let first = attempt(1, "plc_a");
    let adopted = |by| Attempt { adopted_by: Some(by), ..attempt(1, "plc_a") };
    let moves = |from: &Attempt, to: &Attempt| {
        EffectState::Dispatched(from.clone()).may_become(&EffectState::Dispatched(to.clone()))
    };
    assert_eq!((first.duty(), adopted(4).duty()), (1, 4));
    assert!(moves(&first, &adopted(2)) && moves(&adopted(2), &adopted(3)));
    assert!(moves(&adopted(3), &adopted(2)), "the survivor may be the older one");
    assert!(
        !moves(&first, &adopted(1)) && !moves(&adopted(3), &adopted(3)),
        "nothing changes hands"
    );
    assert!(!moves(&first, &Attempt { number: 2, ..adopted(2) }), "an adoption sends nothing");
    assert!(record(EffectState::Dispatched(first.clone())).is_orphaned(2));
    assert!(!record(EffectState::Dispatched(adopted(2))).is_orphaned(2));
}

#[test]
fn what_has_come_to_its_end_becomes_a_tombstone_that_says_how_it_ended() {
    for state in states() {
        let settled = ["succeeded", "failed_final", "failed_retriable", "denied"];
        let tombstone = tombstone_of(&state);
        assert_eq!(
            state.may_become(&tombstone),
            settled.contains(&state.name()),
            "{}",
            state.name()
        );
        for next in states() {
            assert!(!tombstone.may_become(&next), "a tombstone became {}", next.name());
        }
    }
    let done = EffectState::Succeeded { result: digest(), resolved_by: None };
    let denied =
        EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id: approval_id() };
    assert!(!done.may_become(&tombstone_of(&denied)), "a tombstone that lies");
}

#[test]
fn a_tombstone_is_forgotten_only_where_its_key_tells_its_age() {
    let done = EffectState::Succeeded { result: digest(), resolved_by: None };
    let buried = record(tombstone_of(&done));
    assert!(!buried.may_be_forgotten());
    let aged = |state| EffectRecord {
        key: IdempotencyKey::new("01ARZ3NDEKTSV4RRFFQ69G5FAV").unwrap(),
        ..record(state)
    };
    assert!(aged(tombstone_of(&done)).may_be_forgotten());
    assert!(!aged(done).may_be_forgotten(), "a result is buried first");
}

#[test]
fn an_outcome_is_unknown_only_of_the_attempt_that_was_dispatched() {
    let dispatched = EffectState::Dispatched(attempt(2, "plc_a"));
    for (number, expected) in [(1, false), (2, true), (3, false)] {
        assert_eq!(dispatched.may_become(&unknown(number, None)), expected, "attempt {number}");
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
    let removable: Vec<_> = states()
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
    assert_eq!(open, ["claimed", "pending_approval", "approved", "dispatched", "rearmed"]);
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
    let settled = dispatched
        .moved(EffectState::Succeeded { result: digest(), resolved_by: None }, now)
        .unwrap();
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
    let denied =
        EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id: approval_id() };
    let all: Vec<_> = states().into_iter().chain([tombstone_of(&denied)]).collect();
    for state in &all {
        let listed = EffectState::NAMES.contains(&state.name());
        assert_eq!(listed, !matches!(state, EffectState::Claimed { .. }), "{}", state.name());
    }
    assert_eq!(EffectState::NAMES.len().saturating_add(1), names(&all).len());
}

fn names(states: &[EffectState]) -> std::collections::BTreeSet<&'static str> {
    states.iter().map(EffectState::name).collect()
}

mod evidence;
mod refused;
