//! The whole table: every state with every event.

use placet_adapter::outcome::{Answer, Rejection};
use placet_types::contract::not_executed::ErrorAnswer;

use super::*;

const CLASSES: [Dedup; 4] = [
    Dedup::ReadOnly,
    Dedup::Keyed { window_ms: 60_000 },
    Dedup::Queryable { settle_delay_ms: 1_000 },
    Dedup::Opaque,
];
const KEYED: Dedup = Dedup::Keyed { window_ms: 60_000 };
const BOTH: [bool; 2] = [false, true];

/// Every possible [`Sent`].
fn all_sent() -> Vec<Sent> {
    let mut all = Vec::new();
    for class in CLASSES {
        for (in_window, can_ask) in [(false, false), (false, true), (true, false), (true, true)] {
            for is_ours in BOTH {
                all.push(Sent { class, in_window, can_ask, is_ours });
            }
        }
    }
    all
}

fn all_states() -> Vec<State> {
    let mut all = vec![
        State::Absent,
        State::Claimed,
        State::Pending,
        State::Approved,
        State::Rearmed,
        State::Retriable,
        State::Indeterminate,
        State::Final,
        State::Tombstone,
    ];
    all.extend(all_sent().into_iter().map(State::Dispatched));
    all
}

fn all_refused() -> Vec<Refused> {
    let mut all = Vec::new();
    for prospect in [Prospect::Retry, Prospect::AwaitCaller, Prospect::End] {
        for is_own in BOTH {
            all.extend(BOTH.map(|is_ending| Refused { prospect, is_own, is_ending }));
        }
    }
    all
}

fn all_answered() -> Vec<Answered> {
    let mut all = Vec::new();
    for reply in [
        Reply::Conclusive,
        Reply::Unreachable,
        Reply::CredentialRefused,
        Reply::Garbled,
        Reply::Unknown,
    ] {
        for bits in 0_u8..32 {
            let bit = |number: u8| bits & (1 << number) != 0;
            all.push(Answered {
                reply,
                has_tries: bit(0),
                is_recovered: bit(1),
                is_listening: bit(2),
                is_ending: bit(3),
                has_another: bit(4),
            });
        }
    }
    all
}

fn may_go_out_again(sent: Sent) -> bool {
    match sent.class {
        Dedup::ReadOnly => true,
        Dedup::Keyed { .. } => sent.in_window,
        Dedup::Queryable { .. } | Dedup::Opaque => false,
    }
}

#[test]
fn only_what_its_target_recognises_goes_out_again() {
    for sent in all_sent() {
        let state = State::Dispatched(sent);
        let mut again = vec![
            step(state, Orphaned) == Some(Recourse::SendAgain),
            step(state, Due) == AfterPause::TryAgain,
        ];
        for refused in all_refused() {
            again.push(step(state, refused) == AfterRefusal::Defer);
        }
        for answered in all_answered() {
            let action = step(state, answered);
            let has_settled = action == AfterAnswer::SettleAndTryAgain;
            // A target that does not know the credential has done nothing, and that is recorded first.
            assert!(!has_settled || answered.reply == Reply::CredentialRefused, "{answered:?}");
            again.push(matches!(action, AfterAnswer::TryAgain | AfterAnswer::Defer));
        }
        assert!(!again.contains(&true) || may_go_out_again(sent), "{sent:?}");
    }
}

#[test]
fn an_orphan_is_sent_again_asked_about_or_unknown_by_its_class() {
    let orphan = |class, in_window, can_ask| {
        step(State::Dispatched(Sent { class, in_window, can_ask, is_ours: true }), Orphaned)
    };
    let queryable = Dedup::Queryable { settle_delay_ms: 1_000 };
    assert_eq!(orphan(Dedup::ReadOnly, true, false), Some(Recourse::SendAgain));
    assert_eq!(orphan(KEYED, true, true), Some(Recourse::SendAgain));
    assert_eq!(orphan(KEYED, false, true), Some(Recourse::Ask));
    assert_eq!(orphan(KEYED, false, false), Some(Recourse::GiveUp));
    assert_eq!(orphan(queryable, false, true), Some(Recourse::Ask));
    assert_eq!(orphan(Dedup::Opaque, false, false), Some(Recourse::GiveUp));
    for state in all_states() {
        let was_sent = matches!(state, State::Dispatched(_));
        assert_eq!(step(state, Orphaned).is_some(), was_sent, "{state:?}");
    }
}

