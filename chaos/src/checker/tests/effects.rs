//! I1, I2, I10, I12 and related ones: what happened, against what was recorded, approved and answered.

use super::{caught, fine, only, script::Script};
use crate::{
    checker::Invariant,
    history::{What, node::NodeChange, request::Answer},
    witness::log::{Line, Seen},
};

fn arrivals(script: &Script, token: &str) -> Vec<Line> {
    let is = |line: &&Line| matches!(&line.what, Seen::Arrived(arrival) if arrival.token == token);
    script.lines.iter().filter(is).cloned().collect()
}

fn each_effect(script: &mut Script, token: &str, mut change: impl FnMut(&mut Seen)) {
    for line in &mut script.lines {
        if matches!(&line.what, Seen::Effect { arrival, .. } if arrival.token == token) {
            change(&mut line.what);
        }
    }
}

#[test]
fn i1_two_effects_of_one_token_are_caught_in_every_class() {
    for token in ["plc_push", "plc_put", "plc_erase"] {
        caught(Invariant::I1, |script| script.double(token));
    }
}

#[test]
fn i1_a_second_token_needs_operators() {
    let why = caught(Invariant::I1, |script| {
        script.double("plc_push");
        each_effect(script, "plc_push", |seen| {
            if let Seen::Effect { arrival, effect: 99, .. } = seen {
                arrival.token = "plc_second".to_owned();
            }
        });
    });
    assert!(why[0].contains("2 tokens"), "{why:?}");
}

#[test]
fn i1_an_opaque_call_is_not_sent_again_while_nobody_knows() {
    only(Invariant::I1, |script| {
        let mut again = arrivals(script, "plc_push").remove(0);
        again.at.us += 500;
        script.lines.push(again);
    });
    // A refused call may be sent again, as in the good history. Without the refusal it may not.
    caught(Invariant::I1, |script| {
        script.lines.retain(|line| !matches!(line.what, Seen::Refused(_)))
    });
}

#[test]
fn i1_a_queryable_call_is_sent_again_only_after_the_upstream_does_not_know_it() {
    let again = |script: &mut Script, later: u64| {
        let mut again = arrivals(script, "plc_post").remove(0);
        again.at.us += later;
        script.lines.push(again);
    };
    fine(|script| again(script, 60_000_000));
    only(Invariant::I1, |script| again(script, 1_000));
}

/// A call with a keyed token arrives this long after its effect.
fn comes_again(script: &mut Script, later_ms: u64) {
    let is = |line: &&Line| matches!(&line.what, Seen::Effect { arrival, .. } if arrival.token == "plc_put");
    let mut at = script.lines.iter().find(is).unwrap().at;
    at.us += later_ms * 1_000;
    let again = Line { at, ..arrivals(script, "plc_put").remove(0) };
    script.lines.push(again);
}

#[test]
fn i1_a_keyed_token_does_not_come_again_after_its_window() {
    let why = caught(Invariant::I1, |script| comes_again(script, 60_000));
    assert!(why[0].contains("window"), "{why:?}");
    fine(|script| comes_again(script, 59_999));
    // Whatever clock was moved, the witness's were not.
    caught(Invariant::I1, |script| {
        script.node(NodeChange::ClockShifted { by_ms: -3_600_000 });
        comes_again(script, 60_000);
    });
}

#[test]
fn i1_the_window_of_a_token_begins_with_its_first_effect() {
    // A call came in more than a window before, and was refused.
    fine(|script| {
        for event in &mut script.events {
            if let What::Run(run) = &mut event.what {
                run.keyed_window_ms = 8;
            }
        }
        let mut before = arrivals(script, "plc_put").remove(0);
        before.at.us -= 10_000;
        let Seen::Arrived(arrival) = &mut before.what else { panic!() };
        arrival.arrival = 0;
        let refused = Line { at: before.at, what: Seen::Refused(arrival.clone()) };
        script.lines.splice(0..0, [before, refused]);
    });
}

#[test]
fn i2_an_effect_without_an_entry_is_caught() {
    for key in ["push", "put"] {
        let why = caught(Invariant::I2, |script| script.forget(key, "dispatched"));
        assert!(
            why.iter().any(|why| why.contains("no entry") || why.contains("no dispatch")),
            "{why:?}"
        );
    }
}

#[test]
fn i2_an_entry_after_the_effect_began_is_caught() {
    caught(Invariant::I2, |script| {
        each_effect(script, "plc_erase", |seen| {
            if let Seen::Effect { started, .. } = seen {
                started.wall_ms -= 200;
            }
        });
    });
}

#[test]
fn i2_an_attempt_that_was_not_recorded_is_caught() {
    only(Invariant::I2, |script| {
        each_effect(script, "plc_put", |seen| {
            if let Seen::Effect { arrival, .. } = seen {
                arrival.attempt = 2;
            }
        });
    });
}

#[test]
fn i10_an_effect_needs_an_agreement_that_holds() {
    let approvals = |change: fn(&mut crate::history::journal::ApprovalImage)| {
        move |script: &mut Script| {
            script.each_entry(|entry| {
                entry
                    .approvals
                    .iter_mut()
                    .filter(|one| one.approval_id == "apr_erase")
                    .for_each(change);
            });
        }
    };
    for (doctor, said) in [
        (approvals(|one| one.agreed.clear()), "0 of 1"),
        (approvals(|one| one.quorum = 2), "1 of 2"),
        (approvals(|one| one.requesters.push("ben".to_owned())), "own request"),
        (approvals(|one| one.refused.push("cleo".to_owned())), "refused by cleo"),
        (approvals(|one| one.request = "another".to_owned()), "another request"),
        (approvals(|one| one.expires_ms = 0), "expired"),
        (approvals(|one| one.state = "pending".to_owned()), "pending"),
    ] {
        let why = caught(Invariant::I10, doctor);
        assert!(why.iter().any(|why| why.contains(said)), "{said}: {why:?}");
    }
}

