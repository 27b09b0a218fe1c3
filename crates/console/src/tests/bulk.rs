//! Several calls on one page: each with what matters for the decision, and decided under the digest of what was shown.

use placet_approvals::views::ApprovalDetail;
use placet_types::{digest::Digest, taint::Taint};
use serde_json::json;

use super::{Browser, checked, now, shown, visitor};
use crate::bulk;
use placet_api::testing::{APPROVAL, sample_detail};

/// A call with edited arguments, not only reduced and also masked ones; the reader got it by delegation from a colleague.
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
    detail.approval.lapsed = [0].into();
    detail.standing.completes = false;
    detail.standing.stands_for = Some("zoe".parse().unwrap());
    detail
}

/// The page for somebody who selected it in the inbox.
async fn look(detail: ApprovalDetail) -> String {
    shown(bulk::view(&[detail], 1, &visitor().await, now())).await
}

#[tokio::test]
async fn each_says_what_was_changed_by_whom_why_it_waits_and_what_a_decision_does() {
    let text = look(edited()).await;
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
        "1 agreement counts no more: by cleo. The arguments changed",
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
    let mut detail = sample_detail();
    let text = look(detail.clone()).await;
    for words in
        ["changed arguments", "<del>", "Masked values", "only yours to deny", "in the place of"]
    {
        assert!(!text.contains(words), "{words}: {text}");
    }
    assert!(text.contains("nobody else is needed") && text.contains("Approve all 1"), "{text}");
    detail.standing.may_approve = false;
    detail.standing.needs_fresh_auth = true;
    detail.standing.why_not = Some("you wrote <these> arguments".to_owned());
    let text = look(detail).await;
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
    let (one, two) = (browser.api.held("one").await, browser.api.held("two").await);
    let chosen = format!("pick={}&pick={}", one.approval, two.approval);
    let text = checked(&browser.post("/together", &chosen).await);
    let items: Vec<String> = text
        .split("name=\"item\" value=\"")
        .skip(1)
        .map(|part| part.split('"').next().unwrap().replace(' ', "+"))
        .collect();
    assert_eq!(items, [&one, &two].map(|held| format!("{}+{}", held.approval, held.digest)));
    // One of them changes before it is decided.
    let edit = json!({ "args": { "path": "b" }, "reason": "less", "digest": two.digest });
    let edits = format!("/v1/approvals/{}/edits", two.approval);
    assert_eq!(browser.api.post_as("cy", &edits, edit).await.status, 200);
    let form = format!("decision=approve&reason=seen&item={}&item={}", items[0], items[1]);
    let decided = browser.post("/together/decision", &form).await;
    assert_eq!(decided.status, 409);
    let text = checked(&decided);
    assert!(
        text.contains("1 decision is recorded") && text.contains("1 was not decided"),
        "{text}"
    );
    for (held, votes) in [(&one, 1), (&two, 0)] {
        let path = format!("/v1/approvals/{}", held.approval);
        let approval = browser.api.get_as("ben", &path).await.json()["approval"].take();
        assert_eq!(approval["votes"].as_array().unwrap().len(), votes, "{approval}");
    }
}

#[tokio::test]
async fn several_have_to_be_chosen_and_what_is_gone_is_left_out() {
    let browser = Browser::signed_in().await;
    assert_eq!(browser.post("/together", "").await.status, 400);
    let held = browser.api.held("one").await;
    let look = browser.post("/together", &format!("pick={}&pick=gone", held.approval)).await;
    let text = checked(&look);
    assert!(text.contains("1 chosen call is") && text.contains("Approve all 1"), "{text}");
}

#[tokio::test]
async fn the_page_of_a_refused_decision_goes_on_under_the_call_s_own_address() {
    let browser = Browser::signed_in().await;
    let held = browser.api.held("one").await;
    let (page, form) = (
        format!("/approvals/{}", held.approval),
        format!("decision=approve&reason=+&digest={}", held.digest),
    );
    let refused = browser.post(&format!("{page}/decision"), &form).await;
    assert_eq!(refused.status, 400);
    let text = checked(&refused);
    assert!(text.contains(&format!("data-address=\"{page}\"")), "{text}");
    let again = browser.get(&format!("{page}/decision")).await;
    assert_eq!((again.status.as_u16(), again.header("location")), (303, Some(page.as_str())));
    assert_eq!(browser.get("/approvals/not%20an%20id/decision").await.status, 404);
}
