//! What is active, here and in the ledger (decision 26).
//!
//! Owns activation and how this node follows activations of others. Invariant: the active policies decide in the epoch that the ledger gave
//! to their activation, or not at all.

use std::sync::Arc;

use placet_credentials::Purge;
use placet_identity::NextIssuers;
use placet_ledger::{
    audit::{AuditEvent, AuditKind},
    ledger::LedgerError,
    policies::Activation,
};
use placet_policy::policies::Policies;
use placet_types::{ids::TenantId, mode::EngineMode};

use crate::{active::Active, context::Context, views::status::StatusView};

/// What is to be activated.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) active: Active,
    /// The issuers accepted from then on; absent: those of before.
    pub(crate) issuers: Option<NextIssuers>,
    pub(crate) by: Activation,
    /// Who asked for it, for the audit.
    pub(crate) note: Option<String>,
}

/// Activates `next` here and on every node; earlier permits are no longer accepted. Where nodes share the ledger, a start or a reload does
/// not bring back replaced policies unless an operator says so.
pub(crate) async fn activate(context: &Context, next: Next) -> Result<(), LedgerError> {
    let Next { active, issuers, by, note } = next;
    let _one_at_a_time = context.current.changing.lock().await;
    let digests = active.digests();
    let mut event = AuditEvent::new(AuditKind::BundleActivated);
    for (name, part) in digests.parts() {
        event.digests.insert(name.to_owned(), part);
    }
    event.note = note;
    let epoch = context.ledger.activate(digests, by, event).await?;
    tracing::info!(epoch, digest = %digests.whole(), "these policies, contracts, directory and issuers decide");
    if let Some(issuers) = issuers {
        context.verifier.replace(issuers);
    }
    let since = context.ledger.store().now();
    let policies = Arc::new(Policies { since, ..active.policies.at_epoch(epoch) });
    adopt(context, Active { policies, ..active });
    Ok(())
}

/// Reads what is active in the ledger, and joins its epoch if it is what this node has; returns whether it is.
pub(crate) async fn follow(context: &Context) -> Result<bool, LedgerError> {
    let _one_at_a_time = context.current.changing.lock().await;
    let active = context.ledger.store().policy().await?;
    let own = context.current.active();
    let Some(active) = active else { return Ok(false) };
    if active.epoch == own.policy.epoch() {
        context.node.health().foreign_policies(None);
        return Ok(true);
    }
    if active.digests == own.digests() {
        let policies = Arc::new(own.policies.at_epoch(active.epoch));
        adopt(context, Active { policies, ports: Arc::clone(&own.ports) });
        return Ok(true);
    }
    context.node.health().foreign_policies(Some(active.epoch));
    Ok(false)
}

fn adopt(context: &Context, active: Active) {
    context.approvals.adopt(Arc::clone(&active.policies));
    context.current.set(active);
    // Credentials minted under other policies are not used under these.
    context.credentials.broker.purge(&Purge::All);
    context.node.health().foreign_policies(None);
}

/// What is active on this node, for a reader of this tenant, or of the machine.
pub(crate) fn status(context: &Context, reader: Option<&TenantId>) -> StatusView {
    let active = context.current.active();
    let (rules, now) = (context.approvals.rules.open(), context.ledger.store().now());
    let is_locked_down = rules.has_lockdown(reader, now);
    let mode = if is_locked_down { EngineMode::Lockdown } else { EngineMode::Enforce };
    StatusView {
        bundle: active.policy.digest(),
        active: active.digest(),
        epoch: active.policy.epoch(),
        since: active.since,
        needs_restart: context.needs_restart.lock().clone(),
        mode,
        decides: context.node.health().cannot_decide().is_none(),
        epoch_elsewhere: context.node.health().foreign_epoch(),
    }
}
