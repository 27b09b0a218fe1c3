//! The keys of the index, and the table in memory that says which of them there must be.
//!
//! Owns the key layout and [`Stamps`]. Not here: the values (`codec`), the tree (`index`).
//! Invariant: [`Stamps`] comes from the journal alone, so that what the index has forgotten, or has in an older form, shows.
//!
//! ```text
//! m                                          what the index says about itself
//! e record                                   the entry that holds the effect record
//! c call                                     the record that a call made
//! s state record                             the tenant; effect records by state
//! a approval                                 the entry that holds the approval
//! l state created approval                   the tenant; approvals by state, oldest first
//! t tenant 00 state created approval         nothing; the same within a tenant
//! r SHA-256(run key)                         a run
//! ```

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock};

use placet_ledger::approval::ApprovalState;
use placet_ledger::record::EffectState;
use placet_ledger::run::RunKey;
use placet_types::clock::Timestamp;
use placet_types::digest::DigestBuilder;
use placet_types::ids::{ApprovalId, RecordId, TenantId, ToolCallId};

pub(super) const META: &[u8] = b"m";
pub(super) const EFFECT: u8 = b'e';
pub(super) const CALL: u8 = b'c';
pub(super) const EFFECT_STATE: u8 = b's';
pub(super) const APPROVAL: u8 = b'a';
pub(super) const APPROVAL_STATE: u8 = b'l';
pub(super) const APPROVAL_TENANT: u8 = b't';
pub(super) const RUN: u8 = b'r';

/// The states of an effect by name, with their code in keys. Codes are for ever.
const EFFECT_STATES: [(&str, u8); 11] = [
    ("claimed", 0),
    ("pending_approval", 1),
    ("approved", 2),
    ("dispatched", 3),
    ("succeeded", 4),
    ("failed_final", 5),
    ("failed_retriable", 6),
    ("indeterminate", 7),
    ("denied", 8),
    ("rearmed", 9),
    ("tombstone", 10),
];

/// The states of an approval by name, with their code in keys. Codes are for ever.
const APPROVAL_STATES: [(&str, u8); 6] =
    [("pending", 0), ("approved", 1), ("denied", 2), ("expired", 3), ("void", 4), ("consumed", 5)];

/// States that recovery looks at ([`EffectState::is_open`]) and that become durable.
const OPEN_STATES: [&str; 5] =
    ["claimed", "pending_approval", "approved", "dispatched", "rearmed"];

fn code_of(table: &[(&str, u8)], name: &str) -> Option<u8> {
    table.iter().find(|(known, _)| *known == name).map(|(_, code)| *code)
}

/// The code of a state: the compiler asks for one where the machine gets another state.
pub(super) fn effect_code(state: &EffectState) -> u8 {
    match state {
        EffectState::Claimed { .. } => 0,
        EffectState::PendingApproval { .. } => 1,
        EffectState::Approved { .. } => 2,
        EffectState::Dispatched(_) => 3,
        EffectState::Succeeded { .. } => 4,
        EffectState::FailedFinal { .. } => 5,
        EffectState::FailedRetriable { .. } => 6,
        EffectState::Indeterminate { .. } => 7,
        EffectState::Denied { .. } => 8,
        EffectState::Rearmed { .. } => 9,
        EffectState::Tombstone { .. } => 10,
    }
}

/// The same for approvals.
pub(super) fn approval_code(state: &ApprovalState) -> u8 {
    match state {
        ApprovalState::Pending => 0,
        ApprovalState::Approved => 1,
        ApprovalState::Denied => 2,
        ApprovalState::Expired => 3,
        ApprovalState::Void { .. } => 4,
        ApprovalState::Consumed { .. } => 5,
    }
}

/// The code of an effect's state, if there is one of this name.
pub(super) fn effect_state_code(name: &str) -> Option<u8> {
    code_of(&EFFECT_STATES, name)
}

/// The code of an approval's state, if there is one of this name.
pub(super) fn approval_state_code(name: &str) -> Option<u8> {
    code_of(&APPROVAL_STATES, name)
}

/// The name of an open state, as the text that lives as long as the program.
pub(super) fn open_state(name: &str) -> Option<&'static str> {
    OPEN_STATES.iter().find(|open| **open == name).copied()
}

/// All codes of effect states.
pub(super) fn effect_state_codes() -> Vec<u8> {
    EFFECT_STATES.iter().map(|(_, code)| *code).collect()
}

/// All codes of approval states.
pub(super) fn approval_state_codes() -> Vec<u8> {
    APPROVAL_STATES.iter().map(|(_, code)| *code).collect()
}

fn key(prefix: u8, parts: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![prefix];
    for part in parts {
        key.extend_from_slice(part);
    }
    key
}

pub(super) fn effect(record_id: &RecordId) -> Vec<u8> {
    key(EFFECT, &[record_id.digest().as_bytes()])
}

pub(super) fn call(call_id: &ToolCallId) -> Vec<u8> {
    key(CALL, &[call_id.as_str().as_bytes()])
}

pub(super) fn effect_state(state: &EffectState, record_id: &RecordId) -> Vec<u8> {
    effect_state_at(effect_code(state), Some(record_id))
}

