//! The freezes that are in force, for people who look at what waits.
//!
//! Owns which of them are told to whom. That a freeze holds a call is no secret to those who may see the call; its name is for those who
//! may see the entry.

use placet_identity::VerifiedCaller;
use placet_ledger::approval::ApprovalRecord;
use placet_types::{clock::Timestamp, directive::DirectiveBody, ids::AdapterName};

use crate::{entry_access, reviewer, service::Approvals, views::FreezeView};

impl Approvals {
    /// The freezes and lockdowns of the caller's tenant that are in force.
    #[must_use]
    pub fn freezes(&self, caller: &VerifiedCaller) -> Vec<FreezeView> {
        in_force(self, caller, None)
    }
}

/// Those that hold the call of an approval. None for external approvers: what a tenant arranges is its own.
pub(crate) fn of(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: &ApprovalRecord,
) -> Vec<FreezeView> {
    if reviewer::is_external(caller, approval) {
        return Vec::new();
    }
    in_force(service, caller, Some((approval.capability.adapter(), approval.asked_since())))
}

fn in_force(
    service: &Approvals,
    caller: &VerifiedCaller,
    of: Option<(&AdapterName, Timestamp)>,
) -> Vec<FreezeView> {
    let now = service.ledger.store().now();
    let open = service.rules.open();
    let freezes = open.of(caller.tenant()).filter_map(|entry| {
        let DirectiveBody::Freeze(freeze) = &entry.body else { return None };
        let since = entry.starts_at.max(entry.created_at);
        let holds = of.is_none_or(|(of, _)| freeze.holds(of));
        if !holds || !entry.is_in_force(now) {
            return None;
        }
        let seen = entry_access::may_see(service, caller, entry);
        Some(FreezeView {
            directive_id: seen.then(|| entry.directive_id.clone()),
            name: seen.then(|| freeze.name.clone()),
            until: entry.expires_at,
            lockdown: freeze.lockdown,
            adapters: freeze.adapters.clone(),
            after_asking: of.is_some_and(|(_, asked)| since > asked),
        })
    });
    freezes.collect()
}
