//! I11, I13, I15 and I16: what is left at the end.

use super::{
    caught, fine, only,
    script::{Key, Script},
};
use crate::{
    checker::Invariant,
    history::{
        Event, What,
        journal::{RecordChange, RecordImage},
        node::NodeChange,
        probe::{Probe, RecordRow},
        request::{Answer, Loss, Lost, Why},
    },
};

fn rows(script: &mut Script, change: impl Fn(&mut Vec<RecordRow>)) {
    script.each_probe(|probe| {
        if let Probe::Records { records, .. } = probe {
            change(records);
        }
    });
}

#[test]
fn i11_a_call_that_was_accepted_and_is_gone_is_caught() {
    let why = caught(Invariant::I11, |script| {
        rows(script, |records| records.retain(|row| row.record_id != "rec_scribe_erase"));
    });
    assert!(why[0].contains("no record"), "{why:?}");
}

#[test]
fn i11_a_record_that_nobody_asked_for_is_caught() {
    caught(Invariant::I11, |script| {
        rows(script, |records| {
            let mut more = records[0].clone();
            more.record_id = "rec_stranger".to_owned();
            more.call_id = "call_stranger".to_owned();
            records.push(more);
        });
    });
}

#[test]
fn i11_a_key_has_one_record() {
    let why = caught(Invariant::I11, |script| {
        script.each_entry(|entry| {
            let twin = |change: &RecordChange| match change {
                RecordChange::Put(image) if image.record_id == "rec_scribe_put" => {
                    let record_id = "rec_twin".to_owned();
                    Some(RecordChange::Put(Box::new(RecordImage { record_id, ..*image.clone() })))
                }
                _ => None,
            };
            let twins: Vec<RecordChange> = entry.changes.iter().filter_map(twin).collect();
            entry.changes.extend(twins);
        });
        rows(script, |records| {
            let is_put = |row: &&RecordRow| row.record_id == "rec_scribe_put";
            let mut more = records.iter().find(is_put).unwrap().clone();
            more.record_id = "rec_twin".to_owned();
            records.push(more);
        });
    });
    assert!(why.iter().any(|why| why.contains("2 records")), "{why:?}");
}

#[test]
fn i11_a_run_is_charged_for_what_it_did_and_not_beyond_its_limit() {
    for (charged, most) in [(101, 100), (2, 100), (2, 2)] {
        only(Invariant::I11, |script| {
            script.each_probe(|probe| {
                if let Probe::Budget { used, limit, .. } = probe {
                    (*used, *limit) = (charged, most);
                }
            });
        });
    }
}

#[test]
fn i13_a_caller_without_an_answer_is_caught() {
    let why = caught(Invariant::I13, |script| {
        script.events.retain(
            |event| !matches!(&event.what, What::Lost(Lost { request, .. }) if *request > 0),
        );
    });
    assert!(why[0].contains("never answered"), "{why:?}");
}

#[test]
fn i13_who_waits_without_success_after_the_faults_is_caught() {
    only(Invariant::I13, |script| {
        let mut last = None;
        script.each_reply("lost", |sent, reply| {
            if sent.why == Why::Final {
                last = Some(reply.request);
            }
        });
        for event in &mut script.events {
            if matches!(&event.what, What::Reply(reply) if Some(reply.request) == last) {
                event.what = What::Lost(Lost { request: last.unwrap(), how: Loss::TimedOut });
            }
        }
    });
}

#[test]
fn i13_what_is_still_under_way_in_the_end_is_caught() {
    caught(Invariant::I13, |script| {
        script.each_reply("lost", |_, reply| {
            reply.answer = Answer::InProgress;
            reply.code = Some("IN_PROGRESS".to_owned());
        });
    });
    let why = caught(Invariant::I13, |script| script.forget("lost", "indeterminate"));
    assert!(why.iter().any(|why| why.contains("dispatched")), "{why:?}");
}

#[test]
fn i13_a_node_that_does_not_come_back_is_caught() {
    only(Invariant::I13, |script| {
        script.events.retain(|event| !matches!(&event.what, What::Node(node) if matches!(node.change, NodeChange::Ready { after_ms: 40 })));
    });
}