#[test]
fn i10_a_destructive_call_without_an_approval_is_caught() {
    let why = caught(Invariant::I10, |script| {
        script.each_put("erase", "dispatched", |image| {
            image.attempt.as_mut().unwrap().approval_id = None
        });
    });
    assert!(why[0].contains("without an approval"), "{why:?}");
}

#[test]
fn i10_other_arguments_than_those_agreed_to_are_caught() {
    only(Invariant::I10, |script| {
        each_effect(script, "plc_erase", |seen| {
            if let Seen::Effect { arrival, .. } = seen {
                arrival.args = "F".to_owned();
            }
        });
    });
}

#[test]
fn i10_one_approval_is_for_one_effect() {
    let why = caught(Invariant::I10, |script| script.double("plc_erase"));
    assert!(why.iter().any(|why| why.contains("2 effects")), "{why:?}");
}

#[test]
fn i10_an_approval_is_consumed_by_the_entry_of_its_dispatch() {
    let why = caught(Invariant::I10, |script| {
        let mut consumed = Vec::new();
        script.each_entry(|entry| {
            let (apart, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut entry.approvals)
                .into_iter()
                .partition(|approval| approval.state == "consumed");
            consumed.extend(apart);
            entry.approvals = rest;
        });
        script.each_entry(|entry| {
            if entry.changes.is_empty() {
                entry.approvals.append(&mut consumed);
            }
        });
        assert!(consumed.is_empty(), "no entry to put it into");
    });
    assert!(why.iter().any(|why| why.contains("without the dispatch")), "{why:?}");
}

#[test]
fn i10_a_no_that_counts_is_the_end() {
    let why = caught(Invariant::I10, |script| {
        for event in &mut script.events {
            match &mut event.what {
                What::VoteSent(sent) if sent.approval_id == "apr_erase" => sent.approve = false,
                What::VoteReply(reply) if reply.vote == 1 => {
                    reply.state = Some("denied".to_owned())
                }
                _ => {}
            }
        }
    });
    assert!(why.iter().any(|why| why.contains("said no")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("never did")), "{why:?}");
}

#[test]
fn i10_nobody_agreed_who_did_not() {
    only(Invariant::I10, |script| {
        script.events.retain(
            |event| !matches!(&event.what, What::VoteSent(sent) if sent.approval_id == "apr_erase"),
        )
    });
}

#[test]
fn i10_a_dispatch_is_permitted_by_the_active_policy() {
    only(Invariant::I10, |script| {
        script.each_put("push", "dispatched", |image| {
            image.attempt.as_mut().unwrap().bundle = "older".to_owned()
        });
        script.each_put("push", "indeterminate", |image| {
            image.attempt.as_mut().unwrap().bundle = "older".to_owned()
        });
    });
}

#[test]
fn i12_nothing_happened_is_not_said_of_what_has_happened() {
    caught(Invariant::I12, |script| {
        script.each_reply("put", |sent, reply| {
            if sent.args == "A" && reply.replayed {
                *reply = crate::history::request::Reply {
                    answer: Answer::Refused,
                    code: Some("ADAPTER_FAILED".to_owned()),
                    execution: Some("not_executed".to_owned()),
                    result: None,
                    replayed: false,
                    ..reply.clone()
                };
            }
        });
    });
}

#[test]
fn i12_an_effect_that_appears_after_it_was_given_up_is_caught() {
    let why = caught(Invariant::I12, |script| {
        let mut line = arrivals(script, "plc_post").remove(0);
        let Seen::Arrived(arrival) = line.what.clone() else { panic!() };
        line.what = Seen::Effect { arrival, started: line.at, effect: 50 };
        line.at.us += 30_000_000;
        script.lines.push(line);
    });
    assert!(why[0].contains("effect 50"), "{why:?}");
}

#[test]
fn i12_an_effect_of_which_everybody_was_told_that_it_did_not_happen_is_caught() {
    caught(Invariant::I12, |script| {
        script.each_reply("retried", |_, reply| {
            reply.answer = Answer::Refused;
            reply.code = Some("DEADLINE_EXCEEDED".to_owned());
            reply.execution = Some("not_executed".to_owned());
            reply.result = None;
        });
    });
}

#[test]
fn i12_a_denied_call_never_happens() {
    caught(Invariant::I12, |script| {
        each_effect(script, "plc_erase", |seen| {
            if let Seen::Effect { arrival, .. } = seen {
                arrival.key = "denied".to_owned();
                arrival.token = "plc_stranger".to_owned();
            }
        });
    });
}

#[test]
fn real_a_success_without_an_effect_is_caught() {
    for token in ["plc_put", "plc_erase"] {
        caught(Invariant::Real, |script| script.undo(token));
    }
    // What an operator states counts as an operator's statement only.
    let mut script = super::good();
    script.undo("plc_push");
    script.each_reply("push", |_, reply| {
        if let Some(result) = &mut reply.result {
            result.token = None;
        }
    });
    assert!(super::judged(&script).is_clean(), "{:#?}", super::judged(&script));
}

#[test]
fn real_an_answer_that_is_none_is_caught() {
    caught(Invariant::Real, |script| {
        script.each_reply("lost", |_, reply| reply.answer = Answer::InvalidResponse);
    });
}
