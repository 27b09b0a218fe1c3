//! I7, I8, I9 and I14: the ledger's own log.

use super::{caught, fine, good, judged, only, script::Script};
use crate::{
    checker::{Invariant, Verdict},
    history::{
        What,
        journal::{RecordChange, RecordImage},
        people::Act,
        probe::Probe,
    },
};

fn last_entry(script: &mut Script, change: impl Fn(&mut crate::history::journal::JournalEntry)) {
    let last = script.entries.len() as u64;
    script.each_entry(|entry| {
        if entry.seq == last {
            change(entry);
        }
    });
}

/// Adds one more move to a record, in the entry of its last one.
fn then(script: &mut Script, key: &str, state: &str, next: &str) {
    script.each_entry(|entry| {
        let more: Vec<RecordChange> = entry
            .changes
            .iter()
            .filter_map(|change| match change {
                RecordChange::Put(image) if image.key == key && image.state == state => {
                    Some(image.clone())
                }
                _ => None,
            })
            .map(|mut image| {
                image.rev += 1;
                image.state = next.to_owned();
                RecordChange::Put(image)
            })
            .collect();
        entry.changes.extend(more);
    });
}

#[test]
fn i7_moves_that_there_are_not_are_caught() {
    for (key, state, next) in [
        ("put", "succeeded", "dispatched"),
        ("put", "succeeded", "failed_final"),
        ("denied", "denied", "approved"),
        ("denied", "denied", "dispatched"),
        ("lost", "indeterminate", "dispatched"),
        ("lost", "indeterminate", "denied"),
        ("post", "failed_final", "dispatched"),
        ("lost", "indeterminate", "tombstone"),
    ] {
        let why = caught(Invariant::I7, |script| then(script, key, state, next));
        assert!(why.iter().any(|why| why.contains(&format!("{state} → {next}"))), "{why:?}");
    }
}

#[test]
fn i7_an_opaque_call_is_not_dispatched_again_and_a_keyed_one_may_be() {
    let again = |key: &'static str| {
        move |script: &mut Script| {
            let later = |image: &mut RecordImage| image.rev += 1;
            script.each_put(key, "succeeded", later);
            if key == "push" {
                script.each_put(key, "indeterminate", |image| {
                    image.rev += 1;
                    image.attempt.as_mut().unwrap().number = 2;
                });
            }
            script.each_entry(|entry| {
                let more: Vec<RecordChange> = entry
                    .changes
                    .iter()
                    .filter_map(|change| match change {
                        RecordChange::Put(image)
                            if image.key == key
                                && image.state == "dispatched"
                                && image.agent == "scribe" =>
                        {
                            let mut image = image.clone();
                            image.rev += 1;
                            image.attempts = 2;
                            image.attempt.as_mut().unwrap().number = 2;
                            Some(RecordChange::Put(image))
                        }
                        _ => None,
                    })
                    .collect();
                entry.changes.extend(more);
            });
        }
    };
    caught(Invariant::I7, again("push"));
    let mut script = good();
    again("put")(&mut script);
    assert_eq!(judged(&script).of(Invariant::I7).count(), 0);
}

#[test]
fn i7_a_dispatched_record_does_not_vanish() {
    let why = caught(Invariant::I7, |script| {
        script.each_entry(|entry| {
            for change in &mut entry.changes {
                if let RecordChange::Put(image) = change
                    && image.key == "lost"
                    && image.state == "indeterminate"
                {
                    *change = RecordChange::Removed {
                        record_id: image.record_id.clone(),
                        rev: image.rev,
                    };
                }
            }
        });
    });
    assert!(why[0].contains("absent"), "{why:?}");
}

#[test]
fn i7_a_tombstone_stands_for_what_was() {
    let tomb = |script: &mut Script, was: &str| {
        then(script, "retried", "succeeded", "tombstone");
        script.each_put("retried", "tombstone", |image| image.was = Some(was.to_owned()));
        script.each_probe(|probe| {
            if let Probe::Records { records, .. } = probe {
                records
                    .iter_mut()
                    .filter(|row| row.record_id.contains("retried"))
                    .for_each(|row| row.state = "tombstone".to_owned());
            }
        });
    };
    fine(|script| tomb(script, "succeeded"));
    only(Invariant::I7, |script| tomb(script, "denied"));
}

