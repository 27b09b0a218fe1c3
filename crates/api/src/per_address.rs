//! How many connections, or handshakes that have not ended, there may be from one address.
//!
//! Owns the count. Closes nothing. Invariant: what one address has begun and not ended never takes the places of
//! the others; a place comes back when what it is for ends, however it ends.

use std::{
    collections::HashMap,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use parking_lot::Mutex;

/// What anyone who has one address of IPv6 has all of: the first 64 bits.
const NETWORK_OF_ONE: u128 = u128::MAX << 64;

/// What is under way, by whom. It is never larger than there are connections.
#[derive(Debug)]
pub(crate) struct PerAddress {
    each_max: u32,
    under_way: Mutex<HashMap<IpAddr, u32>>,
}

/// The place of one connection or handshake.
#[derive(Debug)]
pub(crate) struct Place {
    all: Arc<PerAddress>,
    from: IpAddr,
}

impl PerAddress {
    pub(crate) fn new(each_max: u32) -> Arc<Self> {
        Arc::new(Self { each_max, under_way: Mutex::new(HashMap::new()) })
    }

    /// A place for one more; none where the address has as many as it may.
    pub(crate) fn begin(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let from = one(address);
        let mut under_way = self.under_way.lock();
        let count = under_way.get(&from).copied().unwrap_or_default();
        if count >= self.each_max {
            return None;
        }
        under_way.insert(from, count.saturating_add(1));
        Some(Place { all: Arc::clone(self), from })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut under_way = self.all.under_way.lock();
        match under_way.get(&self.from).and_then(|count| count.checked_sub(1)) {
            Some(left @ 1..) => under_way.insert(self.from, left),
            Some(0) | None => under_way.remove(&self.from),
        };
    }
}

/// The address under which one peer is counted.
pub(crate) fn one(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & NETWORK_OF_ONE)),
    }
}

#[cfg(test)]
mod tests {
    use super::PerAddress;

    #[test]
    fn an_address_has_so_many_places_and_takes_none_of_anothers() {
        let all = PerAddress::new(2);
        let at = |text: &str| all.begin(text.parse().unwrap());
        let (first, second) = (at("192.0.2.1").unwrap(), at("::ffff:192.0.2.1").unwrap());
        assert!(at("192.0.2.1").is_none(), "the same address in another form is the same");
        let other = at("192.0.2.2").unwrap();
        drop(first);
        let third = at("192.0.2.1").unwrap();
        assert!(at("192.0.2.1").is_none());
        drop((second, third, other));
        assert!(all.under_way.lock().is_empty(), "nobody is remembered");
    }

    #[test]
    fn a_network_of_ipv6_is_one_peer() {
        let all = PerAddress::new(1);
        let _place = all.begin("2001:db8:1:2::1".parse().unwrap()).unwrap();
        assert!(all.begin("2001:db8:1:2:ffff::9".parse().unwrap()).is_none());
        assert!(all.begin("2001:db8:1:3::1".parse().unwrap()).is_some());
    }
}
