//! Late evidence about one arm, while another one waits or is unknown too.

use placet_types::{clock::Timestamp, error::ErrorCode};

use super::{attempt, digest, record, unknown, word};
use crate::record::{Attempt, EffectState, Resolution};

#[test]
fn late_evidence_about_the_earlier_arm_ends_a_re_arm_that_waits() {
    let now = Timestamp::from_ms(9_000);
    let rearmed = record(unknown(1, None))
        .moved(EffectState::Rearmed { by: vec![word("olga")] }, now)
        .unwrap();
    let answered = |attempt| EffectState::Succeeded {
        result: digest(),
        resolved_by: Some(Resolution::LateAnswer { attempt }),
    };
    assert!(rearmed.moved(answered(1), now).is_ok());
    assert!(rearmed.moved(answered(2), now).is_err());
}

#[test]
fn a_late_success_of_the_earlier_arm_counts_when_the_later_one_is_unknown_too() {
    let now = Timestamp::from_ms(9_000);
    let rearmed = record(unknown(1, None))
        .moved(EffectState::Rearmed { by: vec![word("olga")] }, now)
        .unwrap();
    let second = Attempt { after_unknown: true, ..attempt(2, "plc_b") };
    let sent = rearmed.moved(EffectState::Dispatched(second.clone()), now).unwrap();
    let by = |attempt| Some(Resolution::LateAnswer { attempt });
    let done = |attempt| EffectState::Succeeded { result: digest(), resolved_by: by(attempt) };
    assert!(sent.moved(done(1), now).is_err(), "the later arm is under way");
    let lost = EffectState::Indeterminate {
        attempt: second,
        reason: "reset".to_owned(),
        result: digest(),
        rearm: None,
    };
    let lost = sent.moved(lost, now).unwrap();
    assert!(lost.moved(done(1), now).is_ok() && lost.moved(done(2), now).is_ok());
    assert!(lost.moved(done(3), now).is_err());
    let failed = |attempt| EffectState::FailedFinal {
        code: ErrorCode::AdapterFailed,
        result: digest(),
        resolved_by: by(attempt),
    };
    assert!(lost.moved(failed(1), now).is_err(), "it says nothing about the later arm");
}
