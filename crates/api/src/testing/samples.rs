//! Answers of the engine and views of the approval service, for tests of their form and of pages that are hard to come to.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use serde_json::{Value, json};

use placet_approvals::views::{
    ApprovalDetail, ApprovalView, DirectiveView, InboxItem, InboxView, QueueMetrics, TimelineView,
};
use placet_engine::answer::{Answer, Held, RefusedCall};
use placet_types::{
    approval::{HoldReason, Requirement},
    clock::Timestamp,
    digest::Digest,
    envelope::result::{
        Cost, Latency, PendingApproval, ResultError, ResultStatus, ResultVersion,
        ToolResultEnvelope,
    },
    error::{ErrorCode, Refusal},
    ids::{RecordId, ToolCallId},
    principal::PrincipalChain,
};

pub const CALL: &str = "call-1";
pub const APPROVAL: &str = "approval-1";

pub fn record_id() -> RecordId {
    Digest::of(b"record").to_string().parse().unwrap()
}

fn call_id() -> ToolCallId {
    ToolCallId::new(CALL).unwrap()
}

fn envelope(status: ResultStatus) -> ToolResultEnvelope {
    ToolResultEnvelope {
        envelope_version: ResultVersion::V1,
        tool_call_id: call_id(),
        run_id: Some("run-1".parse().unwrap()),
        trace_id: "0af7651916cd43dd8448eb211c80319c".to_owned(),
        session_id: None,
        capability_id: Some("files/read".parse().unwrap()),
        idempotency_key: None,
        status,
        output: json!(null),
        citations: Vec::new(),
        mutations: Vec::new(),
        policy_decision_id: None,
        approval_id: None,
        pending_approval: None,
        latency: Latency::default(),
        retries: 0,
        cost: Cost::default(),
        replayed: false,
        error: None,
        trace_context: None,
        edited_args: None,
        edited_masked: BTreeSet::new(),
    }
}

pub fn finished() -> Answer {
    let output = json!("two\nlines");
    Answer::Finished(Arc::new(ToolResultEnvelope { output, ..envelope(ResultStatus::Succeeded) }))
}

fn error(refusal: &Refusal) -> Option<ResultError> {
    Some(ResultError {
        error_code: refusal.code,
        message: refusal.message.clone(),
        retryable: refusal.code.retryable(),
        remediation: refusal.code.remediation().to_owned(),
        execution: refusal.execution,
        problems: refusal.problems.clone(),
        retry_after_ms: refusal.retry_after_ms,
    })
}

pub fn in_progress() -> Answer {
    let refusal = Refusal::new(ErrorCode::InProgress, "busy").with_retry_after_ms(1_000);
    let error = error(&refusal);
    Answer::InProgress(Arc::new(ToolResultEnvelope { error, ..envelope(ResultStatus::Pending) }))
}

fn requirement() -> Requirement {
    let reason = HoldReason {
        policy: "secret-policy".to_owned(),
        reason: "deletes are shown first".to_owned(),
        asks: BTreeSet::new(),
    };
    Requirement {
        reasons: vec![reason],
        ..Requirement::new(BTreeMap::from([("owners".parse().unwrap(), 1)]), 1, 86_400_000)
    }
}

pub fn held() -> Answer {
    let pending = PendingApproval {
        state: "pending".to_owned(),
        awaits_credential: false,
        unreachable: false,
        requirement: Requirement { reasons: Vec::new(), ..requirement() },
        expires_at: Timestamp::from_ms(1_000),
    };
    Answer::Held(Box::new(Held {
        call_id: call_id(),
        approval_id: APPROVAL.parse().unwrap(),
        requirement: requirement(),
        result: ToolResultEnvelope {
            approval_id: Some(APPROVAL.parse().unwrap()),
            pending_approval: Some(pending),
            error: error(&Refusal::new(ErrorCode::ApprovalPending, "it waits")),
            ..envelope(ResultStatus::Pending)
        },
    }))
}

pub fn refused(refusal: Refusal) -> Answer {
    let result = ToolResultEnvelope {
        policy_decision_id: Some("decision-1".parse().unwrap()),
        error: error(&refusal),
        ..envelope(ResultStatus::Refused)
    };
    Answer::Refused(Box::new(RefusedCall { refusal, result }))
}

fn chain() -> PrincipalChain {
    let actor = json!({ "kind": "agent", "tenant_id": "a", "id": "agent-1" });
    serde_json::from_value(json!({ "actor": actor })).unwrap()
}

