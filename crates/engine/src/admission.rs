//! Admission: how many calls are in the pipeline at the same time, in all and by tenant, and how many of a caller's may be refused.
//!
//! Owns the bound in front of the first mailbox, since mailboxes are unbounded. Does not queue: when it is full, the answer is
//! `OVERLOADED`. Calls that are sent have rates of their own, in the ledger; those that are refused before would otherwise have none, and
//! each leaves an entry in the audit.

use std::{collections::HashMap, sync::Arc, time::Duration};

use crate::settings::Settings;

use parking_lot::Mutex;

use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use placet_types::{
    error::{ErrorCode, Refusal},
    ids::TenantId,
    principal::Principal,
};

/// How long a refused caller is asked to wait, in milliseconds.
const RETRY_AFTER_MS: u64 = 250;

/// How many calls of one caller are looked at in a minute although they end in a refusal. Beyond it they are refused at once.
const REFUSED_PER_MINUTE_MAX: u32 = 1_000;
const MINUTE: Duration = Duration::from_secs(60);

/// Places within the admission bounds, released on drop.
#[derive(Debug)]
pub(crate) struct OwnedSemaphorePermits {
    _overall: OwnedSemaphorePermit,
    _tenant: OwnedSemaphorePermit,
}

/// The bounds.
#[derive(Debug)]
pub(crate) struct Admission {
    overall: Arc<Semaphore>,
    by_tenant: Mutex<HashMap<TenantId, Bounds>>,
    per_tenant_max: usize,
    refused: Mutex<Refused>,
}

/// The calls that were refused within a minute.
#[derive(Debug)]
struct Refused {
    since: Instant,
    by_caller: HashMap<Principal, u32>,
}

impl Refused {
    fn current(&mut self) -> &mut HashMap<Principal, u32> {
        if self.since.elapsed() >= MINUTE {
            *self = Self::default();
        }
        &mut self.by_caller
    }
}

impl Default for Refused {
    fn default() -> Self {
        Self { since: Instant::now(), by_caller: HashMap::new() }
    }
}

/// The bounds of one tenant.
#[derive(Debug, Clone)]
struct Bounds {
    calls: Arc<Semaphore>,
    /// Duplicates that wait for a call in flight. They do no work, and keep no call from being admitted.
    attached: Arc<Semaphore>,
}

impl Admission {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            overall: Arc::new(Semaphore::new(settings.calls_in_flight_max)),
            by_tenant: Mutex::default(),
            per_tenant_max: settings.calls_in_flight_per_tenant_max,
            refused: Mutex::default(),
        }
    }

    /// Counts a call that was refused before it was sent.
    pub(crate) fn refused(&self, caller: &Principal) {
        let mut refused = self.refused.lock();
        let times = refused.current().entry(unnamed(caller)).or_default();
        *times = times.saturating_add(1);
    }

    /// Takes a place for a call of this caller.
    pub(crate) fn admit(&self, caller: &Principal) -> Result<OwnedSemaphorePermits, Refusal> {
        let mut refused = self.refused.lock();
        if refused
            .current()
            .get(&unnamed(caller))
            .is_some_and(|times| *times >= REFUSED_PER_MINUTE_MAX)
        {
            let left = MINUTE.saturating_sub(refused.since.elapsed());
            let message =
                "too many calls of this caller were refused within a minute; nothing was executed";
            return Err(Refusal::new(ErrorCode::RateLimited, message)
                .with_retry_after_ms(u64::try_from(left.as_millis()).unwrap_or(u64::MAX)));
        }
        drop(refused);
        let places =
            self.of(&caller.tenant_id).calls.try_acquire_owned().and_then(|tenant_place| {
                let overall = Arc::clone(&self.overall).try_acquire_owned()?;
                Ok(OwnedSemaphorePermits { _overall: overall, _tenant: tenant_place })
            });
        places.map_err(|_full_or_closed| {
            Refusal::new(
                ErrorCode::Overloaded,
                "too many calls are in progress; nothing was executed",
            )
            .with_retry_after_ms(RETRY_AFTER_MS)
        })
    }

    /// Takes a place for a duplicate that only waits; the bound is that of calls in flight.
    pub(crate) fn attach(&self, tenant: &TenantId) -> Option<OwnedSemaphorePermit> {
        self.of(tenant).attached.try_acquire_owned().ok()
    }

    fn of(&self, tenant: &TenantId) -> Bounds {
        let mut by_tenant = self.by_tenant.lock();
        let bounds = by_tenant.entry(tenant.clone()).or_insert_with(|| {
            let bound = || Arc::new(Semaphore::new(self.per_tenant_max));
            Bounds { calls: bound(), attached: bound() }
        });
        bounds.clone()
    }

    /// Admits nothing more.
    pub(crate) fn close(&self) {
        self.overall.close();
    }
}

/// Who it is, whatever it is called.
fn unnamed(caller: &Principal) -> Principal {
    Principal { display: None, ..caller.clone() }
}

#[cfg(test)]
mod tests {
    use placet_types::principal::PrincipalKind;

    use super::*;

    fn caller(id: &str) -> Principal {
        Principal {
            tenant_id: "acme".parse().unwrap(),
            kind: PrincipalKind::Agent,
            id: id.parse().unwrap(),
            display: None,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_whose_calls_are_all_refused_has_a_rate_and_no_other_one_notices() {
        let admission = Admission {
            overall: Arc::new(Semaphore::new(10)),
            by_tenant: Mutex::default(),
            per_tenant_max: 10,
            refused: Mutex::default(),
        };
        let (loud, other) = (caller("loud"), caller("other"));
        (1..REFUSED_PER_MINUTE_MAX).for_each(|_| admission.refused(&loud));
        assert!(admission.admit(&loud).is_ok());
        admission.refused(&loud);
        let refusal = admission.admit(&loud).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::RateLimited);
        assert_eq!(refusal.retry_after_ms, Some(60_000));
        assert!(admission.admit(&other).is_ok());
        tokio::time::advance(MINUTE).await;
        assert!(admission.admit(&loud).is_ok());
    }
}
