//! The active policies, here and in the ledger (decision 26).
//!
//! Owns activation and how this node follows what others activate. Invariant: a snapshot decides in the epoch that the ledger gave to
//! its activation, or not at all.

use std::sync::Arc;

use placet_broker::Purge;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    policies::Activation,
};
use placet_policy::snapshot::Snapshot;
use placet_types::{
    digest::{Digest, DigestBuilder},
    json::canonical_digest,
};

use crate::context::Context;

impl Context {
    /// Makes `snapshot` the policies that decide from now on, here and on every node; permits of earlier ones are no longer taken.
    /// Where nodes share the ledger, a start brings back none that were replaced unless an operator says so.
    pub(crate) async fn activate(
        &self,
        snapshot: Snapshot,
        by: Activation,
    ) -> Result<(), LedgerError> {
        let _one_at_a_time = self.promotions.lock().await;
        let mut event = AuditEvent::new(AuditKind::BundleActivated);
        event.digests.insert("bundle".to_owned(), snapshot.digest());
        let digest = self.activation_digest(snapshot.digest());
        event.digests.insert("activated".to_owned(), digest);
        let epoch = self.ledger.activate(digest, by, event).await?;
        tracing::info!(epoch, %digest, "these policies, contracts and directory decide");
        self.adopt_policies(snapshot.at_epoch(epoch));
        Ok(())
    }

    /// Looks which policies are active in the ledger, and joins their epoch when they are this node's; says whether they are.
    pub(crate) async fn follow_policies(&self) -> Result<bool, LedgerError> {
        let _one_at_a_time = self.promotions.lock().await;
        let active = self.ledger.store().policy().await?;
        let own = self.policy.load_full();
        let Some(active) = active else { return Ok(false) };
        if active.epoch == own.epoch() {
            self.standing.foreign_policies(None);
            return Ok(true);
        }
        if active.digest == self.activation_digest(own.digest()) {
            self.adopt_policies(Snapshot::clone(&own).at_epoch(active.epoch));
            return Ok(true);
        }
        self.standing.foreign_policies(Some(active.epoch));
        Ok(false)
    }

    fn adopt_policies(&self, snapshot: Snapshot) {
        self.policy.store(Arc::new(snapshot));
        self.surfaces.clear();
        // What was minted under other policies is not used under these.
        self.broker.purge(&Purge::All);
        self.standing.foreign_policies(None);
    }

    /// What is activated with a bundle: policies, contracts and directory together.
    fn activation_digest(&self, bundle: Digest) -> Digest {
        let directory = serde_json::to_value(self.directory.as_ref()).unwrap_or_default();
        let mut contracts: Vec<_> =
            self.catalog.contracts().map(|contract| contract.digest).collect();
        contracts.sort_unstable();
        let builder = DigestBuilder::new("placet.activation.v1")
            .field("bundle", bundle.as_bytes())
            .field("directory", canonical_digest(&directory).as_bytes());
        let with = |builder: DigestBuilder, contract: Digest| {
            builder.field("contract", contract.as_bytes())
        };
        contracts.into_iter().fold(builder, with).finish()
    }
}
