//! Every route × {no token, a token that does not verify, another tenant's token}: a new operation is tested by being there.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};

use placet_types::digest::Digest;

use crate::{
    config::ServerConfig,
    operation::Operation,
    testing::{APPROVAL, CALL, Fake, Reply, TestApi, record_id, submission},
};

/// A path of the operation that exists for tenant-a.
fn path(operation: Operation) -> String {
    let id = match operation {
        Operation::GetCall
        | Operation::FollowCall
        | Operation::GetTimeline
        | Operation::GetReceipt => CALL.to_owned(),
        Operation::GetApproval
        | Operation::DecideApproval
        | Operation::EditApproval
        | Operation::WithdrawApproval => APPROVAL.to_owned(),
        Operation::GetDecision => "dec_1".to_owned(),
        Operation::ShowError => "NOT_FOUND".to_owned(),
        Operation::GetDeskEntry | Operation::ActOnDeskEntry => "grant".to_owned(),
        Operation::GetRecord | Operation::ResolveRecord | Operation::RearmRecord => {
            record_id().to_string()
        }
        Operation::SubmitCall
        | Operation::ListTools
        | Operation::ReadInbox
        | Operation::ListApprovals
        | Operation::DecideBulk
        | Operation::ListDesk
        | Operation::ArrangeAtDesk
        | Operation::FollowDesk
        | Operation::ListRecords
        | Operation::ShowStatus
        | Operation::Reload
        | Operation::ShowCredentials
        | Operation::ShowReport
        | Operation::ListDecisions
        | Operation::ListCheckpoints
        | Operation::GetAuditKey
        | Operation::ProveInclusion
        | Operation::ProveConsistency
        | Operation::Metadata
        | Operation::Describe
        | Operation::About => String::new(),
    };
    let query = if operation == Operation::ProveInclusion {
        "?log=journal&seq=3"
    } else if operation == Operation::ProveConsistency {
        "?log=journal&from=3&to=7"
    } else {
        ""
    };
    format!("{}{query}", operation.path().replace("{id}", &id))
}

/// A body that the operation takes.
fn body(operation: Operation) -> Option<Value> {
    match operation {
        Operation::SubmitCall => Some(submission()),
        Operation::DecideApproval => {
            Some(json!({ "decision": "approve", "reason": "seen", "digest": Digest::of(b"shown") }))
        }
        Operation::EditApproval => Some(
            json!({ "args": { "path": "a" }, "reason": "less", "digest": Digest::of(b"shown") }),
        ),
        Operation::WithdrawApproval => Some(json!({ "reason": "not wanted any more" })),
        Operation::DecideBulk => Some(json!({
            "decision": "deny", "reason": "seen",
            "approvals": [{ "approval_id": APPROVAL, "digest": Digest::of(b"shown") }],
        })),
        Operation::ArrangeAtDesk => Some(json!({
            "arrange": { "kind": "freeze", "name": "night" }, "reason": "closed", "lasts_ms": 3_600_000,
        })),
        Operation::ActOnDeskEntry => Some(json!({ "act": "end", "reason": "done" })),
        Operation::ResolveRecord => {
            Some(json!({ "outcome": "happened", "evidence": "seen in the folder" }))
        }
        Operation::RearmRecord => Some(json!({ "evidence": "it was never seen" })),
        Operation::Reload => Some(json!({})),
        Operation::GetCall
        | Operation::FollowCall
        | Operation::GetTimeline
        | Operation::GetReceipt
        | Operation::ListTools
        | Operation::ReadInbox
        | Operation::ListApprovals
        | Operation::GetApproval
        | Operation::ListDesk
        | Operation::GetDeskEntry
        | Operation::FollowDesk
        | Operation::ListRecords
        | Operation::GetRecord
        | Operation::ShowStatus
        | Operation::ShowCredentials
        | Operation::ShowReport
        | Operation::ListDecisions
        | Operation::GetDecision
        | Operation::ShowError
        | Operation::ListCheckpoints
        | Operation::GetAuditKey
        | Operation::ProveInclusion
        | Operation::ProveConsistency
        | Operation::Metadata
        | Operation::Describe
        | Operation::About => None,
    }
}

