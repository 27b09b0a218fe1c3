//! `Dispatch`: the only thing an adapter acts on.
//!
//! Owns the type. Only [`crate::ledger::Ledger`] makes one, after its intent was recorded. It cannot be made, copied or used twice
//! elsewhere: its fields are private, it is not `Clone`, and an adapter consumes it.

use serde_json::{Map, Value};

use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{CapabilityId, IdempotencyKey, RecordId, TenantId, ToolCallId},
};

use crate::{audit::AuditEvent, record::EffectRecord, reservation::Reservation, store::Durability};

/// Permission to perform one call once.
#[derive(Debug)]
#[must_use = "a dispatch that is dropped leaves its record without an outcome"]
pub struct Dispatch {
    pub(crate) call_id: ToolCallId,
    pub(crate) tenant: TenantId,
    pub(crate) capability: CapabilityId,
    pub(crate) contract_digest: Digest,
    pub(crate) args: Map<String, Value>,
    pub(crate) token: String,
    pub(crate) attempt: u32,
    pub(crate) key: Option<IdempotencyKey>,
    pub(crate) deadline_at: Timestamp,
}

impl Dispatch {
    /// The call.
    pub fn call_id(&self) -> &ToolCallId {
        &self.call_id
    }

    /// The tenant: an adapter that keeps data of several tenants keeps them apart by this.
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The operation.
    pub fn capability(&self) -> &CapabilityId {
        &self.capability
    }

    /// The contract it was permitted under.
    pub fn contract_digest(&self) -> Digest {
        self.contract_digest
    }

    /// The arguments, exactly as permitted.
    pub fn args(&self) -> &Map<String, Value> {
        &self.args
    }

    /// By which the target may recognise the call; the same for automatic retries.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// Counts the attempts from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The caller's key, for a write.
    pub fn key(&self) -> Option<&IdempotencyKey> {
        self.key.as_ref()
    }

    /// When the outcome must be known.
    pub fn deadline_at(&self) -> Timestamp {
        self.deadline_at
    }
}

/// What a test of an adapter puts into a dispatch; exists only with the feature `test-support`.
#[cfg(feature = "test-support")]
#[derive(Debug)]
pub struct TestDispatch {
    /// The call.
    pub call_id: ToolCallId,
    /// The tenant.
    pub tenant: TenantId,
    /// The operation.
    pub capability: CapabilityId,
    /// The contract.
    pub contract_digest: Digest,
    /// The arguments.
    pub args: Map<String, Value>,
    /// By which the target may recognise the call.
    pub token: String,
    /// When the outcome must be known.
    pub deadline_at: Timestamp,
}

#[cfg(feature = "test-support")]
impl Dispatch {
    /// A dispatch without a ledger, for tests of adapters only.
    pub fn for_test(made: TestDispatch) -> Self {
        Self {
            call_id: made.call_id,
            tenant: made.tenant,
            capability: made.capability,
            contract_digest: made.contract_digest,
            args: made.args,
            token: made.token,
            attempt: 1,
            key: None,
            deadline_at: made.deadline_at,
        }
    }
}

/// The intent of a dispatch: the call exactly as permitted.
#[derive(Debug)]
pub struct Intent {
    /// The call.
    pub call_id: ToolCallId,
    /// The arguments; their digest must be the one in the permit's binding.
    pub args: Map<String, Value>,
    /// What the permit was given for.
    pub binding: placet_types::binding::RequestBinding,
    /// When the outcome must be known.
    pub deadline_at: Timestamp,
    /// What it takes from the run's budget.
    pub reserve: Reservation,
    /// Its event for the audit chain.
    pub audit: AuditEvent,
}

/// A dispatch with the duty to settle it.
#[derive(Debug)]
pub struct DispatchGuard {
    /// For the adapter.
    pub dispatch: Dispatch,
    /// For the task that awaits the adapter.
    pub settlement: Settlement,
}

/// The duty to record the outcome of a dispatch; consumed by [`crate::ledger::Ledger::settle`].
#[derive(Debug)]
#[must_use = "an unsettled dispatch is an unknown outcome after the next start"]
pub struct Settlement {
    pub(crate) subject: Subject,
}

/// What is settled: a record, or a read that has none.
#[derive(Debug)]
pub(crate) enum Subject {
    /// A record in `DISPATCHED`.
    Effect {
        /// The record.
        record: Box<EffectRecord>,
    },
    /// A read-only call.
    Read {
        /// Its event, to be completed.
        event: Box<AuditEvent>,
        /// What it took from its run's budget, and the taint that its result brings into the run's context.
        reserve: Box<Reservation>,
        /// How durable its end must be before its caller is answered.
        durability: Durability,
    },
}

impl Settlement {
    /// The record in `DISPATCHED`; absent for a read.
    pub fn record(&self) -> Option<&EffectRecord> {
        match &self.subject {
            Subject::Effect { record, .. } => Some(record),
            Subject::Read { .. } => None,
        }
    }

    /// The record's identity; absent for a read.
    pub fn record_id(&self) -> Option<RecordId> {
        self.record().map(|record| record.record_id)
    }
}