#[test]
fn of_what_may_have_happened_nobody_is_told_not_executed() {
    for state in all_states() {
        if !matches!(state, State::Dispatched(_) | State::Rearmed) {
            continue;
        }
        for refused in all_refused() {
            let action = step(state, refused);
            assert!(
                !matches!(
                    action,
                    AfterRefusal::Tell | AfterRefusal::Release | AfterRefusal::EndApproval
                ),
                "{state:?} {refused:?} {action:?}"
            );
        }
        let action = step(state, Abandoned { was_sent: false });
        assert!(!matches!(action, AfterDeath::Tell | AfterDeath::Release), "{state:?} {action:?}");
    }
}

#[test]
fn an_obstacle_that_passes_ends_no_approval_and_no_rearm() {
    for is_own in BOTH {
        for is_ending in BOTH {
            for prospect in [Prospect::Retry, Prospect::AwaitCaller] {
                let refused = Refused { prospect, is_own, is_ending };
                for state in [State::Pending, State::Approved, State::Rearmed] {
                    let action = step(state, refused);
                    assert!(
                        !matches!(action, AfterRefusal::EndApproval | AfterRefusal::Disarm),
                        "{state:?} {refused:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_client_never_takes_back_what_operators_decided() {
    for refused in all_refused() {
        let ends = step(State::Rearmed, refused) == AfterRefusal::Disarm;
        assert_eq!(ends, refused.is_own && refused.prospect == Prospect::End, "{refused:?}");
    }
}

#[test]
fn a_sent_call_that_may_not_go_out_again_is_asked_about() {
    let refused = Refused { prospect: Prospect::End, is_own: true, is_ending: false };
    for sent in all_sent() {
        let wanted = if sent.can_ask { AfterRefusal::Ask } else { AfterRefusal::GiveUp };
        assert_eq!(step(State::Dispatched(sent), refused), wanted, "{sent:?}");
    }
}

#[test]
fn a_conclusive_answer_is_always_recorded() {
    for state in all_states() {
        for answered in all_answered() {
            if answered.reply == Reply::Conclusive {
                assert_eq!(step(state, answered), AfterAnswer::Settle, "{state:?}");
            }
        }
    }
}

#[test]
fn a_keyed_call_without_an_answer_waits_for_nobody_who_is_gone() {
    let state =
        State::Dispatched(Sent { class: KEYED, in_window: true, can_ask: false, is_ours: true });
    let answered = Answered {
        reply: Reply::Unknown,
        has_tries: true,
        has_another: false,
        is_recovered: false,
        is_listening: false,
        is_ending: false,
    };
    let after = |answered| step(state, answered);
    assert_eq!(after(answered), AfterAnswer::TryAgain);
    assert_eq!(after(Answered { has_tries: false, ..answered }), AfterAnswer::Settle);
    assert_eq!(after(Answered { is_listening: true, ..answered }), AfterAnswer::Settle);
    assert_eq!(after(Answered { is_ending: true, ..answered }), AfterAnswer::Leave);
    assert_eq!(after(Answered { is_recovered: true, ..answered }), AfterAnswer::Defer);
    // To a waiting caller "nothing happened" is an outcome; a recovering process keeps trying.
    let unreachable = Answered { reply: Reply::Unreachable, ..answered };
    assert_eq!(after(unreachable), AfterAnswer::Settle);
    assert_eq!(after(Answered { is_recovered: true, ..unreachable }), AfterAnswer::Defer);
    // The other credential is tried at once; without one, the outcome stays unknown.
    let refused = Answered { reply: Reply::CredentialRefused, is_recovered: true, ..answered };
    assert_eq!(after(refused), AfterAnswer::Settle);
    assert_eq!(after(Answered { has_another: true, ..refused }), AfterAnswer::TryAgain);
}

#[test]
fn a_read_that_has_a_record_is_sent_again_by_the_process_that_recovers_it() {
    let read = Sent { class: Dedup::ReadOnly, in_window: false, can_ask: false, is_ours: true };
    let state = State::Dispatched(read);
    let refused = Refused { prospect: Prospect::Retry, is_own: true, is_ending: false };
    assert_eq!(step(state, refused), AfterRefusal::Defer);
    for answered in all_answered().into_iter().filter(|one| one.is_recovered) {
        let passes = matches!(answered.reply, Reply::Unreachable | Reply::Garbled | Reply::Unknown);
        assert_eq!(step(state, answered) == AfterAnswer::Defer, passes, "{answered:?}");
    }
}

#[test]
fn what_did_nothing_is_settled_before_it_is_tried_again() {
    for state in all_states() {
        for answered in all_answered() {
            let again = step(state, answered) == AfterAnswer::SettleAndTryAgain;
            let reached_nobody = state == State::Absent && answered.reply == Reply::Unreachable;
            let has_another = answered.reply == Reply::CredentialRefused && answered.has_another;
            // Its target knows the token, and settled its outcome would be unknown.
            let is_known = matches!(state, State::Dispatched(sent) if sent.is_recognised());
            let has_another = has_another && !(is_known && answered.is_recovered);
            let wanted = (reached_nobody || has_another) && answered.has_tries;
            assert_eq!(again, wanted, "{state:?} {answered:?}");
        }
    }
}

#[test]
fn a_call_with_other_arguments_gets_nothing_of_the_one_that_has_its_key() {
    for state in all_states() {
        for may_take_up in BOTH {
            let action = step(state, Repeated { is_same: false, may_take_up });
            assert!(
                matches!(action, AfterRepeat::Conflict | AfterRepeat::LookAgain),
                "{state:?} {action:?}"
            );
        }
    }
}

#[test]
fn only_what_did_not_happen_or_was_rearmed_is_taken_up_by_a_client() {
    for state in all_states() {
        let takes = step(state, Repeated { is_same: true, may_take_up: true });
        let wanted = matches!(state, State::Retriable | State::Rearmed);
        assert_eq!(takes == AfterRepeat::TakeUp, wanted, "{state:?}");
        let overtaken = step(state, Repeated { is_same: true, may_take_up: false });
        assert_ne!(overtaken, AfterRepeat::TakeUp, "{state:?}");
    }
}

#[test]
fn not_found_is_conclusive_only_once_it_is_settled() {
    let sent = Sent { class: KEYED, in_window: false, can_ask: true, is_ours: true };
    for state in [State::Dispatched(sent), State::Indeterminate] {
        for (after_unknown, may_ask) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let early =
                Probed { found: Some(&Probe::NotFound), is_settled: false, after_unknown, may_ask };
            assert_ne!(step(state, early), AfterProbe::DidNotHappen);
            let settled = step(state, Probed { is_settled: true, ..early });
            // For an open record the ledger itself knows that an earlier attempt is unaccounted for.
            let wanted = state != State::Indeterminate || !after_unknown;
            assert_eq!(settled == AfterProbe::DidNotHappen, wanted, "{state:?} {after_unknown}");
            let committed = Probe::Committed(Answer::default());
            let happened = step(state, Probed { found: Some(&committed), ..early });
            assert_eq!(happened, AfterProbe::Happened);
        }
    }
}

#[test]
fn a_record_that_is_unknown_already_is_asked_about_for_ever() {
    for found in [Some(Probe::Unknown), Some(Probe::NotFound), None] {
        let found = found.as_ref();
        let probed = Probed { found, is_settled: false, after_unknown: false, may_ask: false };
        assert_eq!(step(State::Indeterminate, probed), AfterProbe::AskAgain);
    }
}

#[test]
fn a_late_answer_waits_for_the_arm_that_is_under_way() {
    let sent = Sent { class: KEYED, in_window: true, can_ask: false, is_ours: true };
    let late = |is_current, is_of_earlier_arm, is_done| {
        let happened = AnsweredLate { is_current, is_of_earlier_arm, is_done };
        step(State::Dispatched(sent), happened)
    };
    assert_eq!(late(true, false, true), AfterLateAnswer::KeepForOwn);
    assert_eq!(late(false, true, true), AfterLateAnswer::KeepForArm);
    // That the earlier arm did nothing says nothing about this one.
    assert_eq!(late(false, true, false), AfterLateAnswer::Resolve);
    assert_eq!(late(false, false, true), AfterLateAnswer::Resolve);
}

#[test]
fn what_may_be_recorded_after_all_is_neither_returned_nor_decided_again() {
    let error = LedgerError::Store(StoreError::Uncertain("the connection broke".to_owned()));
    for state in all_states() {
        for (is_expired, may_decide) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let event = Unrecorded { error: &error, is_expired, may_decide };
            assert_eq!(step(state, event), AfterUnrecorded::TellInDoubt, "{state:?}");
        }
    }
}

#[test]
fn an_approval_that_ran_out_is_not_used_and_the_call_is_not_sent_under_it() {
    let error = LedgerError::Store(StoreError::Conflict);
    let expired = Unrecorded { error: &error, is_expired: true, may_decide: true };
    assert_eq!(step(State::Approved, expired), AfterUnrecorded::RefuseExpired);
    assert_eq!(step(State::Retriable, expired), AfterUnrecorded::DecideWithoutApproval);
    let in_time = Unrecorded { is_expired: false, ..expired };
    assert_eq!(step(State::Approved, in_time), AfterUnrecorded::Refuse);
    assert_eq!(step(State::Claimed, in_time), AfterUnrecorded::BecomeDuplicate);
    assert_eq!(step(State::Absent, in_time), AfterUnrecorded::Refuse);
}

#[test]
fn decisions_are_not_repeated_without_end() {
    let error = LedgerError::Store(StoreError::DirectiveMoved);
    let event = Unrecorded { error: &error, is_expired: false, may_decide: true };
    assert_eq!(step(State::Claimed, event), AfterUnrecorded::DecideByDirectives);
    let last = Unrecorded { may_decide: false, ..event };
    assert_eq!(step(State::Claimed, last), AfterUnrecorded::Refuse);
}

#[test]
fn an_answer_says_by_its_kind_whether_another_try_may_help() {
    let nothing = |error: fn(String) -> AdapterError| {
        Reply::of(&Outcome::NotExecuted(error("it says so".to_owned())))
    };
    assert_eq!(Reply::of(&Outcome::Done(Answer::default())), Reply::Conclusive);
    assert_eq!(Reply::of(&Outcome::Failed(Answer::default())), Reply::Conclusive);
    assert_eq!(Reply::of(&Outcome::Unknown("no answer".to_owned())), Reply::Unknown);
    assert_eq!(nothing(AdapterError::Unavailable), Reply::Unreachable);
    assert_eq!(nothing(AdapterError::NoSession), Reply::Unreachable);
    assert_eq!(nothing(AdapterError::InvalidResponse), Reply::Garbled);
    assert_eq!(nothing(AdapterError::CredentialRefused), Reply::CredentialRefused);
    for conclusive in [
        AdapterError::SchemaMismatch,
        AdapterError::Forbidden,
        AdapterError::Misconfigured,
        AdapterError::Refused,
    ] {
        assert_eq!(nothing(conclusive), Reply::Conclusive);
    }
    let rejected = Outcome::Rejected(Rejection {
        answer: ErrorAnswer::JsonRpc(-32_000),
        error: AdapterError::Unavailable("503".to_owned()),
    });
    assert_eq!(Reply::of(&rejected), Reply::Unreachable);
}
