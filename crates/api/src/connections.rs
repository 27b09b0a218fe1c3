//! The connections that are open on one listener: how many in all, and how many from one address.
//!
//! Owns the counts. Opens and closes nothing. Invariant: one address never takes the places of all others.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use tokio::time::Instant;

use crate::per_address::{PerAddress, Place};

/// How often the log says that connections are refused.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The open connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    max: u32,
    open: AtomicU32,
    by_address: Arc<PerAddress>,
    told: Mutex<Option<Instant>>,
}

/// One open connection, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Open {
    all: Arc<Connections>,
    _of_address: Place,
}

impl Connections {
    /// So many in all, and of one address.
    pub(crate) fn new(max: u32, per_address_max: u32) -> Arc<Self> {
        let (by_address, open) = (PerAddress::new(per_address_max), AtomicU32::new(0));
        Arc::new(Self { max, open, by_address, told: Mutex::new(None) })
    }

    /// Counts one more connection; none where its address has as many as it may.
    pub(crate) fn open(self: &Arc<Self>, address: IpAddr) -> Option<Open> {
        let Some(place) = self.by_address.begin(address) else {
            self.tell(address);
            return None;
        };
        self.open.fetch_add(1, Ordering::Relaxed);
        Some(Open { all: Arc::clone(self), _of_address: place })
    }

    /// Whether there is no place for one more.
    pub(crate) fn are_full(&self) -> bool {
        self.open.load(Ordering::Relaxed) >= self.max
    }

    fn tell(&self, address: IpAddr) {
        let mut told = self.told.lock();
        if told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(
                %address,
                "connections are refused: one address has as many as `limits.connections_per_address_max` allows; behind a proxy \
                 set that to `limits.connections_max`"
            );
        }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.open.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Connections;

    #[tokio::test]
    async fn one_address_has_its_share_and_all_together_are_counted() {
        let all = Connections::new(3, 2);
        let at = |text: &str| all.open(text.parse().unwrap());
        let (first, second) = (at("192.0.2.1").unwrap(), at("192.0.2.1").unwrap());
        assert!(at("192.0.2.1").is_none() && !all.are_full());
        let other = at("192.0.2.2").unwrap();
        assert!(all.are_full());
        drop(first);
        assert!(!all.are_full() && at("192.0.2.1").is_some());
        drop((second, other));
    }
}
