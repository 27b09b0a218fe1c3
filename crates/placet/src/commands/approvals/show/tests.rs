//! How an approval is shown once its call has ended, or is held up.

use placet_approvals::views::ApprovalDetail;
use serde_json::{Value, json};

use super::shown;

/// An approval in a state, with additional fields and with the outcome of its call.
fn detail(state: &str, more: &Value, outcome: &Value) -> ApprovalDetail {
    let mut detail = json!({
        "approval": {
            "approval_id": "apr_1", "state": state, "call_id": "call_1", "capability_id": "files/delete",
            "principal_chain": { "actor": { "kind": "agent", "id": "dev-agent", "tenant_id": "local" } },
            "requirement": {
                "groups": { "approvers": 1 }, "quorum": 1, "expires_in_ms": 60_000, "reasons": [],
            },
            "votes": [], "created_at": 0, "expires_at": 0, "mode": "destructive",
            "digest": format!("sha256:{}", "0".repeat(64)),
        },
        "standing": {
            "may_approve": false, "may_deny": false, "may_edit": false, "needs_fresh_auth": false,
            "completes": false, "grantable": false,
            "progress": [{ "group": "approvers", "agreed": 1, "wanted": 1, "escalated": false }],
        },
        "outcome": outcome,
    });
    let approval = detail["approval"].as_object_mut().unwrap();
    approval.extend(more.as_object().unwrap().clone());
    serde_json::from_value(detail).unwrap()
}

/// The record of a call that ended.
fn ended(code: &str, message: &str) -> Value {
    json!({
        "record_id": format!("sha256:{}", "0".repeat(64)), "state": "x", "code": code,
        "message": message, "updated_at": 0,
    })
}

#[test]
fn a_finished_call_is_told_in_the_past_tense() {
    let withdrawn = json!({ "withdrawn": { "by": "ana", "reason": "not needed", "at": 0 } });
    for (state, more, called, said) in [
        ("failed", json!({}), "agent dev-agent called files__delete", "failed"),
        ("unknown", json!({}), "agent dev-agent called files__delete", "outcome unknown"),
        ("withdrawn", withdrawn, "agent dev-agent wanted to call files__delete", "withdrawn"),
    ] {
        let text = shown(&detail(state, &more, &Value::Null));
        assert!(text.starts_with(called), "{text}");
        for line in ["  needed    1 person in all", "  agreed    approvers 1/1"] {
            assert!(text.contains(line), "`{line}` is not in {text}");
        }
        assert!(text.contains(&format!("  state     {said}\n")), "{text}");
        for wrong in ["wants to", "  needs ", "  so far ", "ends "] {
            assert!(!text.contains(wrong), "`{wrong}` is in {text}");
        }
    }
    let text = shown(&detail("pending", &json!({}), &Value::Null));
    assert!(text.starts_with("agent dev-agent wants to call") && text.contains("  needs     1"));
}

#[test]
fn an_approver_is_told_why_the_call_did_not_succeed() {
    let failed = ended("ADAPTER_FAILED", "the disk is full");
    let text = shown(&detail("failed", &json!({}), &failed));
    assert!(text.contains("  outcome   failed with ADAPTER_FAILED"), "{text}");
    assert!(text.contains("    | the disk is full"), "{text}");
    let unknown = ended("OUTCOME_UNKNOWN", "the server did not answer");
    let text = shown(&detail("unknown", &json!({}), &unknown));
    assert!(text.contains("outcome unknown") && text.contains("placet ledger resolve"), "{text}");
    assert!(text.contains("    | the server did not answer"), "{text}");
    let void = json!({ "void_reason": "the contract changed" });
    let text = shown(&detail("void", &void, &Value::Null));
    assert!(text.contains("void (the contract changed)"), "{text}");
    let held_up = json!({ "unreachable": true });
    let text = shown(&detail("approved", &held_up, &Value::Null));
    assert!(text.contains("  held up   the tool cannot be reached"), "{text}");
}

#[test]
fn an_approval_outlives_what_its_approvers_were_shown() {
    let text = shown(&detail("sent", &json!({}), &Value::Null));
    for line in ["  mode      destructive", "  call      call_1", "  deleted   the arguments"] {
        assert!(text.contains(line), "`{line}` is not in {text}");
    }
    assert!(!text.contains("null"), "{text}");
}

#[test]
fn an_approved_call_says_that_a_lockdown_holds_it_up() {
    let mut approved = detail("approved", &json!({}), &Value::Null);
    assert!(!shown(&approved).contains("held up"));
    let lockdown = json!([{ "name": "breach", "until": 0, "lockdown": true }]);
    approved.standing.freezes = serde_json::from_value(lockdown).unwrap();
    let text = shown(&approved);
    assert!(text.contains("  held up   the call does not run before the lockdown ends"), "{text}");
    assert!(text.contains("  lockdown  in force until") && text.contains("(breach)"), "{text}");
}
