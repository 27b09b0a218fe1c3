//! What became of calls: how a record stands as its caller is told, and how an outcome gets into the ledger.
//!
//! From what is read (`recorded`) to what is written: settlements, those that are tried again, and evidence that comes late.

pub(crate) mod recorded;
pub(crate) mod resolve;
pub(crate) mod settle;
pub(crate) mod settlement_retry;

use std::{sync::Arc, time::Duration};

use placet_approvals::{node::Node, service::Approvals};
use placet_ledger::{
    audit::AuditEvent,
    ledger::Ledger,
    record::{Attempt, Class, EffectRecord},
    store::Durability,
};
use tokio::sync::{Semaphore, watch};

use crate::{
    active::Current,
    aliases::Aliases,
    answer::Answer,
    lifecycle::transitions::{Sent, State},
    metrics::EngineMetrics,
    registry::{Owner, Registry},
    responder::Callers,
    tokens::Tokens,
};

/// What it takes to tell how calls stand, and to keep what became of them.
#[derive(Debug)]
pub(crate) struct Outcomes {
    pub(crate) ledger: Ledger,
    pub(crate) node: Arc<Node>,
    pub(crate) metrics: EngineMetrics,
    pub(crate) current: Current,
    pub(crate) aliases: Aliases,
    pub(crate) registry: Arc<Registry>,
    pub(crate) callers: Arc<Callers>,
    pub(crate) tokens: Tokens,
    pub(crate) approvals: Arc<Approvals>,
    /// Places for those who wait for answers that are late.
    pub(crate) late: Arc<Semaphore>,
}

impl Outcomes {
    /// How a record stands, as what happens next depends on it.
    pub(crate) fn state_of(&self, record: &EffectRecord) -> State {
        State::of(&record.state, |attempt| Sent {
            class: attempt.class,
            in_window: self.ledger.may_repeat_for_ms(attempt) > 0,
            can_ask: self.settle_delay_ms(record, attempt).is_some(),
            is_ours: attempt.duty() == self.ledger.store().epoch(),
        })
    }

    /// How long after its deadline "not found" means that an attempt did not happen; absent where nobody can be asked.
    pub(crate) fn settle_delay_ms(&self, record: &EffectRecord, attempt: &Attempt) -> Option<u64> {
        match attempt.class {
            Class::Queryable { settle_delay_ms } => Some(settle_delay_ms),
            Class::Keyed { .. } => {
                let (tenant, capability) = (&record.scope.tenant, &record.scope.capability);
                let target = self.current.active().catalog.resolve(tenant, capability)?;
                target.capability.settle_delay_ms()
            }
            Class::ReadOnly | Class::Opaque => None,
        }
    }

    /// Waits; says whether to go on, which a stopping engine does not: the next start goes on.
    pub(crate) async fn pause(&self, time: Duration) -> bool {
        tokio::select! {
            () = self.node.stopped() => false,
            () = tokio::time::sleep(time) => true,
        }
    }

    /// Makes the call of this record known as one that is being executed, so that somebody can wait for it.
    pub(crate) fn enter(&self, record: &EffectRecord) {
        let owner = Owner::of_scope(&record.scope);
        drop(self.registry.enter(&record.call_id, owner, recorded::in_progress(record)));
    }

    /// The same for one that may move on another node, or whose waiters nobody here tells.
    pub(crate) fn watch(&self, record: &EffectRecord) -> watch::Receiver<Answer> {
        let (owner, told) = (Owner::of_scope(&record.scope), recorded::in_progress(record));
        self.registry.watch(&record.call_id, owner, record.record_id, told)
    }

    /// Keeps an event and says in the log when that fails; for events that nothing depends on.
    pub(crate) async fn note(&self, event: AuditEvent) {
        if let Err(error) = self.ledger.note(event, Durability::Written).await {
            self.node.noticed(&error);
            tracing::error!(%error, "an audit event could not be kept");
        }
    }
}
