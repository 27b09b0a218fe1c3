//! What tests of every store are made of: records, approvals, runs and changes.
//!
//! Owns builders, and the suite of what every store promises ([`conformance`]).

pub(crate) mod conformance;
mod directives;

pub(crate) use directives::{
    delegation_body, directive, directive_id, directive_vote, directives_of, freeze_body,
    glass_body, grant, grant_body, note, put_directive, puts_directive, spends,
};

use std::collections::{BTreeMap, BTreeSet};

use placet_ledger::approval::{APPROVAL_VERSION, ApprovalRecord, ApprovalState};
use placet_ledger::audit::{AuditEvent, AuditKind, Subject};
use placet_ledger::log::AuditLog;
use placet_ledger::record::{Attempt, EffectRecord, EffectState, RECORD_VERSION, dispatch_token};
use placet_ledger::reservation::Reservation;
use placet_ledger::run::{RunKey, RunRecord, RunTaint};
use placet_ledger::store::{
    Admission, Changes, ClaimAnswer, Committed, Durability, EffectChange, Store, StoreError,
};
use placet_types::approval::{Requirement, Vote, VoteChoice};
use placet_types::clock::Timestamp;
use placet_types::contract::Dedup;
use placet_types::digest::Digest;
use placet_types::ids::{
    ApprovalId, DecisionId, IdempotencyKey, PrincipalId, RecordId, RunId, TenantId, ToolCallId,
};
use placet_types::mode::ApprovalMode;
use placet_types::principal::{Principal, PrincipalChain, PrincipalKind};
use placet_types::run_context::RunBudget;
use placet_types::taint::Taint;

pub(crate) const NOW_MS: i64 = 1_800_000_000_000;

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::new(name).unwrap()
}

pub(crate) fn chain(tenant_id: &TenantId) -> PrincipalChain {
    let actor = Principal {
        kind: PrincipalKind::Agent,
        id: PrincipalId::new("scribe").unwrap(),
        tenant_id: tenant_id.clone(),
        display: None,
    };
    PrincipalChain { actor, on_behalf_of: None, via: Vec::new() }
}

/// The claim of a key by a call that is named after it.
pub(crate) fn claim_of(tenant_name: &str, key: &str, epoch: u64) -> EffectRecord {
    let scope = placet_types::principal::KeyScope {
        tenant: tenant(tenant_name),
        kind: placet_types::principal::PrincipalKind::Agent,
        agent: PrincipalId::new("scribe").unwrap(),
        on_behalf_of: None,
        capability: "notes/erase".parse().unwrap(),
    };
    let key = IdempotencyKey::new(key).unwrap();
    EffectRecord {
        version: RECORD_VERSION,
        record_id: RecordId::derive(&scope, &key),
        call_id: ToolCallId::new(format!("call-{tenant_name}-{}", key.as_str())).unwrap(),
        scope,
        key,
        run_id: RunId::new("run_1").unwrap(),
        requested_digest: Digest::of(b"requested"),
        parked: Digest::of(b"parked"),
        created_at: Timestamp::from_ms(NOW_MS),
        updated_at: Timestamp::from_ms(NOW_MS),
        rev: 0,
        arm: 1,
        attempts: 0,
        unknown: None,
        state: EffectState::Claimed { epoch },
    }
}

pub(crate) fn claim(store: &dyn Store, key: &str) -> EffectRecord {
    claim_of("acme", key, store.epoch())
}

pub(crate) fn attempt(record: &EffectRecord, epoch: u64, class: Dedup) -> Attempt {
    Attempt {
        number: record.attempts + 1,
        token: dispatch_token(&record.record_id, record.arm),
        class,
        deadline_at: Timestamp::from_ms(NOW_MS + 30_000),
        first_dispatched_at: Timestamp::from_ms(NOW_MS),
        after_unknown: false,
        epoch,
        adopted_by: None,
        decision_id: DecisionId::new("dec_1").unwrap(),
        bundle_digest: Digest::of(b"bundle"),
        request_digest: Digest::of(b"request"),
        contract_digest: Digest::of(b"contract"),
        approval_id: None,
        grant: None,
        reserve: None,
    }
}

