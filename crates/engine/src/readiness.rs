//! What keeps this node from executing calls for the moment.
//!
//! Owns the reasons, for readiness and for refusals. Invariant: while there is one, nothing is dispatched here.

use parking_lot::{Mutex, MutexGuard};
use placet_types::error::{ErrorCode, Refusal};

/// The reasons.
#[derive(Debug, Default)]
pub(crate) struct NodeHealth {
    reasons: Mutex<Reasons>,
}

#[derive(Debug, Default)]
struct Reasons {
    ledger: Option<String>,
    policies: Option<u64>,
}

impl NodeHealth {
    /// The ledger cannot be reached.
    pub(crate) fn ledger_lost(&self, why: &str) {
        let mut reasons = self.lock();
        if reasons.ledger.is_none() {
            tracing::error!(why, "the ledger cannot be reached: nothing is executed until it can");
        }
        reasons.ledger = Some(why.to_owned());
    }

    /// The ledger was reached.
    pub(crate) fn ledger_found(&self) {
        if self.lock().ledger.take().is_some() {
            tracing::warn!("the ledger can be reached again");
        }
    }

    /// Whether the ledger could not be reached when it was last tried.
    pub(crate) fn is_ledger_lost(&self) -> bool {
        self.lock().ledger.is_some()
    }

    /// Policies are active that this node does not have, in this epoch; or no longer.
    pub(crate) fn foreign_policies(&self, epoch: Option<u64>) {
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
    pub(crate) fn foreign_epoch(&self) -> Option<u64> {
        self.lock().policies
    }

    /// Why nothing can be decided here, if that is so.
    pub(crate) fn cannot_decide(&self) -> Option<Refusal> {
        self.lock().policies.map(|epoch| {
            Refusal::new(
                ErrorCode::Overloaded,
                "this node does not have the active policies, so it decides nothing; nothing was executed",
            )
            .with_detail(format_args!("policies of epoch {epoch} were activated by another node"))
            .with_retry_after_ms(1_000)
        })
    }

    /// For people to read.
    pub(crate) fn notes(&self) -> Vec<String> {
        let reasons = self.lock();
        let ledger =
            reasons.ledger.as_ref().map(|why| format!("the ledger cannot be reached: {why}"));
        let policies = reasons.policies.map(|epoch| {
            format!("another node has activated policies, contracts, a directory or issuers (epoch {epoch}) that this node does not have: put the same files on it and reload")
        });
        ledger.into_iter().chain(policies).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Reasons> {
        self.reasons.lock()
    }
}
