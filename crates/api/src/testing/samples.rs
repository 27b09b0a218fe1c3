//! What the engine of a test answers with.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;

use placet_approvals::views::{ApprovalDetail, ApprovalView};
use placet_engine::{
    answer::{Answer, Held, RefusedCall},
    engine::evidence::{AuditKeyView, CheckpointView, ConsistencyView, InclusionView, ReceiptView},
    report::{ReportNumbers, ReportRange, ReportRow, ReportView},
    views::{
        RecordView,
        decisions::DecisionView,
        status::{DiskState, StatusView},
    },
};
use placet_types::{
    approval::{HoldReason, Requirement},
    clock::Timestamp,
    digest::Digest,
    envelope::result::{
        Cost, Latency, PendingApproval, ResultError, ResultStatus, ResultVersion,
        ToolResultEnvelope,
    },
    error::{ErrorCode, Refusal},
    ids::ToolCallId,
    mode::EngineMode,
    principal::PrincipalChain,
};

use super::{APPROVAL, CALL, record_id};

pub(crate) fn call_id() -> ToolCallId {
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

pub(crate) fn finished() -> Answer {
    let output = json!("two\nlines");
    Answer::Finished(Box::new(ToolResultEnvelope { output, ..envelope(ResultStatus::Succeeded) }))
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

pub(crate) fn in_progress() -> Answer {
    let refusal = Refusal::new(ErrorCode::InProgress, "busy").with_retry_after_ms(1_000);
    let error = error(&refusal);
    Answer::InProgress(Box::new(ToolResultEnvelope { error, ..envelope(ResultStatus::Pending) }))
}

pub(super) fn requirement() -> Requirement {
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

pub(crate) fn held() -> Answer {
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

pub(crate) fn refused(refusal: Refusal) -> Answer {
    let result = ToolResultEnvelope {
        policy_decision_id: Some("decision-1".parse().unwrap()),
        error: error(&refusal),
        ..envelope(ResultStatus::Refused)
    };
    Answer::Refused(Box::new(RefusedCall { refusal, result }))
}

pub(super) fn report(range: ReportRange) -> ReportView {
    let numbers = ReportNumbers { calls: 4, succeeded: 3, failed: 1, ..ReportNumbers::default() };
    let row = ReportRow {
        adapter: "files".to_owned(),
        capability: "read".to_owned(),
        numbers: numbers.clone(),
    };
    ReportView {
        from: range.from.unwrap_or(Timestamp::from_ms(0)),
        to: range.to.unwrap_or(Timestamp::from_ms(1)),
        entries_read: 9,
        incomplete: false,
        total: numbers,
        rows: vec![row],
    }
}

pub(super) fn chain() -> PrincipalChain {
    let actor = json!({ "kind": "agent", "tenant_id": "a", "id": "agent-1" });
    serde_json::from_value(json!({ "actor": actor })).unwrap()
}

pub(super) fn approval() -> ApprovalView {
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

pub(crate) fn detail() -> ApprovalDetail {
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

pub(super) fn record() -> RecordView {
    RecordView {
        record_id: record_id(),
        call_id: call_id(),
        capability_id: "files/delete".parse().unwrap(),
        agent: "agent-1".to_owned(),
        on_behalf_of: None,
        state: "INDETERMINATE".to_owned(),
        attempts: 1,
        arm: 0,
        code: None,
        rearm: None,
        resolved_by: None,
        settled_at: None,
        dispatch_token: None,
        reason: None,
        created_at: Timestamp::from_ms(0),
        updated_at: Timestamp::from_ms(0),
        args: None,
        result: None,
    }
}

pub(super) fn receipt() -> ReceiptView {
    ReceiptView { receipt: "e30.e30.AA".to_owned() }
}

pub(super) fn checkpoint() -> CheckpointView {
    CheckpointView { log: "journal".to_owned(), size: 7, note: "a note".to_owned() }
}

pub(super) fn audit_key() -> AuditKeyView {
    AuditKeyView { vkey: "placet+00000000+AQ".to_owned(), jwk: json!({ "kty": "OKP" }) }
}

pub(super) fn inclusion(log: &str, seq: u64, size: Option<u64>) -> InclusionView {
    let size = size.unwrap_or(7);
    InclusionView { log: log.to_owned(), seq, size, entry: Digest::of(b"entry"), path: Vec::new() }
}

pub(super) fn consistency(log: &str, from: u64, to: u64) -> ConsistencyView {
    ConsistencyView { log: log.to_owned(), from, to, path: Vec::new() }
}

pub(super) fn decision() -> DecisionView {
    let digest = Digest::of(b"policies");
    serde_json::from_value(json!({
        "decision_id": "dec_1", "at": 0, "verdict": "deny", "denial": "policy", "code": "POLICY_DENIED",
        "call_id": CALL, "capability_id": "files/delete",
        "principal_chain": { "actor": { "kind": "agent", "id": "agent-1", "tenant_id": "tenant-a" } },
        "mode_requested": "read_only", "mode_effective": "destructive",
        "policies": [{ "policy": "no-deletes", "permits": false, "about": "the caller" }],
        "bundle_digest": digest, "log": "journal", "seq": 3, "hash": digest,
    }))
    .unwrap()
}

pub(super) fn status() -> StatusView {
    StatusView {
        bundle: Digest::of(b"bundle"),
        active: Digest::of(b"active"),
        epoch: 3,
        since: Timestamp::from_ms(1_767_225_600_000),
        disk: DiskState::Same,
        needs_restart: Vec::new(),
        mode: EngineMode::default(),
        decides: true,
        epoch_elsewhere: None,
    }
}
