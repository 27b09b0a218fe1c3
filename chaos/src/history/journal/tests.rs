//! Reading exported entries.

use serde_json::{Value, json};

use super::{JournalEntry, RecordChange};

fn attempt() -> Value {
    json!({
        "number": 2, "token": "plc_1", "class": {"class": "keyed", "window_ms": 9000},
        "deadline_at": 30, "first_dispatched_at": 10, "epoch": 3, "adopted_by": 4, "decision_id": "dec_1",
        "bundle_digest": "sha256:b", "request_digest": "sha256:r", "contract_digest": "sha256:c", "approval_id": "apr_1",
    })
}

fn record(state: Value) -> Value {
    json!({
        "version": 1, "record_id": "sha256:1", "key": "k", "call_id": "call_1", "run_id": "run", "rev": 3, "arm": 1,
        "attempts": 2, "state": state,
        "scope": {"tenant": "acme", "kind": "agent", "agent": "scribe", "on_behalf_of": null, "capability": "w/put"},
    })
}

fn line(payload: Value) -> Value {
    json!({"seq": 1, "epoch": 1, "at_ms": 1, "payload": payload})
}

fn with(mut state: Value, name: &str) -> Value {
    state["state"] = json!(name);
    state
}

#[test]
fn a_dispatched_record_has_its_attempt_beside_the_name_of_its_state() {
    let line = json!({
        "seq": 7, "epoch": 3, "at_ms": 12, "hash": "ab", "prev": "aa",
        "payload": {"version": 1, "effects": [{"put": record(with(attempt(), "dispatched"))}]},
    });
    let entry = JournalEntry::read("journal", &line).unwrap();
    assert_eq!((entry.seq, entry.epoch, entry.at_ms, entry.log.as_str()), (7, 3, 12, "journal"));
    let RecordChange::Put(image) = &entry.changes[0] else { panic!("{entry:?}") };
    let attempt = image.attempt.as_ref().unwrap();
    assert_eq!((attempt.number, attempt.owner, attempt.class.as_str()), (2, 4, "keyed"));
    assert_eq!((image.state.as_str(), image.approval_id.as_deref()), ("dispatched", Some("apr_1")));
}

#[test]
fn a_settled_record_has_its_result_and_how_it_became_known() {
    let state = json!({"state": "succeeded", "result": "sha256:9", "resolved_by": {"by": "probe", "attempt": 1}});
    let mut line = line(json!({"effects": [{"put": record(state)}]}));
    line["at_ms"] = json!(1_795_305_599_999_i64);
    let entry = JournalEntry::read("journal", &line).unwrap();
    assert_eq!(entry.at_ms, 1_795_305_599_999);
    let RecordChange::Put(image) = &entry.changes[0] else { panic!("{entry:?}") };
    assert_eq!(image.result.as_deref(), Some("sha256:9"));
    let resolved = image.resolved.as_ref().unwrap();
    assert_eq!((resolved.by.as_str(), resolved.attempt), ("probe", Some(1)));
}

#[test]
fn an_adoption_a_re_arm_and_an_earlier_unknown_attempt_are_seen() {
    let read = |record: &Value| {
        let line = line(json!({"effects": [{"put": record}]}));
        let entry = JournalEntry::read("journal", &line).unwrap();
        let RecordChange::Put(image) = entry.changes[0].clone() else { panic!("{entry:?}") };
        image
    };
    let mut adopted = attempt();
    adopted["adopted_by"] = json!(9);
    let mut document = record(with(adopted.clone(), "dispatched"));
    document["unknown"] = json!({"attempt": attempt(), "reason": "lost", "result": "sha256:1"});
    let image = read(&document);
    assert_eq!((image.attempt.unwrap().owner, image.unknown.unwrap().number), (9, 2));
    let by = json!([{"operator": "ben", "evidence": "e", "at": 1}, {"operator": "cleo", "evidence": "e", "at": 2}]);
    assert_eq!(read(&record(json!({"state": "rearmed", "by": by}))).rearm, ["ben", "cleo"]);
    let asked = json!({"state": "indeterminate", "attempt": adopted, "rearm": {"operator": "ben"}});
    assert_eq!(read(&record(asked)).rearm, ["ben"]);
}

#[test]
fn an_approval_says_who_agreed_and_who_asked() {
    let line = line(json!({"approvals": [{
        "approval_id": "apr_1", "record_id": "sha256:1", "request_digest": "sha256:r", "rev": 2, "state": {"state": "approved"},
        "chain": {"agent": {"kind": "agent", "id": "scribe"}, "on_behalf_of": {"kind": "user", "id": "ada"}},
        "requirement": {"quorum": 1}, "expires_at": 99,
        "votes": [{"approver": "ben", "choice": "approve"}, {"approver": "cleo", "choice": "deny"}],
    }], "audit": [{"kind": "voted", "tenant": "acme", "digests": {"bundle": "sha256:b"}}]}));
    let entry = JournalEntry::read("journal", &line).unwrap();
    let approval = &entry.approvals[0];
    assert_eq!(
        (&approval.agreed, &approval.refused),
        (&vec!["ben".to_owned()], &vec!["cleo".to_owned()])
    );
    assert_eq!(approval.requesters, ["ada", "scribe"]);
    assert_eq!(entry.audit[0].digests["bundle"], "sha256:b");
}

#[test]
fn a_line_that_lacks_something_is_refused_by_its_name() {
    let error =
        JournalEntry::read("journal", &json!({"epoch": 1, "at_ms": 1, "payload": {}})).unwrap_err();
    assert!(error.to_string().contains("`seq`"), "{error}");
    for (name, payload) in
        [("effects", json!([{"put": {}}])), ("audit", json!([{"call_id": "call_1"}]))]
    {
        let error = JournalEntry::read("journal", &line(json!({name: payload}))).unwrap_err();
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
    }
    let removed = line(json!({"effects": [{"removed": {"record_id": "r", "rev": 2}}]}));
    assert_eq!(JournalEntry::read("j", &removed).unwrap().changes[0].rev(), 2);
}
