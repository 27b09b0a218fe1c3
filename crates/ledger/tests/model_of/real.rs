//! The model's record as a real one, and the real machine's verdict on its moves.

use std::collections::HashMap;

use placet_ledger::record::{
    Attempt, EffectRecord, EffectState, RECORD_VERSION, Rearm, Resolution, Unknown, dispatch_token,
};
use placet_types::{
    clock::Timestamp,
    contract::Dedup,
    digest::Digest,
    error::ErrorCode,
    ids::{
        ApprovalId, DecisionId, IdempotencyKey, PrincipalId, RecordId, RunId, TenantId, ToolCallId,
    },
    principal::PrincipalKind,
};

use super::{At, Att, By, Class, Rec};

const NOW: Timestamp = Timestamp::from_ms(1_800_000_000_000);

/// The real machine's verdict on each move so far.
#[derive(Default)]
pub(crate) struct Machine {
    said: HashMap<(Option<Rec>, Rec, Class), bool>,
}

impl Machine {
    /// How many different moves it has judged.
    pub(crate) fn moves(&self) -> usize {
        self.said.len()
    }

    /// Whether the real machine permits this very move.
    pub(crate) fn allows(&mut self, before: Option<Rec>, after: Rec, class: Class) -> bool {
        *self.said.entry((before, after, class)).or_insert_with(|| {
            let (from, to) = (real(before, class), real(Some(after), class));
            from.moved(to.state.clone(), NOW).is_ok_and(|moved| moved == to)
                && from.may_move_to(&to)
        })
    }
}

fn real(rec: Option<Rec>, class: Class) -> EffectRecord {
    let scope = placet_types::principal::KeyScope {
        tenant: TenantId::new("acme").unwrap(),
        kind: PrincipalKind::Agent,
        agent: PrincipalId::new("scribe").unwrap(),
        on_behalf_of: None,
        capability: "notes/erase".parse().unwrap(),
    };
    let key = IdempotencyKey::new("key").unwrap();
    let record_id = RecordId::derive(&scope, &key);
    let state = rec.map_or(EffectState::Claimed { epoch: 1 }, |rec| state(&rec, &record_id, class));
    let unknown = rec.and_then(|rec| rec.earlier).map(|earlier| {
        let attempt = attempt(&earlier, &record_id, class);
        Box::new(Unknown { attempt, reason: "lost".to_owned(), result: Digest::of(b"unknown") })
    });
    EffectRecord {
        version: RECORD_VERSION,
        record_id,
        scope,
        key,
        call_id: ToolCallId::new("call").unwrap(),
        run_id: RunId::new("run").unwrap(),
        requested_digest: Digest::of(b"requested"),
        parked: Digest::of(b"parked"),
        created_at: NOW,
        updated_at: NOW,
        rev: rec.map_or(0, |rec| u64::from(rec.rev)),
        arm: rec.map_or(1, |rec| u32::from(rec.arm)),
        attempts: rec.map_or(0, |rec| u32::from(rec.attempts)),
        unknown,
        state,
    }
}

fn state(rec: &Rec, record_id: &RecordId, class: Class) -> EffectState {
    let approval_id = || ApprovalId::new("apr").unwrap();
    let result = Digest::of(format!("result of attempt {}", rec.result).as_bytes());
    let resolved_by = rec.by.map(|by| match by {
        By::Probe(attempt) => Resolution::Probe { attempt: u32::from(attempt) },
        By::Operator => Resolution::Operator { operator: person("ann") },
    });
    let attempt = |att: Option<Att>| attempt(&att.unwrap(), record_id, class);
    match rec.at {
        At::Pending => EffectState::PendingApproval { approval_id: approval_id(), expires_at: NOW },
        At::Approved => EffectState::Approved { approval_id: approval_id(), expires_at: NOW },
        At::Dispatched => EffectState::Dispatched(attempt(rec.att)),
        At::Succeeded => EffectState::Succeeded { result, resolved_by },
        At::FailedFinal => {
            EffectState::FailedFinal { code: ErrorCode::AdapterFailed, result, resolved_by }
        }
        At::FailedRetriable => EffectState::FailedRetriable {
            code: ErrorCode::AdapterUnavailable,
            result,
            approval_id: None,
        },
        At::Unknown => EffectState::Indeterminate {
            attempt: attempt(rec.att),
            reason: "lost".to_owned(),
            result: Digest::of(b"unknown"),
            rearm: rec.asked.then(|| Box::new(word("ann"))),
        },
        At::Rearmed => EffectState::Rearmed { by: vec![word("ann"), word("bob")] },
        At::Denied => {
            EffectState::Denied { code: ErrorCode::ApprovalDenied, approval_id: approval_id() }
        }
    }
}

fn attempt(att: &Att, record_id: &RecordId, class: Class) -> Attempt {
    Attempt {
        number: u32::from(att.number),
        token: dispatch_token(record_id, u32::from(att.arm)),
        class: match class {
            Class::ReadOnly => Dedup::ReadOnly,
            Class::Keyed => Dedup::Keyed { window_ms: 1_000 },
            Class::Queryable => Dedup::Queryable { settle_delay_ms: 1_000 },
            Class::Opaque => Dedup::Opaque,
        },
        deadline_at: NOW,
        first_dispatched_at: NOW,
        after_unknown: att.after_unknown,
        epoch: u64::from(att.epoch),
        adopted_by: (att.duty != att.epoch).then_some(u64::from(att.duty)),
        decision_id: DecisionId::new("dec").unwrap(),
        bundle_digest: Digest::of(b"bundle"),
        request_digest: Digest::of(b"request"),
        contract_digest: Digest::of(b"contract"),
        approval_id: None,
        grant: None,
        reserve: None,
    }
}

fn person(name: &str) -> PrincipalId {
    PrincipalId::new(name).unwrap()
}

fn word(name: &str) -> Rearm {
    Rearm { operator: person(name), evidence: "the other side has nothing".to_owned(), at: NOW }
}
