//! The node that the services run on: whether it is stopping, and what keeps it from executing calls.
//!
//! Owns the reasons, for readiness and for refusals, and the end of the process. Invariant: while there is a reason, nothing is dispatched here.

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use placet_ledger::{ledger::LedgerError, store::StoreError};
use placet_types::error::{ErrorCode, Refusal};

/// The lifecycle of a node, shared by all services on it.
#[derive(Debug, Default)]
pub struct Node {
    ending: CancellationToken,
    stopping: CancellationToken,
    health: NodeHealth,
    fatal: watch::Sender<Option<String>>,
}

impl Node {
    /// What keeps it from executing calls.
    pub const fn health(&self) -> &NodeHealth {
        &self.health
    }

    /// From here on no call is sent: the process was asked to stop.
    pub fn end(&self) {
        self.ending.cancel();
    }

    /// Whether no more calls are sent. Those in flight run to their end.
    pub fn is_ending(&self) -> bool {
        self.ending.is_cancelled()
    }

    /// Resolves when no more calls are sent.
    pub async fn ended(&self) {
        self.ending.cancelled().await;
    }

    /// From here on background work ends.
    pub fn stop(&self) {
        self.stopping.cancel();
    }

    /// Whether background work has to end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Resolves when background work has to end.
    pub async fn stopped(&self) {
        self.stopping.cancelled().await;
    }

    /// Ends the process: the next start takes up what is recorded.
    pub fn die(&self, reason: impl Into<String>) {
        let reason = reason.into();
        tracing::error!(%reason, "the engine cannot go on");
        self.fatal.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason);
            }
            first
        });
    }

    /// Why the process must end, if it must.
    pub fn cause_of_death(&self) -> Option<String> {
        self.fatal.borrow().clone()
    }

    /// Resolves with the reason when the process must end.
    pub async fn died(&self) -> String {
        let mut fatal = self.fatal.subscribe();
        match fatal.wait_for(Option::is_some).await {
            Ok(reason) => reason.clone().unwrap_or_default(),
            Err(_closed) => "the engine is gone".to_owned(),
        }
    }

    /// Notes a ledger error that concerns the whole node.
    pub fn noticed(&self, error: &LedgerError) {
        let LedgerError::Store(error) = error else { return };
        if *error == StoreError::Fenced {
            self.die(error.to_string());
        }
        if let StoreError::Unreachable(why) = error {
            self.health.ledger_lost(why);
        }
    }
}

/// The reasons.
#[derive(Debug, Default)]
pub struct NodeHealth(Mutex<Reasons>);

#[derive(Debug, Default)]
struct Reasons {
    ledger: Option<String>,
    policies: Option<u64>,
}

impl NodeHealth {
    /// The ledger cannot be reached.
    pub fn ledger_lost(&self, why: &str) {
        let mut reasons = self.lock();
        if reasons.ledger.is_none() {
            tracing::error!(why, "the ledger cannot be reached: nothing is executed until it can");
        }
        reasons.ledger = Some(why.to_owned());
    }

    /// The ledger was reached.
    pub fn ledger_found(&self) {
        if self.lock().ledger.take().is_some() {
            tracing::warn!("the ledger can be reached again");
        }
    }

    /// Whether the ledger could not be reached when it was last tried.
    pub fn is_ledger_lost(&self) -> bool {
        self.lock().ledger.is_some()
    }

    /// Notes that policies of this epoch are active which this node does not have; `None`: no longer.
    pub fn foreign_policies(&self, epoch: Option<u64>) {
        let mut reasons = self.lock();
        match (reasons.policies, epoch) {
            (None, Some(epoch)) => {
                tracing::error!(
                    epoch,
                    "another node has activated policies that this one does not have"
                );
            }
            (Some(_), None) => tracing::warn!("the active policies are this node's own again"),
            (Some(_), Some(_)) | (None, None) => {}
        }
        reasons.policies = epoch;
    }

    /// The epoch of policies that another node activated and this one does not have.
    pub fn foreign_epoch(&self) -> Option<u64> {
        self.lock().policies
    }

    /// The refusal while this node cannot decide calls.
    pub fn cannot_decide(&self) -> Option<Refusal> {
        self.lock().policies.map(|epoch| {
            Refusal::new(
                ErrorCode::Overloaded,
                "this node does not have the active policies, so it decides nothing; nothing was executed",
            )
            .with_detail(format_args!("policies of epoch {epoch} were activated by another node"))
            .with_retry_after_ms(1_000)
        })
    }

    /// The reasons, in readable form.
    pub fn notes(&self) -> Vec<String> {
        let reasons = self.lock();
        let ledger =
            reasons.ledger.as_ref().map(|why| format!("the ledger cannot be reached: {why}"));
        let policies = reasons.policies.map(|epoch| {
            format!("another node has activated policies, contracts, a directory or issuers (epoch {epoch}) that this node does not have: put the same files on it and reload")
        });
        ledger.into_iter().chain(policies).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Reasons> {
        self.0.lock()
    }
}
