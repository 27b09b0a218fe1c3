//! Tools that act with a user's authority: only for a user who delegated it, and upon evidence.
//!
//! Owns what a caller and an approver of the built program see of it. How references are found is tested in `placet-engine`.

use serde_json::{Value, json};

use crate::harness::{
    client::text,
    setup::{Setup, plan},
};

/// A set-up in which deleting acts with the user's authority.
fn set_up() -> Setup {
    let setup = Setup::new().files_contract();
    let mut contract = setup.read_contract("files");
    contract["capabilities"]["delete"]["also"] = json!(["delegated"]);
    let setup = setup.contract("files", &contract);
    setup.put("a.txt", "hello");
    setup
}

#[tokio::test]
async fn a_delegated_call_needs_a_user_and_earlier_results_of_its_run() {
    let setup = set_up();
    let placet = setup.start().await;
    let agent = setup.agent(&placet).await;
    let delete = |refs: Value| {
        let mut call = plan("files__delete", "s2", json!({ "path": "a.txt" }));
        call["evidence_refs"] = refs;
        call
    };
    let read = plan("files__read", "s1", json!({ "path": "a.txt" }));
    let alone = text(&agent.call(&read).await.succeeded(), "tool_call_id");
    let refusal = agent.call(&delete(json!([alone]))).await.refused(403, "CREDENTIAL_REFUSED");
    assert!(refusal["detail"].to_string().contains("Placet-Delegation"), "{refusal:#}");

    let user = setup.configured(&["token", "user", "ana", "--for-agent", "dev-agent"]).await;
    let user = user.ok().trim().to_owned();
    let call = async |call: &Value| agent.call_with(call, "Placet-Delegation", &user).await;
    let bare = call(&delete(json!([]))).await;
    bare.refused(400, "VALIDATION_ERROR");
    assert_eq!(bare.pointers(), ["/evidence_refs"]);
    // What the agent read alone is not of the user's run.
    let foreign = call(&delete(json!([alone]))).await;
    foreign.refused(400, "VALIDATION_ERROR");
    assert_eq!(foreign.pointers(), ["/evidence_refs/0"]);

    let looked = text(&call(&read).await.succeeded(), "tool_call_id");
    let held = call(&delete(json!([looked]))).await.held();
    let ben = setup.ben(&placet).await;
    let shown = ben.get(&format!("/v1/approvals/{}", text(&held, "approval_id"))).await.ok();
    let found = &shown["proposal"]["evidence"]["refs"][0];
    assert_eq!(
        (&found["kind"], &found["call_id"], &found["capability_id"]),
        (&json!("result"), &json!(looked), &json!("files/read"))
    );
    let printed = ["approvals", "show", &text(&held, "approval_id")];
    let printed = setup.asks(&placet, &setup.token("user", "ben").await, &printed).await;
    let line = format!("result of files/read ({looked}), sha256:");
    assert!(printed.ok().contains(&line), "{}", printed.ok());
    ben.decide(&held, "approve").await.ok();
}