fn approval() -> ApprovalView {
    ApprovalView {
        approval_id: APPROVAL.parse().unwrap(),
        state: "pending".to_owned(),
        void_reason: None,
        unreachable: false,
        withdrawn: None,
        call_id: call_id(),
        capability_id: "files/delete".parse().unwrap(),
        principal_chain: chain(),
        requirement: requirement(),
        votes: Vec::new(),
        lapsed: BTreeSet::new(),
        created_at: Timestamp::from_ms(0),
        expires_at: Timestamp::from_ms(1_000),
        mode: placet_types::mode::ApprovalMode::Destructive,
        edits: 0,
        escalated: 0,
        digest: Digest::of(b"shown"),
    }
}

pub fn detail() -> ApprovalDetail {
    let digest = Digest::of(b"shown");
    let proposal = json!({
        "envelope_version": "contextos.tool_proposal.v1",
        "approval_id": APPROVAL,
        "call": {
            "envelope_version": "contextos.tool_call.v1", "tool_call_id": CALL, "run_id": "run-1",
            "trace_id": "0af7651916cd43dd8448eb211c80319c", "capability_id": "files/delete", "args": {},
            "principal_chain": chain(), "approval_mode_requested": "destructive",
            "approval_mode_effective": "destructive", "approval_mode_highest": "destructive", "evidence_refs": [],
        },
        "evidence": {
            "request_digest": digest, "effective_args_digest": digest, "preview": {}, "preview_digest": digest,
            "contract_digest": digest, "target": "files", "credential": {},
            "bundle_digest": digest, "calls_left_after": 1, "cents_left_after": 0,
        },
        "requirement": requirement(),
        "expires_at": 1_000,
    });
    let standing = json!({
        "may_approve": true, "may_deny": true, "may_edit": true, "needs_fresh_auth": false,
        "completes": true, "grantable": false,
        "progress": [{ "group": "owners", "wanted": 1, "agreed": 0, "escalated": false }],
    });
    ApprovalDetail {
        approval: approval(),
        proposal: Some(serde_json::from_value(proposal).unwrap()),
        part: None,
        standing: serde_json::from_value(standing).unwrap(),
        outcome: None,
    }
}

/// An inbox with this many lines like it.
pub fn inbox(approval: &ApprovalView, lines: usize) -> InboxView {
    let item = InboxItem {
        approval: approval.clone(),
        mine: true,
        progress: detail().standing.progress,
        summary: "path: <b>a.txt</b>".to_owned(),
    };
    InboxView {
        approvals: vec![item; lines],
        total: Some(lines),
        next_after: None,
        incomplete: false,
        mine: lines,
        load: QueueMetrics::default(),
    }
}

/// An entry of the approval service; the reader may do everything with it.
fn entry(body: &Value) -> DirectiveView {
    serde_json::from_value(json!({
        "directive_id": body["kind"], "state": "proposed", "in_force": true, "review_due": true, "by": "cy", "reason": "because <u>",
        "created_at": 0, "starts_at": 0, "expires_at": 86_400_000, "body": body,
        "requirement": requirement(), "votes": [], "uses": 1, "digest": Digest::of(b"entry"),
        "standing": { "may_agree": true, "may_refuse": true, "may_end": true, "may_review": true },
    }))
    .unwrap()
}

pub fn grant() -> DirectiveView {
    entry(&json!({
        "kind": "grant", "approval_id": APPROVAL, "chain": chain(), "capability": "files/delete",
        "mode": "destructive", "contract_digest": Digest::of(b"entry"), "uses_max": 3,
        "pattern": { "/path": { "starts_with": "<i>reports/" }, "/count": { "at_most": 5 } },
    }))
}

pub fn break_glass() -> DirectiveView {
    entry(&json!({ "kind": "break_glass", "ticket": "INC-1 <script>\u{202e}" }))
}

pub fn timeline() -> TimelineView {
    let step = json!({
        "log": "journal", "seq": 4, "at": 5, "kind": "approval_asked", "by": "agent-1 <b>",
        "audiences": { "tok_1": ["https://mail.example <i>", "placet"] },
        "digests": { "request": Digest::of(b"request") }, "hash": "00ff",
    });
    let steps = vec![serde_json::from_value(step).unwrap()];
    TimelineView { call_id: CALL.parse().unwrap(), steps, incomplete: true }
}