#[test]
fn i8_an_older_epoch_does_not_write_again() {
    only(Invariant::I8, |script| last_entry(script, |entry| entry.epoch = 1));
}

#[test]
fn i8_who_was_shut_out_does_not_write() {
    only(Invariant::I8, |script| {
        let (epoch, at_ms) = last_written(script);
        script.probe(Probe::Fenced { epoch, at_ms: at_ms - 1, by: None });
    });
    fine(|script| {
        let (epoch, at_ms) = last_written(script);
        script.probe(Probe::Fenced { epoch, at_ms, by: None });
    });
}

/// By whom and when the last entry was written.
fn last_written(script: &mut Script) -> (u64, i64) {
    let mut last = (0, 0);
    script.each_entry(|entry| last = (entry.epoch, entry.at_ms));
    last
}

#[test]
fn i8_a_revision_is_written_once() {
    caught(Invariant::I8, |script| {
        script.each_entry(|entry| {
            let twice: Vec<RecordChange> = entry
                .changes
                .iter()
                .filter(|change| change.record_id() == "rec_scribe_lost")
                .cloned()
                .collect();
            entry.changes.extend(twice);
        });
    });
}

#[test]
fn i8_what_was_taken_over_is_not_settled_by_the_old_owner() {
    caught(Invariant::I8, |script| {
        script.each_put("put", "dispatched", |image| image.attempt.as_mut().unwrap().owner = 5);
    });
}

#[test]
fn i8_an_older_one_takes_over_only_from_one_that_is_over() {
    let taken = |fenced_before_ms: Option<i64>| {
        let mut script = good();
        let mut adopted = None;
        script.each_put("push", "dispatched", |image| {
            let attempt = image.attempt.as_mut().unwrap();
            if adopted.is_none() {
                attempt.epoch = 5;
                attempt.owner = 5;
            }
            adopted = Some(image.clone());
        });
        let mut image = adopted.unwrap();
        let mut at_ms = 0;
        script.each_entry(|entry| {
            let ends = |change: &RecordChange| matches!(change, RecordChange::Put(next) if next.record_id == image.record_id && next.state == "indeterminate");
            if let Some(place) = entry.changes.iter().position(ends) {
                image.attempt.as_mut().unwrap().owner = entry.epoch;
                at_ms = entry.at_ms;
                entry.changes.insert(place, RecordChange::Put(Box::new(image.clone())));
            }
        });
        if let Some(before_ms) = fenced_before_ms {
            script.probe(Probe::Fenced { epoch: 5, at_ms: at_ms - before_ms, by: None });
        }
        let verdict = judged(&script);
        let taken = verdict.of(Invariant::I8).filter(|one| one.why.contains("had taken over"));
        taken.count()
    };
    assert_eq!(taken(Some(1)), 0);
    assert_eq!(taken(Some(-1)), 1);
    assert_eq!(taken(None), 1);
}

#[test]
fn i9_an_unknown_outcome_does_not_become_known_by_nothing() {
    only(Invariant::I9, |script| {
        script.each_put("push", "succeeded", |image| image.resolved = None)
    });
}

#[test]
fn i9_evidence_is_about_the_attempt_and_is_there() {
    let by = |key: &'static str,
              state: &'static str,
              by: &'static str,
              attempt: Option<u32>,
              who: Option<&'static str>| {
        move |script: &mut Script| {
            script.each_put(key, state, |image| image.resolved = Script::resolved(by, attempt, who))
        }
    };
    only(Invariant::I9, by("post", "failed_final", "probe", Some(2), None));
    only(Invariant::I9, by("push", "succeeded", "operator", None, Some("cleo")));
    caught(Invariant::I9, by("push", "succeeded", "late_answer", Some(2), None));
    // The effect exists, so this evidence is plausible.
    let mut script = good();
    by("push", "succeeded", "late_answer", Some(1), None)(&mut script);
    assert_eq!(judged(&script).of(Invariant::I9).count(), 0);
    caught(Invariant::I9, |script| {
        script.undo("plc_push");
        by("push", "succeeded", "probe", Some(1), None)(script);
    });
}

