//! Rate budgets per tenant and capability (TM-18).
//!
//! Owns the buckets: a bucket holds a minute's worth of calls and fills evenly. In memory, so a restart starts them full.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use placet_types::{
    error::{ErrorCode, Refusal},
    ids::{CapabilityId, TenantId},
};

/// The buckets.
#[derive(Debug, Default)]
pub(crate) struct Rates {
    buckets: Mutex<HashMap<(TenantId, CapabilityId), Bucket>>,
}

/// When the bucket would be full again; in the past: it is full.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    full_at: Instant,
}

const WINDOW: Duration = Duration::from_secs(60);

impl Rates {
    /// Takes one call's worth, or says when to come again.
    pub(crate) fn take(
        &self,
        tenant: &TenantId,
        capability: &CapabilityId,
        per_minute_max: u32,
    ) -> Result<(), Refusal> {
        let Some(cost) = WINDOW.checked_div(per_minute_max) else { return Ok(()) };
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket =
            buckets.entry((tenant.clone(), capability.clone())).or_insert(Bucket { full_at: now });
        let full_at = bucket.full_at.max(now) + cost;
        let over = full_at.saturating_duration_since(now).saturating_sub(WINDOW);
        if over.is_zero() {
            bucket.full_at = full_at;
            return Ok(());
        }
        let wait_ms = u64::try_from(over.as_millis()).unwrap_or(u64::MAX).saturating_add(1);
        Err(Refusal::new(
            ErrorCode::RateLimited,
            "too many calls of this tool in a minute; nothing was executed",
        )
        .with_retry_after_ms(wait_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_empties_and_fills_again() {
        let rates = Rates::default();
        let (tenant, capability) = ("acme".parse().unwrap(), "files/read".parse().unwrap());
        for _ in 0..3 {
            rates.take(&tenant, &capability, 3).unwrap();
        }
        let refusal = rates.take(&tenant, &capability, 3).unwrap_err();
        assert_eq!(refusal.code, ErrorCode::RateLimited);
        let wait = refusal.retry_after_ms.unwrap();
        assert!((19_000..=20_001).contains(&wait), "{wait}");
        rates.take(&"other".parse().unwrap(), &capability, 3).unwrap();
        tokio::time::advance(Duration::from_millis(wait)).await;
        rates.take(&tenant, &capability, 3).unwrap();
        assert!(rates.take(&tenant, &capability, 3).is_err());
    }

    #[tokio::test]
    async fn no_bound_means_no_bound() {
        let rates = Rates::default();
        for _ in 0..10_000 {
            rates.take(&"acme".parse().unwrap(), &"files/read".parse().unwrap(), 0).unwrap();
        }
    }
}
