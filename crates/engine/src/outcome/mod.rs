//! What became of calls: a record's state as its caller is told it, and how an outcome gets into the ledger.
//!
//! From reading (`recorded`) to writing: settlements, their retries, and evidence that arrives late.

pub(crate) mod recorded;
pub(crate) mod resolve;
pub(crate) mod settle;
pub(crate) mod settlement_retry;

use std::{sync::Arc, time::Duration};

use placet_approvals::{node::Node, service::Approvals};
use placet_ledger::{
    audit::AuditEvent,
    ledger::{Ledger, LedgerError},
    record::{Attempt, EffectRecord},
    refusal::lookup_refusal,
    store::Durability,
};
use placet_telemetry::metrics::Metrics;
use placet_types::{contract::Dedup, error::Refusal};
use tokio::sync::{Semaphore, watch};

use crate::{
    active::Current,
    aliases::Aliases,
    answer::Answer,
    lifecycle::transitions::{Sent, State},
    registry::{Owner, Registry},
    responder::Callers,
    tokens::Tokens,
};

/// The handles needed to report the state of calls and to record their outcomes.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) ledger: Ledger,
    pub(crate) node: Arc<Node>,
    pub(crate) metrics: Metrics,
    pub(crate) current: Current,
    pub(crate) aliases: Aliases,
    pub(crate) registry: Arc<Registry>,
    pub(crate) callers: Arc<Callers>,
    pub(crate) tokens: Tokens,
    pub(crate) approvals: Arc<Approvals>,
    /// Permits for tasks that wait for late answers.
    pub(crate) late: Arc<Semaphore>,
}

impl Outcomes {
    /// The state of a record, from which the next step follows.
    pub(crate) fn state_of(&self, record: &EffectRecord) -> State {
        State::of(&record.state, |attempt| Sent {
            class: attempt.class,
            in_window: self.ledger.may_repeat_for_ms(attempt) > 0,
            can_ask: self.settle_delay_ms(record, attempt).is_some(),
            is_ours: attempt.duty() == self.ledger.store().epoch(),
        })
    }

    /// How long after its deadline "not found" means that an attempt did not happen; `None` where the adapter cannot be asked.
    pub(crate) fn settle_delay_ms(&self, record: &EffectRecord, attempt: &Attempt) -> Option<u64> {
        match attempt.class {
            Dedup::Queryable { settle_delay_ms } => Some(settle_delay_ms),
            Dedup::Keyed { .. } => {
                let (tenant, capability) = (&record.scope.tenant, &record.scope.capability);
                let target = self.current.active().catalog.resolve(tenant, capability)?;
                target.capability.settle_delay_ms()
            }
            Dedup::ReadOnly | Dedup::Opaque => None,
        }
    }

    /// Waits; returns whether to continue, which a stopping engine does not: the next start does.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.node.stopped() => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    /// Registers the call of this record as in flight, so that callers can wait for it.
    pub(crate) fn enter(&self, record: &EffectRecord) {
        let owner = Owner::of_scope(&record.scope);
        drop(self.registry.enter(&record.call_id, owner, recorded::in_progress(record)));
    }

    /// The same for a call that may move on another node, or whose progress no task here reports.
    pub(crate) fn watch(&self, record: &EffectRecord) -> watch::Receiver<Answer> {
        let (owner, told) = (Owner::of_scope(&record.scope), recorded::in_progress(record));
        self.registry.watch(&record.call_id, owner, record.record_id, told)
    }

    /// The refusal of a call because the ledger cannot be read; notes an error that concerns the whole node.
    pub(crate) fn lookup_failed(&self, error: impl Into<LedgerError>) -> Refusal {
        let error = error.into();
        self.node.noticed(&error);
        lookup_refusal(&error)
    }

    /// Records an event that nothing depends on; a failure is only logged.
    pub(crate) async fn note(&self, event: AuditEvent) {
        if let Err(error) = Box::pin(self.ledger.note(event, Durability::Written)).await {
            self.node.noticed(&error);
            tracing::error!(%error, "an audit event could not be kept");
        }
    }
}