fn request(operation: Operation, token: Option<&str>, body: Option<String>) -> Request<Body> {
    let mut request = Request::builder()
        .method(operation.method())
        .uri(path(operation))
        .header("host", "localhost:7411");
    if let Some(token) = token {
        request = request.header("authorization", token);
    }
    if body.is_some() {
        request = request.header("content-type", "application/json");
    }
    request.body(body.map(Body::from).unwrap_or_default()).unwrap()
}

/// The API whose streams end soon: one of them is read to its end.
fn api() -> TestApi {
    TestApi::with(Fake::new(), ServerConfig { stream_ms_max: 20, ..ServerConfig::default() })
}

/// Whether nobody changed anything behind the API.
fn is_untouched(api: &TestApi) -> bool {
    let desk = api.fake.desk.lock();
    let quiet = desk.edits.is_empty()
        && desk.togethers.is_empty()
        && desk.arranged.is_empty()
        && desk.acts.is_empty();
    quiet && api.fake.submitted.lock().is_empty() && api.fake.decided.lock().is_empty()
}

async fn ask(api: &TestApi, operation: Operation, token: Option<&str>) -> Reply {
    api.send(request(operation, token, body(operation).map(|body| body.to_string()))).await
}

#[tokio::test]
async fn every_operation_answers_its_own_tenant() {
    let api = api();
    for operation in Operation::ALL {
        let reply = ask(&api, operation, Some("Bearer tenant-a")).await;
        assert_eq!(reply.status, 200, "{operation:?}: {}", reply.text());
    }
}

#[tokio::test]
async fn every_operation_that_is_not_open_refuses_who_is_not_verified() {
    let api = api();
    let mut checked = 0_u32;
    for operation in Operation::ALL.into_iter().filter(|operation| !operation.is_open()) {
        for token in
            [None, Some("Bearer forged"), Some("tenant-a"), Some("Basic tenant-a"), Some("")]
        {
            let reply = ask(&api, operation, token).await;
            assert_eq!(
                (reply.status.as_u16(), reply.code().as_str()),
                (401, "UNAUTHENTICATED"),
                "{operation:?} {token:?}"
            );
            let challenge = reply.header("www-authenticate").unwrap();
            assert!(challenge.starts_with("Bearer resource_metadata=\""), "{challenge}");
            assert_eq!(
                challenge.ends_with("error=\"invalid_token\""),
                token.is_some(),
                "{challenge}"
            );
            assert!(!reply.text().contains("no such tenant"));
            checked = checked.saturating_add(1);
        }
    }
    assert_eq!(checked, 160);
    assert!(is_untouched(&api));
}

#[tokio::test]
async fn the_open_operations_need_no_token_and_say_nothing_of_any_tenant() {
    let api = api();
    let open: Vec<Operation> =
        Operation::ALL.into_iter().filter(|operation| operation.is_open()).collect();
    assert_eq!(
        open,
        [Operation::Metadata, Operation::Describe, Operation::ShowError, Operation::About]
    );
    for operation in open {
        let (with, without) =
            (ask(&api, operation, Some("Bearer tenant-a")).await, ask(&api, operation, None).await);
        assert_eq!(without.status, 200);
        assert_eq!(with.body, without.body);
    }
}

