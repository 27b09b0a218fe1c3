//! Each answer of the engine as a response and as an event.

use axum::response::{IntoResponse as _, sse::Sse};
use futures::stream;

use placet_types::{
    error::{ErrorCode, Execution, Refusal},
    ids::ToolCallId,
};

use super::{event, respond};
use crate::testing::{CALL, Reply, finished, held, in_progress, refused};

#[tokio::test]
async fn a_finished_call_is_200_with_its_envelope() {
    let reply = Reply::of(respond(&finished())).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.json()["envelope_version"], "contextos.tool_result.v1");
}

#[tokio::test]
async fn a_held_call_is_202_and_says_where_to_ask_but_not_which_policy_holds_it() {
    let reply = Reply::of(respond(&held())).await;
    assert_eq!(reply.status, 202);
    assert_eq!(reply.header("location"), Some("/v1/calls/call-1"));
    let document = reply.json();
    assert_eq!(document["envelope_version"], "contextos.tool_result.v1");
    assert_eq!(document["status"], "pending");
    assert_eq!(document["error"]["error_code"], "APPROVAL_PENDING");
    assert_eq!(document["approval_id"], "approval-1");
    let pending = &document["pending_approval"];
    assert_eq!(pending["state"], "pending");
    assert_eq!(pending["requirement"]["groups"]["owners"], 1);
    assert!(!reply.text().contains("secret-policy"));
}

#[tokio::test]
async fn a_call_in_progress_is_409_with_a_place_and_a_time_to_ask_again() {
    let reply = Reply::of(respond(&in_progress())).await;
    assert_eq!((reply.status.as_u16(), reply.code().as_str()), (409, "IN_PROGRESS"));
    assert_eq!(reply.header("location"), Some("/v1/calls/call-1"));
    assert_eq!(reply.header("retry-after"), Some("1"));
    assert_eq!(reply.json()["execution"], "unknown");
}

#[tokio::test]
async fn a_refused_call_is_a_problem_that_says_what_is_known_of_the_effect() {
    let failed = Refusal::new(ErrorCode::AdapterFailed, "it broke")
        .with_execution(Execution::ExecutedAndFailed);
    for (refusal, status, execution) in [
        (Refusal::new(ErrorCode::PolicyDenied, "no"), 403, "not_executed"),
        (Refusal::new(ErrorCode::OutcomeUnknown, "nobody knows"), 409, "unknown"),
        (failed, 502, "executed_and_failed"),
    ] {
        let code = refusal.code;
        let reply = Reply::of(respond(&refused(refusal))).await;
        assert_eq!((reply.status.as_u16(), reply.code().as_str()), (status, code.as_str()));
        assert_eq!(reply.json()["execution"], execution);
        assert_eq!(reply.json()["call_id"], CALL);
        assert_eq!(reply.header("location"), None);
    }
}

#[tokio::test]
async fn an_event_carries_the_envelope_of_the_response_in_one_line() {
    let denied = refused(Refusal::new(ErrorCode::ApprovalDenied, "people said no"));
    for (name, answer) in [
        ("finished", finished()),
        ("held", held()),
        ("in_progress", in_progress()),
        ("refused", denied),
    ] {
        let sent = Sse::new(stream::iter([event(&answer)])).into_response();
        let sent = Reply::of(sent).await.text();
        let data = sent.strip_prefix(&format!("event: {name}\ndata: ")).unwrap();
        let body = Reply::of(respond(&answer)).await.json();
        let envelope = body.get("result").unwrap_or(&body);
        assert_eq!(serde_json::from_str::<serde_json::Value>(data).unwrap(), *envelope);
        assert_eq!(envelope["envelope_version"], "contextos.tool_result.v1");
        assert!(!data.trim_end().contains(['\n', '\r']));
    }
}

#[test]
fn the_place_of_the_longest_call_id_is_a_header() {
    let id = ToolCallId::new("x".repeat(64)).unwrap();
    assert!(crate::problem::call_location(&id).is_some());
}
