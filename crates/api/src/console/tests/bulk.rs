//! Several calls on one page: each with what matters for the decision, and decided under the digest of what was shown.

use placet_approvals::views::{ApprovalDetail, BulkItem};
use placet_types::{digest::Digest, taint::Taint};
use serde_json::json;

use super::{Browser, checked};
use crate::testing::{APPROVAL, sample_detail};

/// A call whose arguments somebody changed, not only to less, masked ones too; it came to the reader from a colleague.
fn edited() -> ApprovalDetail {
    let mut detail = sample_detail();
    let proposal = detail.proposal.as_mut().unwrap();
    let evidence = &mut proposal.evidence;
    evidence.preview = json!({ "cents": 45_000, "iban": "[sensitive]", "note": "<b>new</b>" });
    evidence.target = "the till".to_owned();
    evidence.description = "Gives <i>money</i> back.".to_owned();
    evidence.taint = [Taint::UntrustedContent].into();
    let before = json!({ "cents": 90_000, "iban": "[sensitive]" });
    let edit = json!({
        "by": "mallory", "reason": "half <u>of</u> it", "at": 1, "preview": before, "authors": ["mallory"],
        "masked": ["/iban"], "request_digest": evidence.request_digest,
    });
    evidence.edited = Some(serde_json::from_value(edit).unwrap());
    detail.approval.edits = 1;
    detail.approval.digest = Digest::of(b"edited");
    detail.approval.votes = vec![
        serde_json::from_value(json!({
            "approver": "cleo", "groups": [], "groups_as_of": 0, "choice": "approve", "reason": "before the change", "at": 0,
            "shown_digest": Digest::of(b"shown"),
        }))
        .unwrap(),
    ];
    detail.standing.completes = false;
    detail.standing.stands_for = Some("zoe".parse().unwrap());
    detail
}

/// Which is looked at by who chose it in the inbox.
async fn look(browser: &Browser, detail: ApprovalDetail) -> String {
    browser.api.fake.desk.lock().detail = Some(detail);
    checked(&browser.post("/together", &format!("pick={APPROVAL}")).await)
}

#[tokio::test]
async fn each_says_what_was_changed_by_whom_why_it_waits_and_what_a_decision_does() {
    let browser = Browser::signed_in().await;
    let text = look(&browser, edited()).await;
    for words in [
        "1 call of these runs",
        "with changed arguments",
        // What was, what is, what is new; who did it, why, and where nobody can see it.
        "<del>",
        "90000",
        "45000",
        "&lt;b&gt;new&lt;/b&gt;",
        "<strong>mallory</strong> changed the arguments",
        "half &lt;u&gt;of&lt;/u&gt; it",
        "somebody else has to agree",
        "Masked values were changed too.",
        "<code>/iban</code>",
        "do not count for what would run now",
        // What it is, where, until when, and what the run has read.
        "the till",
        "Gives &lt;i&gt;money&lt;/i&gt; back.",
        "It cannot be undone.",
        "Ends</dt>",
        "untrusted content",
        "deletes are shown first",
        "(policy secret-policy)",
        "1 person of owners must agree.",
        "the call still waits for others",
        "in the place of <strong>zoe</strong>",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let digest = Digest::of(b"edited");
    assert!(text.contains(&format!("name=\"item\" value=\"{APPROVAL} {digest}\"")), "{text}");
}

#[tokio::test]
async fn what_nobody_changed_is_shown_plainly_and_what_cannot_be_approved_says_so() {
    let browser = Browser::signed_in().await;
    let mut detail = sample_detail();
    let text = look(&browser, detail.clone()).await;
    for words in
        ["changed arguments", "<del>", "Masked values", "only yours to deny", "in the place of"]
    {
        assert!(!text.contains(words), "{words}: {text}");
    }
    assert!(text.contains("nobody else is needed") && text.contains("Approve all 1"), "{text}");
    detail.standing.may_approve = false;
    detail.standing.needs_fresh_auth = true;
    detail.standing.why_not = Some("you wrote <these> arguments".to_owned());
    let text = look(&browser, detail).await;
    for words in [
        "only yours to deny",
        "You wrote &lt;these&gt; arguments.",
        "just proved who they are",
        "Deny all 1",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(!text.contains("Approve all"), "{text}");
}

#[tokio::test]
async fn a_decision_on_several_names_the_digest_that_was_shown_of_each() {
    let browser = Browser::signed_in().await;
    let text = look(&browser, edited()).await;
    let item = text.split("name=\"item\" value=\"").nth(1).unwrap().split('"').next().unwrap();
    let form = format!("decision=approve&reason=seen&item={}", item.replace(' ', "+"));
    assert_eq!(browser.post("/together/decision", &form).await.status, 200);
    let desk = browser.api.fake.desk.lock();
    let shown = BulkItem { approval_id: APPROVAL.parse().unwrap(), digest: Digest::of(b"edited") };
    assert_eq!(desk.togethers[0].approvals, [shown]);
}

#[tokio::test]
async fn the_page_of_a_refused_decision_goes_on_under_the_call_s_own_address() {
    let browser = Browser::signed_in().await;
    let form = format!("decision=approve&reason=+&digest={}", Digest::of(b"shown"));
    let refused = browser.post("/approvals/approval-1/decision", &form).await;
    assert_eq!(refused.status, 400);
    let text = checked(&refused);
    assert!(text.contains("data-address=\"/approvals/approval-1\""), "{text}");
    let again = browser.get("/approvals/approval-1/decision").await;
    assert_eq!(
        (again.status.as_u16(), again.header("location")),
        (303, Some("/approvals/approval-1"))
    );
    assert_eq!(browser.get("/approvals/not%20an%20id/decision").await.status, 404);
}