/// The place in the list of a state at a record, or before all of them.
pub(super) fn effect_state_at(code: u8, record_id: Option<&RecordId>) -> Vec<u8> {
    let digest = record_id.map(RecordId::digest);
    key(EFFECT_STATE, &[&[code], digest.as_ref().map_or(&[], |digest| digest.as_bytes())])
}

pub(super) fn approval(approval_id: &ApprovalId) -> Vec<u8> {
    key(APPROVAL, &[approval_id.as_str().as_bytes()])
}

/// Where an approval stands among the others, oldest first.
pub(super) type ApprovalPlace<'a> = (Timestamp, &'a ApprovalId);

/// A key in one of the two lists of approvals, in a state, at a place or before all of them.
pub(super) fn approval_list(
    tenant: Option<&TenantId>,
    code: u8,
    place: Option<ApprovalPlace<'_>>,
) -> Vec<u8> {
    let mut out = match tenant {
        // No tenant's name has a zero byte, so that one name is never the beginning of another's keys.
        Some(tenant) => key(APPROVAL_TENANT, &[tenant.as_str().as_bytes(), &[0]]),
        None => vec![APPROVAL_STATE],
    };
    out.push(code);
    if let Some((created_at, approval_id)) = place {
        // Ordered as numbers are: the sign is turned round.
        let ordered = created_at.as_ms() ^ i64::MIN;
        out.extend_from_slice(&ordered.to_be_bytes());
        out.extend_from_slice(approval_id.as_str().as_bytes());
    }
    out
}

pub(super) fn run(run: &RunKey) -> Vec<u8> {
    let digest = DigestBuilder::new("placet.run-key.v1")
        .field("tenant", run.tenant.as_str())
        .field("agent", run.agent.as_str())
        .optional("on_behalf_of", run.on_behalf_of.as_ref().map(|user| user.as_str().as_bytes()))
        .field("run", run.run_id.as_str())
        .finish();
    key(RUN, &[digest.as_bytes()])
}

const SHARDS: usize = 64;

/// In halves, so that an entry takes twelve bytes instead of sixteen.
type Print = [u32; 2];
type Shard = RwLock<HashMap<Print, u32>>;

/// Which primary keys the journal says there are, and which entry last wrote each: 64 bits of a keyed hash of the key, and
/// the low 32 bits of the sequence number. Two keys that meet in one hash (about 3 in 10^12 for a new key among ten
/// million) are taken for damage, which stops the store and rebuilds the index; a key is never taken for absent.
#[derive(Debug)]
pub(super) struct Stamps {
    hasher: RandomState,
    shards: Vec<Shard>,
    effects: AtomicU64,
    approvals: AtomicU64,
    runs: AtomicU64,
}

impl Default for Stamps {
    fn default() -> Self {
        Self {
            hasher: RandomState::new(),
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            effects: AtomicU64::new(0),
            approvals: AtomicU64::new(0),
            runs: AtomicU64::new(0),
        }
    }
}

impl Stamps {
    /// Which entry last wrote `key`; `None`: there is no such key.
    pub(super) fn get(&self, key: &[u8]) -> Option<u32> {
        let (shard, print) = self.slot(key)?;
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        shard.read().unwrap_or_else(PoisonError::into_inner).get(&print).copied()
    }

    /// Entry `seq` has written `key`.
    pub(super) fn set(&self, key: &[u8], seq: u64) {
        let Some((shard, print)) = self.slot(key) else { return };
        let earlier =
            shard.write().unwrap_or_else(PoisonError::into_inner).insert(print, stamp(seq));
        if earlier.is_none()
            && let Some(counter) = self.counter(key)
        {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// `key` is gone.
    pub(super) fn remove(&self, key: &[u8]) {
        let Some((shard, print)) = self.slot(key) else { return };
        let earlier = shard.write().unwrap_or_else(PoisonError::into_inner).remove(&print);
        if earlier.is_some()
            && let Some(counter) = self.counter(key)
        {
            counter.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// How many keys there are of the kind that begins with `prefix`.
    pub(super) fn count(&self, prefix: u8) -> u64 {
        self.counter(&[prefix]).map_or(0, |counter| counter.load(Ordering::Relaxed))
    }

    fn counter(&self, key: &[u8]) -> Option<&AtomicU64> {
        match key.first().copied() {
            Some(EFFECT) => Some(&self.effects),
            Some(APPROVAL) => Some(&self.approvals),
            Some(RUN) => Some(&self.runs),
            _ => None,
        }
    }

    fn slot(&self, key: &[u8]) -> Option<(&Shard, Print)> {
        let [a, b, c, d, e, f, g, h] = self.hasher.hash_one(key).to_le_bytes();
        let print = [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])];
        let shard = usize::from(a).checked_rem(SHARDS)?;
        Some((self.shards.get(shard)?, print))
    }
}

/// The low 32 bits of a sequence number.
pub(super) fn stamp(seq: u64) -> u32 {
    let [a, b, c, d, ..] = seq.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

/// Whether what entry `seq` wrote is at least as new as a stamp.
pub(super) fn is_current(seq: u64, wanted: u32) -> bool {
    stamp(seq).wrapping_sub(wanted) < (1 << 31)
}
