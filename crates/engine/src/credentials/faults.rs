//! Credential faults that only an operator can fix: noted in the audit chain, where the notifier finds them.
//!
//! Owns how often: one note per outage, and another for each day that it lasts. Invariants: a note names a secret or a token service and
//! says in our own words what is wrong; it contains no text from a token service or a target, and no secret.

use std::collections::HashMap;

use parking_lot::Mutex;

use placet_ledger::audit::{AuditEvent, AuditKind};
use placet_types::{
    binding::CredentialUse, clock::Timestamp, contract::credential::CredentialPlan,
    error::ErrorCode, ids::TenantId,
};

use crate::call::Brokered;

/// How long after a note the same fault is noted again, where the credential worked in between, in milliseconds.
const REPEAT_REPAIRED_AFTER_MS: i64 = 3_600_000;
/// The same where it did not.
const REPEAT_UNREPAIRED_AFTER_MS: i64 = 86_400_000;
/// How many faults are remembered; further ones are only in the log.
const REMEMBERED_MAX: usize = 10_000;

/// The faults noted recently.
#[derive(Debug, Default)]
pub(crate) struct CredentialFaults(Mutex<HashMap<Fault, Noted>>);

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Fault {
    tenant: TenantId,
    source: String,
    problem: &'static str,
}

#[derive(Debug, Clone, Copy)]
struct Noted {
    at: Timestamp,
    is_repaired: bool,
}

impl CredentialFaults {
    fn is_news(&self, fault: Fault, now: Timestamp) -> bool {
        let is_old = |noted: &Noted| {
            let after_ms = if noted.is_repaired {
                REPEAT_REPAIRED_AFTER_MS
            } else {
                REPEAT_UNREPAIRED_AFTER_MS
            };
            now.since_ms(noted.at) >= after_ms
        };
        let mut noted = self.0.lock();
        if noted.get(&fault).is_some_and(|noted| !is_old(noted)) {
            return false;
        }
        if noted.len() >= REMEMBERED_MAX {
            noted.retain(|_, noted| !is_old(noted));
        }
        let has_room = noted.len() < REMEMBERED_MAX;
        if has_room {
            noted.insert(fault, Noted { at: now, is_repaired: false });
        }
        has_room
    }

    fn repaired(&self, tenant: &TenantId, source: &str) {
        let mut noted = self.0.lock();
        for (fault, noted) in noted.iter_mut() {
            if fault.tenant == *tenant && fault.source == source {
                noted.is_repaired = true;
            }
        }
    }

    /// The event for a call that had no credential, or one that its target does not accept, where somebody has to fix that; `code` is what
    /// its caller is told. `None` where the fault was noted recently.
    pub(crate) fn event(
        &self,
        brokered: &Brokered,
        code: ErrorCode,
        problem: &'static str,
        now: Timestamp,
    ) -> Option<AuditEvent> {
        let plan = &brokered.binding.credential;
        let tenant = brokered.identity.chain.tenant().clone();
        let source = plan.source.clone().unwrap_or_default();
        let fault = Fault { tenant: tenant.clone(), source: source.clone(), problem };
        if !self.is_news(fault, now) {
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

    /// The credential of the call's plan worked.
    pub(crate) fn went_well(&self, brokered: &Brokered) {
        if let Some(source) = &brokered.binding.credential.source {
            self.repaired(brokered.identity.chain.tenant(), source);
        }
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

    const HOUR: i64 = 3_600_000;

    fn fault(tenant: &str, source: &str, problem: &'static str) -> Fault {
        Fault { tenant: tenant.parse().unwrap(), source: source.to_owned(), problem }
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_ms(ms)
    }

    #[test]
    fn an_outage_is_one_note_and_another_for_each_day_of_it() {
        let faults = CredentialFaults::default();
        let one = || fault("acme", "corp", "it is not accepted");
        assert!(faults.is_news(one(), at(0)));
        for ms in [1, HOUR, 23 * HOUR] {
            assert!(!faults.is_news(one(), at(ms)), "{ms}");
        }
        assert!(faults.is_news(one(), at(24 * HOUR)));
        assert!(!faults.is_news(one(), at(25 * HOUR)));
    }

    #[test]
    fn another_tenant_source_or_problem_is_another_outage() {
        let faults = CredentialFaults::default();
        assert!(faults.is_news(fault("acme", "corp", "a"), at(0)));
        assert!(faults.is_news(fault("globex", "corp", "a"), at(0)));
        assert!(faults.is_news(fault("acme", "vault", "a"), at(0)));
        assert!(faults.is_news(fault("acme", "corp", "b"), at(0)));
    }

    #[test]
    fn what_was_repaired_and_breaks_again_is_news_but_not_within_the_hour() {
        let faults = CredentialFaults::default();
        let one = || fault("acme", "corp", "a");
        assert!(faults.is_news(one(), at(0)));
        faults.repaired(&"acme".parse().unwrap(), "corp");
        assert!(!faults.is_news(one(), at(HOUR - 1)), "it goes to and fro");
        assert!(faults.is_news(one(), at(HOUR)));
        faults.repaired(&"acme".parse().unwrap(), "other");
        faults.repaired(&"globex".parse().unwrap(), "corp");
        assert!(!faults.is_news(one(), at(3 * HOUR)), "others were repaired");
    }

    #[test]
    fn more_than_can_be_remembered_are_not_noted_and_old_ones_make_room() {
        let faults = CredentialFaults::default();
        for number in 0..REMEMBERED_MAX {
            assert!(faults.is_news(fault("acme", &number.to_string(), "a"), at(0)));
        }
        assert!(!faults.is_news(fault("acme", "one more", "a"), at(HOUR)));
        assert!(faults.is_news(fault("acme", "one more", "a"), at(24 * HOUR)));
    }
}