#[test]
fn i13_people_may_take_their_time() {
    fine(|script| {
        let mut more = script.clone();
        let mut key = Key::new("erase", "waiting", "scribe");
        let before = (more.events.len(), more.entries.len());
        let request = more.send(&key, "W", Why::New);
        more.holds(&mut key);
        more.reply(request, &key, Answer::Pending);
        insert(script, more.events.split_off(before.0), more.entries.split_off(before.1), &key);
    });
}

#[test]
fn i13_what_was_agreed_to_when_the_faults_were_over_and_never_ran_is_caught() {
    let agreed = |script: &mut Script, ends: fn(&mut Script, &mut Key)| {
        let mut more = script.clone();
        let mut key = Key::new("erase", "agreed", "scribe");
        let before = (more.events.len(), more.entries.len());
        let request = more.send(&key, "G", Why::New);
        more.holds(&mut key);
        more.reply(request, &key, Answer::Pending);
        more.votes(&mut key, true);
        ends(&mut more, &mut key);
        insert(script, more.events.split_off(before.0), more.entries.split_off(before.1), &key);
    };
    let why = caught(Invariant::I13, |script| agreed(script, |_, _| {}));
    assert!(why.iter().any(|why| why.contains("still says approved")), "{why:?}");
    assert!(why.iter().any(|why| why.contains("it ended as approved")), "{why:?}");
    let why = caught(Invariant::I13, |script| {
        agreed(script, |more, key| {
            key.approval.as_mut().unwrap().state = "expired".to_owned();
            more.moves(key, "denied");
        });
    });
    assert!(why.iter().all(|why| why.contains("it ended as expired")), "{why:?}");
}

/// Inserts later events before the end of a history, and the record into the listings.
fn insert(
    script: &mut Script,
    events: Vec<Event>,
    entries: Vec<crate::history::journal::JournalEntry>,
    key: &Key,
) {
    let last = entries.last().unwrap().clone();
    script.events.extend(events);
    let place = script
        .events
        .iter()
        .position(|event| matches!(&event.what, What::Probe(probe) if matches!(**probe, Probe::LogEnd { .. })))
        .unwrap();
    let at = script.events[place].at;
    for entry in entries {
        script.events.insert(
            place,
            Event { at, what: What::Probe(Box::new(Probe::Entry(Box::new(entry)))) },
        );
    }
    let (image, approval) = (key.image.clone(), key.approval.clone().unwrap());
    script.each_probe(|probe| match probe {
        Probe::LogEnd { entries, head, .. } => (*entries, *head) = (last.seq, last.hash.clone()),
        Probe::Verified { entries, head, .. } => {
            (*entries, *head) = (Some(last.seq), Some(last.hash.clone()))
        }
        Probe::Records { records, .. } => records.push(RecordRow {
            record_id: image.record_id.clone(),
            call_id: image.call_id.clone(),
            state: image.state.clone(),
            attempts: 0,
            token: None,
            agent: image.agent.clone(),
            capability: image.capability.clone(),
        }),
        Probe::Approvals { approvals, .. } => approvals.push(crate::history::probe::ApprovalRow {
            approval_id: approval.approval_id.clone(),
            call_id: image.call_id.clone(),
            state: approval.state.clone(),
        }),
        _ => {}
    });
}

#[test]
fn i15_a_secret_anywhere_is_caught() {
    only(Invariant::I15, |script| {
        script.each_probe(|probe| {
            if let Probe::Secrets { hits, .. } = probe {
                hits.push("key in journal".to_owned())
            }
        });
    });
    only(Invariant::I15, |script| {
        script.each_reply("put", |_, reply| reply.leaks.push("key".to_owned()))
    });
    only(Invariant::I15, |script| {
        script.each_reply("look", |_, reply| reply.leaks.push("key".to_owned()))
    });
}

#[test]
fn i16_a_queue_above_its_cap_is_caught() {
    only(Invariant::I16, |script| {
        script.each_probe(|probe| {
            if let Probe::Gauge { value, .. } = probe {
                *value = 11
            }
        });
    });
    fine(|script| {
        script.each_probe(|probe| {
            if let Probe::Gauge { value, .. } = probe {
                *value = 10
            }
        })
    });
}
