//! How groups of other tenants are written, and documents from before there were any.

use serde_json::{Value, json};

use super::{ApproverGroup, Requirement, Vote};

#[test]
fn a_group_is_written_as_it_is_read() {
    for text in ["approvers", "globex/credit-approvers"] {
        let group: ApproverGroup = text.parse().unwrap();
        assert_eq!(group.to_string(), text);
        assert_eq!(serde_json::from_value::<ApproverGroup>(json!(group)).unwrap(), group);
    }
    for text in ["", "/", "globex/", "/approvers", "a/b/c", "glo bex/a", "{input.a}/b"] {
        assert!(text.parse::<ApproverGroup>().is_err(), "{text}");
    }
}

#[test]
fn a_group_of_the_calls_own_tenant_is_no_external_tenants() {
    let own = "acme".parse().unwrap();
    let group = ApproverGroup::of(&own, "acme".parse().unwrap(), "approvers".parse().unwrap());
    assert_eq!(group, "approvers".parse().unwrap());
    let other = ApproverGroup::of(&own, "globex".parse().unwrap(), "approvers".parse().unwrap());
    assert_eq!(other.to_string(), "globex/approvers");
    let groups = ["approvers".parse().unwrap()].into();
    assert!(group.has(None, &groups) && !other.has(None, &groups));
    let globex = "globex".parse().unwrap();
    assert!(other.has(Some(&globex), &groups) && !group.has(Some(&globex), &groups));
}

#[test]
fn what_was_kept_before_there_were_external_tenants_reads_and_writes_as_it_did() {
    let requirement = json!({
        "groups": { "approvers": 1, "security": 2 }, "quorum": 2, "expires_in_ms": 1_000,
        "escalations": [{ "after_ms": 1, "group": "leads", "people": 1, "stands_in_for": ["approvers"] }],
        "reasons": []
    });
    let read: Requirement = serde_json::from_value(requirement.clone()).unwrap();
    assert!(read.external_tenants().is_empty());
    assert_eq!(json!(read), requirement);
    let digest = crate::digest::Digest::of(b"shown");
    let vote = json!({
        "approver": "ben", "groups": ["approvers"], "groups_as_of": 1, "choice": "approve", "reason": "ok", "at": 1,
        "shown_digest": digest
    });
    let read: Vote = serde_json::from_value(vote.clone()).unwrap();
    assert_eq!(read.tenant, None);
    assert_eq!(json!(read), vote);
}

#[test]
fn a_tenant_that_is_asked_later_is_asked() {
    let requirement = json!({
        "groups": { "globex/a": 1, "b": 1 }, "quorum": 1, "expires_in_ms": 1_000, "reasons": [],
        "escalations": [{ "after_ms": 1, "group": "initech/c", "people": 1, "stands_in_for": ["initech/d"] }],
    });
    let read: Requirement = serde_json::from_value(requirement).unwrap();
    let external_tenants: Vec<String> =
        read.external_tenants().iter().map(ToString::to_string).collect();
    assert_eq!(external_tenants, ["globex", "initech"]);
}

#[test]
fn what_two_policies_ask_for_is_all_asked_for_and_said_why() {
    let read = |value| serde_json::from_value::<Requirement>(value).unwrap();
    let before = read(json!({
        "groups": { "approvers": 2, "globex/credit": 1 }, "quorum": 2, "deny_threshold": 3, "expires_in_ms": 5_000,
        "fresh_auth_ms": 60_000, "reasons": [
            { "policy": "a", "reason": "First." },
            { "policy": "b", "reason": "Second.", "asks": ["globex"] }
        ]
    }));
    let after = read(json!({
        "groups": { "approvers": 1, "finance": 1 }, "quorum": 3, "expires_in_ms": 9_000, "once_only": true,
        "reasons": [{ "policy": "a", "reason": "First." }, { "policy": "c", "reason": "Third." }]
    }));
    let joined = before.joined(after);
    let wanted = read(json!({
        "groups": { "approvers": 2, "finance": 1, "globex/credit": 1 }, "quorum": 3, "deny_threshold": 1,
        "fresh_auth_ms": 60_000, "expires_in_ms": 5_000, "once_only": true,
        "reasons": [
            { "policy": "a", "reason": "First." },
            { "policy": "c", "reason": "Third." },
            { "policy": "b", "reason": "Second.", "asks": ["globex"] }
        ]
    }));
    assert_eq!(joined, wanted);
    assert_eq!(before.joined(joined.clone()), joined, "shown as it is counted");
}

#[test]
fn a_group_stands_in_only_where_every_gate_that_asks_lets_it() {
    let read = |groups: &[&str], escalations: Value| {
        let groups: Value = groups.iter().map(|group| ((*group).to_owned(), json!(1))).collect();
        let requirement = json!({
            "groups": groups, "quorum": 1, "expires_in_ms": 9_000, "reasons": [], "escalations": escalations
        });
        serde_json::from_value::<Requirement>(requirement).unwrap()
    };
    let step = |after_ms: u64, group: &str, people: u32, stands_in_for: &[&str]| json!({ "after_ms": after_ms, "group": group, "people": people, "stands_in_for": stands_in_for });
    let before =
        read(&["a", "b"], json!([step(10, "leads", 2, &["a", "b"]), step(20, "heads", 1, &["a"])]));
    let after =
        read(&["a", "c"], json!([step(5, "others", 1, &["c"]), step(30, "leads", 1, &["a", "c"])]));
    let joined = before.joined(after);
    // `heads` is dropped, since the second gate asks `a` without it.
    let wanted = json!([step(5, "others", 1, &["c"]), step(30, "leads", 2, &["a", "b", "c"])]);
    assert_eq!(json!(joined.escalations), wanted);
    assert_eq!(before.joined(joined.clone()), joined, "shown as it is counted");
}
