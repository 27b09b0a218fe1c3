//! The class of an IP address, after the IANA special-purpose registries.
//!
//! It owns the table and the question "may this class be dialled for this kind of destination". It knows nothing of
//! names or sockets. Invariant: an address that no row calls global is not global (fail closed): IPv6 is global only
//! inside `2000::/3`, and addresses that carry an IPv4 address in a translation prefix are never global.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Whether a destination may lie at an address that is not global.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PrivateRanges {
    /// Every address of the host must be global.
    Refused,
    /// Loopback and private addresses are permitted: a contract or the configuration names this destination.
    Allowed,
}

/// The class of an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressClass {
    /// Reachable from everywhere.
    Global,
    /// `127.0.0.0/8` and `::1`.
    Loopback,
    /// RFC 1918, carrier-grade NAT and unique local addresses.
    Private,
    /// `169.254.0.0/16` and `fe80::/10`.
    LinkLocal,
    /// An address at which clouds serve credentials or platform services to their machines.
    Metadata,
    /// An IPv6 address that carries an IPv4 address (NAT64, 6to4, Teredo, ISATAP, compatible).
    Translated,
    /// Unspecified, documentation, benchmarking, multicast, broadcast or unassigned.
    Reserved,
}

impl fmt::Display for AddressClass {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Global => "global",
            Self::Loopback => "loopback",
            Self::Private => "private",
            Self::LinkLocal => "link-local",
            Self::Metadata => "cloud metadata",
            Self::Translated => "translated",
            Self::Reserved => "reserved",
        })
    }
}

/// How a destination names its host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// The destination is an address itself.
    Literal,
    /// The destination is a name that was resolved.
    Resolved,
}

impl AddressClass {
    /// Classifies an address. An IPv4-mapped IPv6 address has the class of the IPv4 address in it.
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(address) => class_of_v4(address),
            IpAddr::V6(address) => class_of_v6(address),
        }
    }

    /// Whether an address of this class may be dialled at all.
    ///
    /// Link-local and metadata addresses are dialled only where the destination names the address itself: a name that
    /// leads there is an attack far more often than a plan.
    pub(crate) fn may_be_dialled(self, private: PrivateRanges, naming: Naming) -> bool {
        match (self, private) {
            (Self::Global, _) | (Self::Loopback | Self::Private, PrivateRanges::Allowed) => true,
            (Self::LinkLocal | Self::Metadata, PrivateRanges::Allowed) => naming == Naming::Literal,
            (
                Self::Loopback | Self::Private | Self::LinkLocal | Self::Metadata,
                PrivateRanges::Refused,
            )
            | (Self::Translated | Self::Reserved, _) => false,
        }
    }
}

/// Addresses of platform services, among them some that look private or even global.
const METADATA_V4: [Ipv4Addr; 6] = [
    Ipv4Addr::new(169, 254, 169, 254), // most clouds
    Ipv4Addr::new(169, 254, 170, 2),   // container credentials
    Ipv4Addr::new(169, 254, 170, 23),  // pod identity
    Ipv4Addr::new(100, 100, 100, 200), // Alibaba
    Ipv4Addr::new(192, 0, 0, 192),     // Oracle
    Ipv4Addr::new(168, 63, 129, 16),   // Azure's wire server, inside a global range
];

const METADATA_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254),
    Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0023),
    Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254),
];

fn class_of_v4(address: Ipv4Addr) -> AddressClass {
    if METADATA_V4.contains(&address) {
        return AddressClass::Metadata;
    }
    match address.octets() {
        [127, ..] => AddressClass::Loopback,
        [10, ..] | [100, 64..=127, ..] | [172, 16..=31, ..] | [192, 168, ..] => {
            AddressClass::Private
        }
        [169, 254, ..] => AddressClass::LinkLocal,
        // This network, IETF protocols, the three documentation nets, 6to4 relays, benchmarking, multicast, future use.
        [0, ..]
        | [192, 0, 0 | 2, _]
        | [198, 51, 100, _]
        | [203, 0, 113, _]
        | [192, 88, 99, _]
        | [198, 18..=19, ..]
        | [224..=255, ..] => AddressClass::Reserved,
        _ => AddressClass::Global,
    }
}

fn class_of_v6(address: Ipv6Addr) -> AddressClass {
    if METADATA_V6.contains(&address) {
        return AddressClass::Metadata;
    }
    match address.segments() {
        [0, 0, 0, 0, 0, 0, 0, 1] => AddressClass::Loopback,
        [0, 0, 0, 0, 0, 0, 0, 0] => AddressClass::Reserved,
        // IPv4-compatible, SIIT, NAT64 (both prefixes), Teredo, 6to4 and, under any prefix, ISATAP.
        [0, 0, 0, 0, 0, 0, _, _]
        | [0, 0, 0, 0, 0xffff, 0, _, _]
        | [0x0064, 0xff9b, ..]
        | [0x2001, 0, ..]
        | [0x2002, ..]
        | [_, _, _, _, 0 | 0x0200, 0x5efe, _, _] => AddressClass::Translated,
        [0xfc00..=0xfdff, ..] => AddressClass::Private,
        [0xfe80..=0xfebf, ..] => AddressClass::LinkLocal,
        // IETF protocol assignments (2001::/23, with benchmarking and ORCHID) and the two documentation nets.
        [0x2001, 0x0001..=0x01ff | 0x0db8, ..] | [0x3fff, 0x0000..=0x0fff, ..] => {
            AddressClass::Reserved
        }
        [0x2000..=0x3fff, ..] => AddressClass::Global,
        _ => AddressClass::Reserved,
    }
}

#[cfg(test)]
mod tests;