/// The record moved on, whether the machine knows the move or not.
pub(crate) fn moved(record: &EffectRecord, state: EffectState) -> EffectRecord {
    let attempts = match &state {
        EffectState::Dispatched(attempt) => attempt.number,
        _ => record.attempts,
    };
    EffectRecord { state, attempts, rev: record.rev + 1, ..record.clone() }
}

pub(crate) fn dispatched(store: &dyn Store, record: &EffectRecord) -> EffectRecord {
    moved(record, EffectState::Dispatched(attempt(record, store.epoch(), Dedup::Opaque)))
}

pub(crate) fn succeeded(record: &EffectRecord) -> EffectRecord {
    moved(record, EffectState::Succeeded { result: Digest::of(b"result"), resolved_by: None })
}

pub(crate) fn pending(record: &EffectRecord, approval: &ApprovalRecord) -> EffectRecord {
    let (approval_id, expires_at) = (approval.approval_id.clone(), approval.expires_at);
    moved(record, EffectState::PendingApproval { approval_id, expires_at })
}

pub(crate) fn approved(record: &EffectRecord, approval: &ApprovalRecord) -> EffectRecord {
    let (approval_id, expires_at) = (approval.approval_id.clone(), approval.expires_at);
    moved(record, EffectState::Approved { approval_id, expires_at })
}

pub(crate) fn approval(record: &EffectRecord, id: &str, created_ms: i64) -> ApprovalRecord {
    ApprovalRecord {
        version: APPROVAL_VERSION,
        approval_id: ApprovalId::new(id).unwrap(),
        record_id: record.record_id,
        call_id: record.call_id.clone(),
        chain: chain(&record.scope.tenant),
        capability: record.scope.capability.clone(),
        mode: ApprovalMode::Destructive,
        request_digest: Digest::of(b"request"),
        proposal: Digest::of(b"proposal"),
        bundle_digest: Digest::of(b"bundle"),
        requirement: Requirement::new(BTreeMap::new(), 1, 1_000),
        created_at: Timestamp::from_ms(created_ms),
        expires_at: Timestamp::from_ms(created_ms + 1_000),
        rev: 1,
        votes: Vec::new(),
        escalated: 0,
        external_tenants: BTreeSet::new(),
        taint: BTreeSet::new(),
        lapsed: BTreeSet::new(),
        reopened: 0,
        reopened_at: None,
        edits: Vec::new(),
        callback: None,
        state: ApprovalState::Pending,
    }
}

/// The approval moved on, whether the machine knows the move or not.
pub(crate) fn approval_moved(approval: &ApprovalRecord, state: ApprovalState) -> ApprovalRecord {
    ApprovalRecord { state, rev: approval.rev + 1, ..approval.clone() }
}

pub(crate) fn vote(reason: String) -> Vote {
    Vote {
        approver: PrincipalId::new("ada").unwrap(),
        tenant: None,
        part_digest: None,
        client: None,
        token_ref: None,
        stands_for: None,
        authenticated_at: None,
        groups: BTreeSet::new(),
        groups_as_of: Timestamp::from_ms(NOW_MS),
        claimed: BTreeSet::new(),
        choice: VoteChoice::Approve,
        reason,
        at: Timestamp::from_ms(NOW_MS),
        shown_digest: Digest::of(b"proposal"),
    }
}

pub(crate) fn run(id: &str, calls_max: u32) -> RunRecord {
    RunRecord {
        key: RunKey {
            tenant: tenant("acme"),
            agent: PrincipalId::new("scribe").unwrap(),
            on_behalf_of: None,
            run_id: RunId::new(id).unwrap(),
        },
        safety_mode: ApprovalMode::Destructive,
        budget: RunBudget { calls_max, cost_cents_max: 100, tool_latency_ms_max: 1_000 },
        opened_at: Timestamp::from_ms(NOW_MS),
        calls_used: 0,
        cents_used: 0,
        taint: BTreeSet::new(),
    }
}

