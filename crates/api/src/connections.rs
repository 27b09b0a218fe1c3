//! Counts the connections of one listener: in total and per address.
//!
//! Owns the counts. Opens and closes nothing. Invariant: one address never takes the places of the others; a place is released when its
//! connection ends, for whatever reason.

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::counts::Counts;

/// The network that one owner of an IPv6 address has all of: the first 64 bits.
const NETWORK_OF_ONE: u128 = u128::MAX << 64;
/// How often the log reports refused connections.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// The open connections of one listener.
#[derive(Debug)]
pub(crate) struct Connections {
    max: usize,
    per_address_max: usize,
    /// By address. It never has more entries than there are connections.
    open: Mutex<Counts<IpAddr>>,
    told: Mutex<Option<Instant>>,
}

/// The place of one connection.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<Connections>,
    from: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.from);
    }
}

/// The address under which one peer is counted.
pub(crate) fn one(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_OF_ONE)),
    }
}

impl Connections {
    /// With these limits: in total, and per address.
    pub(crate) fn new(max: usize, per_address_max: usize) -> Arc<Self> {
        Arc::new(Self { max, per_address_max, open: Mutex::default(), told: Mutex::new(None) })
    }

    /// Counts one more connection; `None` where its address already has its share.
    pub(crate) fn open(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let from = one(address);
        let mut open = self.open.lock();
        if open.of(&from) >= self.per_address_max {
            drop(open);
            self.tell(address);
            return None;
        }
        open.add(&from);
        Some(Place { all: Arc::clone(self), from })
    }

    /// Whether there is no place for one more.
    pub(crate) fn are_full(&self) -> bool {
        self.open.lock().all() >= self.max
    }

    fn tell(&self, address: IpAddr) {
        let mut told = self.told.lock();
        if told.is_none_or(|at| at.elapsed() >= TOLD_EVERY) {
            *told = Some(Instant::now());
            tracing::warn!(
                %address,
                "connections are refused: one address has as many as `http.connections_per_address_max` allows; behind a proxy \
                 set that to `http.connections_max`"
            );
        }
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

    #[tokio::test]
    async fn an_address_has_so_many_places_and_takes_none_of_anothers() {
        let all = Connections::new(9, 2);
        let at = |text: &str| all.open(text.parse().unwrap());
        let (first, second) = (at("192.0.2.1").unwrap(), at("::ffff:192.0.2.1").unwrap());
        assert!(at("192.0.2.1").is_none(), "the same address in another form is the same");
        let other = at("192.0.2.2").unwrap();
        drop(first);
        let third = at("192.0.2.1").unwrap();
        assert!(at("192.0.2.1").is_none());
        drop((second, third, other));
        assert!(all.open.lock().is_empty(), "nobody is remembered");
    }

    #[tokio::test]
    async fn a_network_of_ipv6_is_one_peer() {
        let all = Connections::new(9, 1);
        let _place = all.open("2001:db8:1:2::1".parse().unwrap()).unwrap();
        assert!(all.open("2001:db8:1:2:ffff::9".parse().unwrap()).is_none());
        assert!(all.open("2001:db8:1:3::1".parse().unwrap()).is_some());
    }
}
