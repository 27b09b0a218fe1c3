//! Admission: how many calls are in the pipeline at the same time, in all and by tenant.
//!
//! Owns the bound in front of the first mailbox, since mailboxes are unbounded. Does not queue: when it is full, the answer is
//! `OVERLOADED`.

use std::{collections::HashMap, sync::Arc};

use crate::settings::Settings;

use parking_lot::Mutex;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use placet_types::{
    error::{ErrorCode, Refusal},
    ids::TenantId,
};

/// How long a refused caller is asked to wait, in milliseconds.
const RETRY_AFTER_MS: u64 = 250;

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
        }
    }

    /// Takes a place for a call of `tenant`.
    pub(crate) fn admit(&self, tenant: &TenantId) -> Result<OwnedSemaphorePermits, Refusal> {
        let places = self.of(tenant).calls.try_acquire_owned().and_then(|tenant_place| {
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