#[test]
fn i9_evidence_may_be_about_the_arm_before_but_not_about_an_earlier_one() {
    let late = |attempt: u32| {
        let mut script = good();
        script.each_put("push", "indeterminate", |image| {
            let mut before = image.attempt.clone().unwrap();
            image.attempt.as_mut().unwrap().number = 3;
            before.number = 2;
            image.unknown = Some(before);
        });
        script.each_put("push", "succeeded", |image| {
            image.resolved = Script::resolved("late_answer", Some(attempt), None);
        });
        judged(&script).of(Invariant::I9).count()
    };
    assert_eq!(late(3), 0);
    assert_eq!(late(2), 0);
    assert_eq!(late(1), 1);
}

#[test]
fn i9_evidence_about_the_arm_before_counts_while_the_next_one_waits() {
    let late = |attempt: u32, remembered: bool| {
        let mut script = good();
        script.each_put("push", "indeterminate", |image| {
            let before = image.attempt.take();
            "rearmed".clone_into(&mut image.state);
            image.unknown = before.filter(|_| remembered);
        });
        script.each_put("push", "succeeded", |image| {
            image.resolved = Script::resolved("late_answer", Some(attempt), None);
        });
        judged(&script)
    };
    let says = |judged: &Verdict, of: Invariant, what: &str| {
        judged.of(of).any(|one| one.why.contains(what))
    };
    assert!(!says(&late(1, true), Invariant::I9, "another attempt"));
    assert!(says(&late(2, true), Invariant::I9, "another attempt"));
    assert!(!says(&late(1, true), Invariant::I7, "unknown before"));
    assert!(says(&late(1, false), Invariant::I7, "unknown before"));
}

#[test]
fn i9_not_found_counts_after_the_settle_delay() {
    let why = caught(Invariant::I9, |script| {
        script.each_put("post", "dispatched", |image| {
            image.attempt.as_mut().unwrap().deadline_ms += 60_000
        });
    });
    assert!(why[0].contains("settle delay"), "{why:?}");
    caught(Invariant::I9, |script| {
        script.lines.retain(|line| !matches!(line.what, crate::witness::log::Seen::Asked { .. }));
    });
}

#[test]
fn i9_another_arm_needs_operators_who_said_so() {
    let rearm = |script: &mut Script, who: &[&str], said: &[&str]| {
        then(script, "lost", "indeterminate", "rearmed");
        script.each_put("lost", "rearmed", |image| {
            image.arm = 2;
            image.unknown = image.attempt.take();
            image.rearm = who.iter().map(|one| (*one).to_owned()).collect();
        });
        script.each_probe(|probe| {
            if let Probe::Records { records, .. } = probe {
                records
                    .iter_mut()
                    .filter(|row| row.record_id.contains("lost"))
                    .for_each(|row| row.state = "rearmed".to_owned());
            }
        });
        let key = super::script::Key::new("push", "lost", "scribe");
        let mut more = script.clone();
        let before = more.events.len();
        said.iter().for_each(|one| more.operator(&key, Act::Rearm, one));
        let acts: Vec<_> = more.events.split_off(before);
        assert!(acts.iter().all(|event| matches!(event.what, What::Operator(_))));
        script.events.extend(acts);
    };
    // That an approved call is sent is another promise: this history ends before.
    only(Invariant::I13, |script| rearm(script, &["ben", "cleo"], &["ben", "cleo"]));
    caught(Invariant::I9, |script| rearm(script, &["ben", "ben"], &["ben"]));
    caught(Invariant::I9, |script| rearm(script, &[], &["ben", "cleo"]));
    caught(Invariant::I9, |script| rearm(script, &["ben", "cleo"], &["ben"]));
}