pub(crate) fn reservation(run: &RunRecord, cents: u64) -> Reservation {
    Reservation::of(run.key.clone(), cents)
}

pub(crate) fn brought(run: &RunRecord, taint: &[Taint]) -> RunTaint {
    RunTaint { run: run.key.clone(), session: None, taint: taint.iter().copied().collect() }
}

pub(crate) fn event(note: &str) -> AuditEvent {
    AuditEvent { note: Some(note.to_owned()), ..AuditEvent::new(AuditKind::Security) }
}

/// Commits 30 entries, of which every third is about call `call_1` and the last one about approval `apr_1` too; answers their numbers.
pub(crate) async fn events_of_a_call(store: &dyn Store) -> Vec<u64> {
    let mut about = Vec::new();
    for number in 0..30_u32 {
        let named = if number % 3 == 0 { "call_1" } else { "call_10" };
        let call_id = Some(ToolCallId::new(named).unwrap());
        let mut changes = synced();
        changes.audit.push(AuditEvent { call_id, ..event("of a call") });
        changes.audit.push(event("of none"));
        if number == 27 {
            let approval_id = Some(ApprovalId::new("apr_1").unwrap());
            changes.audit.push(AuditEvent { approval_id, ..event("of an approval") });
        }
        let committed = store.commit(changes).await.unwrap();
        about.extend((number % 3 == 0).then_some(committed.seq));
    }
    about
}

/// Whether the entries about that call and that approval are the ones that were committed.
pub(crate) async fn are_found(log: &dyn AuditLog, about: &[u64]) -> bool {
    let seqs = async |subject: Subject| -> Vec<u64> {
        let found = log.entries_about(&subject).await.unwrap();
        found.into_iter().map(|(_, seq)| seq).collect()
    };
    let of_call = seqs(Subject::Call(ToolCallId::new("call_1").unwrap())).await;
    let of_approval = seqs(Subject::Approval(ApprovalId::new("apr_1").unwrap())).await;
    of_call == about && of_approval == about[9..]
}

pub(crate) fn synced() -> Changes {
    Changes::new(Durability::Synced, Admission::Completion)
}

/// What the records and approvals of these tests name, kept for a tenant. Without it a check finds all of them lost.
pub(crate) fn named_contents(tenant: &TenantId) -> Vec<(TenantId, Vec<u8>)> {
    ["parked", "result", "proposal"].map(|name| (tenant.clone(), name.into())).to_vec()
}

pub(crate) fn puts(records: &[&EffectRecord]) -> Changes {
    let mut changes = synced();
    for record in records {
        changes.effects.push(EffectChange::Put(Box::new((*record).clone())));
    }
    changes
}

pub(crate) async fn put(store: &dyn Store, record: &EffectRecord) -> Result<Committed, StoreError> {
    store.commit(puts(&[record])).await
}

/// Claims a key, dispatches it and, as asked, lets it succeed; answers the record.
pub(crate) async fn make(store: &dyn Store, key: &str, finish: bool) -> EffectRecord {
    make_for(store, "acme", key, finish).await
}

pub(crate) async fn make_for(
    store: &dyn Store,
    tenant: &str,
    key: &str,
    finish: bool,
) -> EffectRecord {
    let claimed = claim_of(tenant, key, store.epoch());
    assert_eq!(store.claim(claimed.clone()).await.unwrap(), ClaimAnswer::Claimed);
    let sent = dispatched(store, &claimed);
    put(store, &sent).await.unwrap();
    if !finish {
        return sent;
    }
    let done = succeeded(&sent);
    put(store, &done).await.unwrap();
    done
}

/// Holds a call: its record and its approval.
pub(crate) async fn hold(
    store: &dyn Store,
    claimed: &EffectRecord,
    asked: &ApprovalRecord,
) -> EffectRecord {
    assert_eq!(store.claim(claimed.clone()).await.unwrap(), ClaimAnswer::Claimed);
    let waiting = pending(claimed, asked);
    let mut changes = puts(&[&waiting]);
    changes.approvals.push(asked.clone());
    store.commit(changes).await.unwrap();
    waiting
}
