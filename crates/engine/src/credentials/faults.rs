//! Credential faults that only an operator can fix: noted in the audit chain, where the notifier finds them.
//!
//! Owns how often. Invariants: a note names a secret or a token service and says in our own words what is wrong; it contains no text from a
//! token service or a target, and no secret.

use std::time::Duration;

use moka::sync::Cache;

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_types::{
    binding::CredentialUse,
    contract::credential::CredentialPlan,
    error::ErrorCode,
    ids::{RecordId, TenantId},
};

use crate::call::Brokered;

/// How long after a note the same fault is not noted again.
const REPEAT_AFTER: Duration = Duration::from_hours(6);
/// How many faults are remembered.
const REMEMBERED_MAX: u64 = 100_000;

/// The faults noted recently.
#[derive(Debug)]
pub(crate) struct CredentialFaults(Cache<Fault, ()>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Fault {
    /// A problem with a secret or a token service.
    Source { tenant: TenantId, source: String, problem: &'static str },
    /// An approved call that gets no credential.
    Call(RecordId),
}

impl Default for CredentialFaults {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(REMEMBERED_MAX).time_to_live(REPEAT_AFTER);
        Self(cache.build())
    }
}

impl CredentialFaults {
    fn is_news(&self, fault: Fault) -> bool {
        self.0.entry(fault).or_insert(()).is_fresh()
    }

    /// Whether it was not noted recently that this approved call gets no credential.
    pub(crate) fn is_news_of(&self, record_id: RecordId) -> bool {
        self.is_news(Fault::Call(record_id))
    }

    /// The event for a call that had no credential, or one that its target does not accept, where somebody has to fix that; `code` is what
    /// its caller is told. `None` where the fault was noted recently.
    pub(crate) fn event(
        &self,
        brokered: &Brokered,
        code: ErrorCode,
        problem: &'static str,
    ) -> Option<AuditEvent> {
        let plan = &brokered.binding.credential;
        let tenant = brokered.identity.chain.tenant().clone();
        let source = plan.source.clone().unwrap_or_default();
        let fault = Fault::Source { tenant: tenant.clone(), source: source.clone(), problem };
        if !self.is_news(fault) {
            return None;
        }
        let capability = brokered.binding.capability.clone();
        tracing::error!(%capability, source, problem, "credential misconfigured: operator action required");
        let mut event = AuditEvent::new(AuditKind::Security);
        event.tenant = Some(tenant);
        event.capability = Some(capability);
        event.code = Some(code);
        event.credential = Some(Box::new(planned(plan, source)));
        event.note = Some(problem.to_owned());
        Some(event)
    }
}

fn planned(plan: &CredentialPlan, source: String) -> CredentialUse {
    CredentialUse {
        kind: plan.kind,
        source,
        subject: None,
        actor: None,
        audience: plan.audience.clone(),
        resource: plan.resource.clone(),
        scopes: Vec::new(),
        expires_at: None,
        digest: None,
        reused: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_tenant_source_or_problem_is_another_fault() {
        let faults = CredentialFaults::default();
        let is_news = |tenant: &str, source: &str, problem: &'static str| {
            let tenant = tenant.parse().unwrap();
            faults.is_news(Fault::Source { tenant, source: source.to_owned(), problem })
        };
        for (tenant, source, problem) in [
            ("acme", "corp", "a"),
            ("globex", "corp", "a"),
            ("acme", "vault", "a"),
            ("acme", "corp", "b"),
        ] {
            assert!(is_news(tenant, source, problem));
            assert!(!is_news(tenant, source, problem), "it was noted just now");
        }
    }
}
