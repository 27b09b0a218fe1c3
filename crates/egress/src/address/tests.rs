//! A table test of the classifier, and the matrix of what may be dialled.

use std::net::IpAddr;

use super::{AddressClass, Naming};
use crate::address::PrivateRanges;

use AddressClass::{Global, LinkLocal, Loopback, Metadata, Private, Reserved, Translated};

fn class(text: &str) -> AddressClass {
    AddressClass::of(text.parse::<IpAddr>().unwrap_or_else(|_| panic!("`{text}` is an address")))
}

#[test]
fn ipv4_addresses_have_the_class_of_their_registry_row() {
    let table = [
        ("8.8.8.8", Global),
        ("1.1.1.1", Global),
        ("93.184.216.34", Global),
        ("0.0.0.0", Reserved),
        ("0.1.2.3", Reserved),
        ("9.255.255.255", Global),
        ("10.0.0.0", Private),
        ("10.255.255.255", Private),
        ("11.0.0.0", Global),
        ("100.63.255.255", Global),
        ("100.64.0.0", Private),
        ("100.100.100.200", Metadata),
        ("100.127.255.255", Private),
        ("100.128.0.0", Global),
        ("126.255.255.255", Global),
        ("127.0.0.1", Loopback),
        ("127.255.255.255", Loopback),
        ("128.0.0.0", Global),
        ("168.63.129.16", Metadata),
        ("169.253.255.255", Global),
        ("169.254.0.1", LinkLocal),
        ("169.254.169.254", Metadata),
        ("169.254.170.2", Metadata),
        ("169.255.0.0", Global),
        ("172.15.255.255", Global),
        ("172.16.0.0", Private),
        ("172.31.255.255", Private),
        ("172.32.0.0", Global),
        ("192.0.0.1", Reserved),
        ("192.0.0.192", Metadata),
        ("192.0.1.1", Global),
        ("192.0.2.1", Reserved),
        ("192.88.99.1", Reserved),
        ("192.167.255.255", Global),
        ("192.168.0.1", Private),
        ("192.169.0.0", Global),
        ("198.17.255.255", Global),
        ("198.18.0.0", Reserved),
        ("198.19.255.255", Reserved),
        ("198.20.0.0", Global),
        ("198.51.100.7", Reserved),
        ("203.0.113.7", Reserved),
        ("223.255.255.255", Global),
        ("224.0.0.1", Reserved),
        ("239.255.255.255", Reserved),
        ("240.0.0.1", Reserved),
        ("255.255.255.255", Reserved),
    ];
    for (address, expected) in table {
        assert_eq!(class(address), expected, "{address}");
    }
}

#[test]
fn ipv6_addresses_have_the_class_of_their_registry_row() {
    let table = [
        ("2606:2800:220:1:248:1893:25c8:1946", Global),
        ("2001:200::1", Global),
        ("2001:4860:4860::8888", Global),
        ("3ffe::1", Global),
        ("::", Reserved),
        ("::1", Loopback),
        ("::2", Translated),
        ("::127.0.0.1", Translated),
        ("::8.8.8.8", Translated),
        ("::ffff:0:127.0.0.1", Translated),
        ("64:ff9b::127.0.0.1", Translated),
        ("64:ff9b::8.8.8.8", Translated),
        ("64:ff9b:1::10.0.0.1", Translated),
        ("100::1", Reserved),
        ("1fff::1", Reserved),
        ("2001::7f00:1", Translated),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", Translated),
        ("2001:1::1", Reserved),
        ("2001:2::1", Reserved),
        ("2001:10::1", Reserved),
        ("2001:20::1", Reserved),
        ("2001:1ff::1", Reserved),
        ("2001:db8::1", Reserved),
        ("2002:7f00:1::1", Translated),
        ("2002:808:808::1", Translated),
        ("2a00:1450::5efe:127.0.0.1", Translated),
        ("2a00:1450::200:5efe:10.0.0.1", Translated),
        ("3fff::1", Reserved),
        ("3fff:fff::1", Reserved),
        ("3fff:1000::1", Global),
        ("4000::1", Reserved),
        ("5f00::1", Reserved),
        ("fc00::1", Private),
        ("fd12:3456::1", Private),
        ("fd00:ec2::254", Metadata),
        ("fd20:ce::254", Metadata),
        ("fe80::1", LinkLocal),
        ("febf::1", LinkLocal),
        ("fec0::1", Reserved),
        ("ff02::1", Reserved),
    ];
    for (address, expected) in table {
        assert_eq!(class(address), expected, "{address}");
    }
}

#[test]
fn an_ipv4_mapped_address_has_the_class_of_the_address_in_it() {
    for address in [
        "127.0.0.1",
        "10.1.2.3",
        "169.254.169.254",
        "0.0.0.0",
        "8.8.8.8",
        "100.64.0.1",
        "224.0.0.1",
    ] {
        assert_eq!(class(&format!("::ffff:{address}")), class(address), "{address}");
    }
}

#[test]
fn only_global_addresses_are_dialled_where_private_ranges_are_refused() {
    for class in [Loopback, Private, LinkLocal, Metadata, Translated, Reserved] {
        for naming in [Naming::Literal, Naming::Resolved] {
            assert!(!class.may_be_dialled(PrivateRanges::Refused, naming), "{class} {naming:?}");
        }
    }
    assert!(Global.may_be_dialled(PrivateRanges::Refused, Naming::Literal));
    assert!(Global.may_be_dialled(PrivateRanges::Refused, Naming::Resolved));
}

#[test]
fn link_local_and_metadata_addresses_must_be_named_literally() {
    for class in [LinkLocal, Metadata] {
        assert!(!class.may_be_dialled(PrivateRanges::Allowed, Naming::Resolved), "{class}");
        assert!(class.may_be_dialled(PrivateRanges::Allowed, Naming::Literal), "{class}");
    }
}

#[test]
fn translated_and_reserved_addresses_are_never_dialled() {
    for class in [Translated, Reserved] {
        for naming in [Naming::Literal, Naming::Resolved] {
            assert!(!class.may_be_dialled(PrivateRanges::Allowed, naming), "{class} {naming:?}");
        }
    }
}
