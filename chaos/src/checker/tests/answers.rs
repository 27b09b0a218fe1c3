//! I3 to I6.

use super::{caught, only};
use crate::{
    checker::Invariant,
    history::{
        journal::RecordChange,
        request::{Answer, Reply, Why},
    },
};

fn becomes(reply: &mut Reply, answer: Answer, code: &str) {
    reply.answer = answer;
    reply.code = Some(code.to_owned());
    reply.result = None;
    reply.replayed = false;
}

#[test]
fn i3_a_success_that_is_taken_back_is_caught() {
    for (answer, code) in [
        (Answer::Unknown, "OUTCOME_UNKNOWN"),
        (Answer::InProgress, "IN_PROGRESS"),
        (Answer::Failed, "ADAPTER_FAILED"),
        (Answer::Pending, "APPROVAL_PENDING"),
    ] {
        caught(Invariant::I3, |script| {
            script.each_reply("put", |sent, reply| {
                if sent.why == Why::Final {
                    becomes(reply, answer, code);
                }
            });
        });
    }
}

#[test]
fn i3_a_second_first_time_is_caught() {
    only(Invariant::I3, |script| {
        script.each_reply("put", |sent, reply| reply.replayed &= sent.why != Why::Final);
    });
}

#[test]
fn i3_a_record_that_the_log_has_forgotten_is_caught() {
    caught(Invariant::I3, |script| script.forget("put", "succeeded"));
}

#[test]
fn i3_two_stored_results_are_caught() {
    caught(Invariant::I3, |script| {
        script.each_entry(|entry| {
            let again: Vec<RecordChange> = entry
                .changes
                .iter()
                .filter_map(|change| match change {
                    RecordChange::Put(image)
                        if image.state == "succeeded" && image.key == "erase" =>
                    {
                        let mut image = image.clone();
                        image.rev += 1;
                        image.result = Some("another".to_owned());
                        Some(RecordChange::Put(image))
                    }
                    _ => None,
                })
                .collect();
            entry.changes.extend(again);
        });
    });
}

#[test]
fn i4_two_results_of_one_key_are_caught() {
    caught(Invariant::I4, |script| {
        script.each_reply("erase", |sent, reply| {
            if let Some(result) = reply.result.as_mut().filter(|_| sent.why == Why::Final) {
                result.digest = "another".to_owned();
            }
        });
    });
}

#[test]
fn i5_the_result_of_other_arguments_is_caught() {
    caught(Invariant::I5, |script| {
        let result = {
            let mut result = None;
            script.each_reply("put", |_, reply| result = reply.result.clone().or(result.take()));
            result
        };
        script.each_reply("put", |sent, reply| {
            if sent.why == Why::ChangedArgs {
                reply.answer = Answer::Succeeded;
                reply.result = result.clone();
            }
        });
    });
}

#[test]
fn i5_the_result_of_another_principal_is_caught() {
    let why = caught(Invariant::I5, |script| {
        script.each_reply("put", |sent, reply| {
            if let Some(result) = reply.result.as_mut().filter(|_| sent.agent == "editor") {
                result.token = Some("plc_put".to_owned());
            }
        });
    });
    assert!(why[0].contains("another key"), "{why:?}");
}

#[test]
fn i5_the_call_of_another_principal_is_caught() {
    only(Invariant::I5, |script| {
        script
            .each_reply("denied", |_, reply| reply.call_id = Some("call_scribe_erase".to_owned()));
    });
}

#[test]
fn i5_the_same_call_in_another_form_is_no_conflict() {
    caught(Invariant::I5, |script| {
        script.each_reply("put", |sent, reply| {
            if sent.why == Why::EqualForm {
                becomes(reply, Answer::Conflict, "IDEMPOTENCY_CONFLICT");
            }
        });
    });
}

#[test]
fn i6_an_answer_that_depends_on_nothing_recorded_is_caught() {
    for (key, state) in [
        ("put", "succeeded"),
        ("lost", "indeterminate"),
        ("denied", "denied"),
        ("denied", "pending_approval"),
    ] {
        caught(Invariant::I6, |script| script.forget(key, state));
    }
}

#[test]
fn i6_an_answer_before_its_entry_is_caught() {
    let why = caught(Invariant::I6, |script| {
        script.each_entry(|entry| {
            if entry.changes.iter().any(|change| change.record_id() == "rec_scribe_retried") {
                entry.at_ms += 60_000;
            }
        });
    });
    assert!(why.iter().any(|why| why.contains("only later")), "{why:?}");
}

#[test]
fn i6_another_approval_than_the_recorded_one_is_caught() {
    caught(Invariant::I6, |script| {
        script.each_reply("denied", |_, reply| {
            if reply.answer == Answer::Pending {
                reply.approval_id = Some("apr_unheard".to_owned());
            }
        });
    });
}

#[test]
fn i6_a_read_leaves_a_line_before_its_answer() {
    only(Invariant::I6, |script| {
        script.each_entry(|entry| entry.audit.retain(|audit| audit.kind != "read_settled"));
    });
}
