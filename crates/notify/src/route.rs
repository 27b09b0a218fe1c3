//! Who is notified of what: from a notice to channels.
//!
//! Owns the matching of routes. Does not send. Invariant: a tenant learns of another tenant's matters only as far as it is asked itself.

use std::collections::BTreeMap;

use placet_types::ids::{ChannelName, TenantId};
use serde::{Deserialize, Serialize};

use crate::{
    config::{NotifyConfig, RouteConfig},
    notice::{Notice, NoticeKind},
};

/// How much of a notice a channel gets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// How the call ended, or that it waits for its caller, without its approval.
    Caller,
    /// The part for people of this tenant, who are asked about a call of another one.
    External(TenantId),
    /// Everything.
    Full,
}

/// The channels that get the notice, and how much of it.
pub(crate) fn channels(config: &NotifyConfig, notice: &Notice) -> BTreeMap<ChannelName, Scope> {
    let mut told: BTreeMap<ChannelName, Scope> = BTreeMap::new();
    if let Some(name) = notice.callback.as_ref().filter(|_| notice.kind.is_for_callers()) {
        let channel = config.channels.get(name);
        // The configuration may have changed since the caller asked.
        if channel.is_some_and(|channel| channel.callbacks.contains(&notice.tenant)) {
            told.insert(name.clone(), Scope::Caller);
        }
    }
    for route in &config.routes {
        let Some(scope) = scope_of(route, notice) else { continue };
        for name in &route.channels {
            let known = told.entry(name.clone()).or_insert_with(|| scope.clone());
            if *known < scope {
                *known = scope.clone();
            }
        }
    }
    told
}

fn scope_of(route: &RouteConfig, notice: &Notice) -> Option<Scope> {
    if !route.events.contains(&notice.kind) {
        return None;
    }
    let asks = |tenant: Option<&TenantId>| {
        let mut asked = notice.asked.iter().filter(|(of, _)| tenant.is_none_or(|one| of == one));
        asked.any(|(_, group)| route.groups.is_empty() || route.groups.contains(group))
    };
    match &route.tenant {
        Some(tenant) if *tenant != notice.tenant => {
            let is_told = asks(Some(tenant)) && notice.kind.is_for_external_approvers();
            is_told.then(|| Scope::External(tenant.clone()))
        }
        own => (route.groups.is_empty() || asks(own.as_ref())).then_some(Scope::Full),
    }
}

/// Whether this kind is reported to anybody.
pub(crate) fn wants(config: &NotifyConfig, kind: NoticeKind) -> bool {
    config.routes.iter().any(|route| route.events.contains(&kind))
}
