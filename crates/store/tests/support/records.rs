//! The records of the programs that hurt a data folder: the claim of a key, an attempt, and a clock that stands still.
//!
//! Owns what stands in them where it does not matter to the test. What happens to them is the tests'.

use placet_ledger::record::{Attempt, EffectRecord, EffectState, RECORD_VERSION, dispatch_token};
use placet_types::{
    clock::Timestamp,
    contract::Dedup,
    digest::Digest,
    ids::{DecisionId, IdempotencyKey, PrincipalId, RecordId, RunId, TenantId, ToolCallId},
    principal::PrincipalKind,
};

/// When everything happens.
pub(crate) const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

/// The claim of a key by a call that is named after it.
pub(crate) fn claim(key: &str, parked: &[u8], epoch: u64) -> EffectRecord {
    let scope = placet_types::principal::KeyScope {
        tenant: TenantId::new("acme").unwrap(),
        kind: PrincipalKind::Agent,
        agent: PrincipalId::new("scribe").unwrap(),
        on_behalf_of: None,
        capability: "notes/erase".parse().unwrap(),
    };
    let key = IdempotencyKey::new(key).unwrap();
    EffectRecord {
        version: RECORD_VERSION,
        record_id: RecordId::derive(&scope, &key),
        call_id: ToolCallId::new(format!("call-{}", key.as_str())).unwrap(),
        scope,
        parked: Digest::of(parked),
        key,
        run_id: RunId::new("run_1").unwrap(),
        requested_digest: Digest::of(b"requested"),
        created_at: NOW,
        updated_at: NOW,
        rev: 0,
        arm: 1,
        attempts: 0,
        unknown: None,
        state: EffectState::Claimed { epoch },
    }
}

/// The first time that it is sent.
pub(crate) fn attempt(record: &EffectRecord, epoch: u64) -> Attempt {
    Attempt {
        number: 1,
        token: dispatch_token(&record.record_id, record.arm),
        class: Dedup::Opaque,
        deadline_at: NOW,
        first_dispatched_at: NOW,
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