#[test]
fn i14_a_hole_a_broken_link_and_a_wrong_head_are_caught() {
    only(Invariant::I14, |script| {
        script.each_entry(|entry| {
            if entry.seq == 5 {
                entry.prev = "other".to_owned()
            }
        })
    });
    only(Invariant::I14, |script| {
        script.each_entry(|entry| {
            if entry.seq == 5 {
                entry.hash = "other".to_owned()
            }
        })
    });
    only(Invariant::I14, |script| {
        script.keep_probes(|probe| !matches!(probe, Probe::Entry(entry) if entry.seq == 1));
        script.keep_probes(|probe| !matches!(probe, Probe::LogEnd { .. }));
        script.each_entry(|entry| {
            if entry.seq > 3 {
                entry.seq += 1
            }
        });
        script.each_probe(|probe| {
            if let Probe::Verified { entries, .. } = probe {
                *entries = None
            }
        });
    });
    only(Invariant::I14, |script| {
        script.each_probe(|probe| {
            if let Probe::LogEnd { entries, .. } = probe {
                *entries += 1
            }
        });
    });
    only(Invariant::I14, |script| {
        script.each_entry(|entry| {
            if entry.seq == 2 {
                entry.at_ms -= 600_000
            }
        })
    });
}

#[test]
fn i14_a_check_that_found_something_is_caught() {
    only(Invariant::I14, |script| {
        script.each_probe(|probe| {
            if let Probe::Verified { ok, .. } = probe {
                *ok = false
            }
        });
    });
    only(Invariant::I14, |script| {
        script.each_probe(|probe| {
            if let Probe::Verified { head, .. } = probe {
                *head = Some("other".to_owned())
            }
        });
    });
}

#[test]
fn i14_listings_and_log_say_the_same() {
    type Doctor = fn(&mut crate::history::probe::RecordRow);
    let doctors: [Doctor; 4] = [
        |row| row.attempts += 1,
        |row| row.call_id.push('x'),
        |row| row.token = Some("plc_other".to_owned()),
        |row| row.state = "failed_final".to_owned(),
    ];
    for doctor in doctors {
        caught(Invariant::I14, |script| {
            script.each_probe(|probe| {
                if let Probe::Records { records, .. } = probe {
                    records
                        .iter_mut()
                        .filter(|row| row.record_id == "rec_scribe_lost")
                        .for_each(doctor);
                }
            });
        });
    }
    // It was answered as done.
    caught(Invariant::I14, |script| {
        script.each_probe(|probe| {
            if let Probe::Records { records, .. } = probe {
                records
                    .iter_mut()
                    .filter(|row| row.call_id == "call_scribe_put")
                    .for_each(|row| row.state = "indeterminate".to_owned());
            }
        });
    });
    caught(Invariant::I14, |script| {
        script.each_probe(|probe| {
            if let Probe::Records { records, .. } = probe {
                records.retain(|row| row.record_id != "rec_scribe_retried");
            }
        });
    });
    only(Invariant::I14, |script| {
        script.each_probe(|probe| {
            if let Probe::Approvals { approvals, .. } = probe {
                approvals.iter_mut().for_each(|row| row.state = "void".to_owned());
            }
        });
    });
}

#[test]
fn i14_a_result_may_be_over_after_it_was_listed_and_no_other_end() {
    let listed = |script: &mut Script, state: &str| {
        then(script, "retried", "succeeded", "tombstone");
        script.each_put("retried", "tombstone", |image| image.was = Some("succeeded".to_owned()));
        script.each_probe(|probe| {
            if let Probe::Records { records, .. } = probe {
                records
                    .iter_mut()
                    .filter(|row| row.record_id.contains("retried"))
                    .for_each(|row| row.state = state.to_owned());
            }
        });
    };
    fine(|script| listed(script, "succeeded"));
    caught(Invariant::I14, |script| listed(script, "failed_final"));
}

#[test]
fn i14_nodes_list_the_same() {
    caught(Invariant::I14, |script| {
        let mut other = script
            .events
            .iter()
            .find(|event| matches!(&event.what, What::Probe(probe) if matches!(**probe, Probe::Records { .. })))
            .unwrap()
            .clone();
        if let What::Probe(probe) = &mut other.what
            && let Probe::Records { node, records, .. } = &mut **probe
        {
            *node = 1;
            records.pop();
        }
        script.events.push(other);
    });
}