#[tokio::test]
async fn another_tenants_token_sees_nothing_on_any_route() {
    let api = api();
    for operation in Operation::ALL.into_iter().filter(|operation| !operation.is_open()) {
        let reply = ask(&api, operation, Some("Bearer tenant-b")).await;
        match operation {
            Operation::ListTools => assert_eq!(reply.json(), json!({ "tools": [] })),
            Operation::ListApprovals => assert_eq!(reply.json(), json!({ "approvals": [] })),
            Operation::ReadInbox => assert_eq!(reply.json()["approvals"], json!([])),
            Operation::ListDesk => assert_eq!(reply.json(), json!({ "entries": [] })),
            // Nothing that happens is for them.
            Operation::FollowDesk => {
                assert_eq!((reply.status.as_u16(), reply.text()), (200, String::new()))
            }
            Operation::SubmitCall => assert_eq!(reply.code(), "TOOL_NOT_FOUND"),
            Operation::ListRecords => assert_eq!(reply.code(), "POLICY_DENIED"),
            // They are about the log or the process as a whole, and name no tenant.
            Operation::ShowStatus
            | Operation::ListCheckpoints
            | Operation::GetAuditKey
            | Operation::ProveInclusion
            | Operation::ProveConsistency => assert_eq!(reply.status, 200),
            Operation::GetCall
            | Operation::FollowCall
            | Operation::GetTimeline
            | Operation::GetApproval
            | Operation::DecideApproval
            | Operation::EditApproval
            | Operation::WithdrawApproval
            | Operation::DecideBulk
            | Operation::ArrangeAtDesk
            | Operation::GetDeskEntry
            | Operation::ActOnDeskEntry
            | Operation::GetRecord
            | Operation::Reload
            | Operation::ShowCredentials
            | Operation::ShowReport
            | Operation::ListDecisions
            | Operation::GetDecision
            | Operation::ShowError
            | Operation::ResolveRecord
            | Operation::RearmRecord
            | Operation::GetReceipt
            | Operation::Metadata
            | Operation::Describe
            | Operation::About => {
                assert_eq!((reply.status.as_u16(), reply.code().as_str()), (404, "NOT_FOUND"))
            }
        }
        assert!(!reply.text().contains("tenant-a"), "{operation:?}: {}", reply.text());
    }
    assert!(is_untouched(&api));
}

/// Anyone who is not verified learns nothing about bodies, ids and queries either: the answer is always the same.
#[tokio::test]
async fn the_caller_is_verified_before_anything_else_is_read() {
    let api = api();
    let plain = ask(&api, Operation::SubmitCall, None).await;
    for request in [
        request(Operation::SubmitCall, None, Some("{not json".to_owned())),
        request(Operation::SubmitCall, None, Some(" ".repeat(2 * 1024 * 1024))),
        request(Operation::SubmitCall, None, None),
        Request::get("/v1/calls/%ff?wait_ms=x")
            .header("host", "localhost:7411")
            .body(Body::empty())
            .unwrap(),
        Request::get("/v1/approvals?limit=0&x=y")
            .header("host", "localhost:7411")
            .body(Body::empty())
            .unwrap(),
    ] {
        let reply = api.send(request).await;
        assert_eq!((reply.status, &reply.body), (plain.status, &plain.body));
    }
}

#[tokio::test]
async fn an_id_that_is_malformed_unknown_or_anothers_answers_byte_for_byte_the_same() {
    let api = api();
    for (operation, unknown) in [
        (Operation::GetCall, "call-2"),
        (Operation::FollowCall, "call-2"),
        (Operation::GetTimeline, "call-2"),
        (Operation::GetDeskEntry, "desk-2"),
        (
            Operation::GetRecord,
            "sha256:0000000000000000000000000000000000000000000000000000000000000000",
        ),
    ] {
        let anothers = ask(&api, operation, Some("Bearer tenant-b")).await;
        assert_eq!(anothers.status, 404);
        let long = "x".repeat(65);
        for id in
            [unknown, "%ff", "a%20b", "..%2f..%2fetc", "%00", "-", long.as_str(), "%F0%9F%92%A9"]
        {
            let reply = api.get(&operation.path().replace("{id}", id)).await;
            assert_eq!(reply.status, 404, "{id}: {}", reply.text());
            assert_eq!((&reply.body, &reply.headers), (&anothers.body, &anothers.headers), "{id}");
        }
    }
}
