//! The freezes that are in force, for people who look at what waits.
//!
//! Owns which of them are told to whom. That a freeze holds a call is no secret to those who may see the call; its name is for those who
//! may see the entry.

use std::collections::BTreeSet;

use placet_identity::VerifiedCaller;
use placet_ledger::{approval::ApprovalRecord, desk::DeskEntry};
use placet_types::{
    clock::Timestamp,
    desk::{DeskBody, DeskKind},
    ids::{AdapterName, DeskId, TenantId},
    mode::EngineMode,
};

use super::{effective_rules::Open, entries, external};
use crate::{call::Brokered, context::Context, views::desk::FreezeView};

/// Those of the caller's tenant.
pub(crate) fn all(context: &Context, caller: &VerifiedCaller) -> Vec<FreezeView> {
    in_force(context, caller, None)
}

/// Which are in force, in all tenants.
pub(crate) fn ids_in_force(open: &Open, now: Timestamp) -> BTreeSet<DeskId> {
    let freezes =
        open.all().filter(|entry| entry.kind() == DeskKind::Freeze && entry.is_in_force(now));
    freezes.map(|entry| entry.desk_id.clone()).collect()
}

/// Whether an entry is a freeze that is not in force any more.
pub(crate) fn is_over(entry: &DeskEntry, now: Timestamp) -> bool {
    entry.kind() == DeskKind::Freeze && entry.starts_at <= now && !entry.is_in_force(now)
}

/// The mode that calls of an adapter are decided in: its own, or lockdown while one is in force for them.
pub(crate) fn mode_for(
    context: &Context,
    open: &Open,
    tenant: &TenantId,
    adapter: &AdapterName,
) -> EngineMode {
    let mut freezes = open.freezes(tenant, adapter, context.ledger.store().now());
    if freezes.any(|freeze| freeze.lockdown) { EngineMode::Lockdown } else { context.engine_mode() }
}

/// Whether a lockdown is in force for a call.
pub(crate) fn is_locked_down(context: &Context, brokered: &Brokered) -> bool {
    let tenant = brokered.identity.chain.tenant();
    let adapter = brokered.binding.capability.adapter();
    mode_for(context, &context.desk.force.open(), tenant, adapter) == EngineMode::Lockdown
}

/// Those that hold the call of an approval. None for external approvers: what a tenant arranges is its own.
pub(crate) fn of(
    context: &Context,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Vec<FreezeView> {
    if external::is_external(caller, approval) {
        return Vec::new();
    }
    in_force(context, caller, Some((approval.capability.adapter(), approval.asked_since())))
}

fn in_force(
    context: &Context,
    caller: &VerifiedCaller,
    of: Option<(&AdapterName, Timestamp)>,
) -> Vec<FreezeView> {
    let now = context.ledger.store().now();
    let open = context.desk.force.open();
    let freezes = open.of(caller.tenant()).filter_map(|entry| {
        let DeskBody::Freeze(freeze) = &entry.body else { return None };
        let since = entry.starts_at.max(entry.created_at);
        let holds = of.is_none_or(|(of, _)| freeze.holds(of));
        if !holds || !entry.is_in_force(now) {
            return None;
        }
        let seen = entries::may_see(context, caller, entry);
        Some(FreezeView {
            desk_id: seen.then(|| entry.desk_id.clone()),
            name: seen.then(|| freeze.name.clone()),
            until: entry.expires_at,
            lockdown: freeze.lockdown,
            adapters: freeze.adapters.clone(),
            after_asking: of.is_some_and(|(_, asked)| since > asked),
        })
    });
    freezes.collect()
}
