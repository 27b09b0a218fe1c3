//! Destinations and the allow-list of them.
//!
//! It owns the exact comparison of scheme, host and port, and the reading of a destination from a parsed URL. It does
//! not resolve or dial. Invariant: what the list does not name is refused; an empty list refuses everything.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use url::{Host, Url};

use crate::address::{Naming, PrivateRanges};
use crate::error::EgressError;

/// The scheme of a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// Without TLS; only to private addresses that are named explicitly.
    Http,
    /// With TLS.
    Https,
}

impl Scheme {
    /// The scheme as it is written in a URL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "http" => Some(Self::Http),
            "https" => Some(Self::Https),
            _ => None,
        }
    }

    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// One place that may be dialled.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Destination {
    /// The scheme.
    pub scheme: Scheme,
    /// The host as a URL parser writes it: lower case, punycode, IPv6 in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether private addresses are permitted.
    pub private: PrivateRanges,
}

impl Destination {
    /// Reads scheme, host and port of a parsed URL; path and query play no part.
    ///
    /// # Errors
    ///
    /// Refuses other schemes, a URL with a user or a password, and `http:` where private ranges are refused.
    pub fn from_url(url: &Url, private: PrivateRanges) -> Result<Self, EgressError> {
        let unusable = |reason| EgressError::UrlUnusable { reason };
        let scheme = Scheme::parse(url.scheme())
            .ok_or(unusable("its scheme is neither `https` nor `http`"))?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err(unusable("it holds a user or a password"));
        }
        let host =
            url.host_str().filter(|host| !host.is_empty()).ok_or(unusable("it has no host"))?;
        let port = url.port().unwrap_or(scheme.default_port());
        let destination = Self { scheme, host: host.to_ascii_lowercase(), port, private };
        destination.check_scheme()?;
        Ok(destination)
    }

    pub(crate) fn check_scheme(&self) -> Result<(), EgressError> {
        if self.scheme == Scheme::Http && self.private == PrivateRanges::Refused {
            return Err(EgressError::PlainHttpRefused { destination: self.to_string() });
        }
        Ok(())
    }

    /// The address, where the host is one.
    pub(crate) fn literal(&self) -> Option<IpAddr> {
        match parse_host(&self.host)? {
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
            Host::Domain(_) => None,
        }
    }

    pub(crate) fn naming(&self) -> Naming {
        if self.literal().is_some() { Naming::Literal } else { Naming::Resolved }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}://{}:{}", self.scheme.as_str(), self.host, self.port)
    }
}

/// The allow-list: the destinations that may be dialled, and our own listeners, which may not.
#[derive(Clone, Debug, Default)]
pub struct EgressPolicy {
    destinations: Vec<Destination>,
    own_listeners: Vec<SocketAddr>,
}

impl EgressPolicy {
    /// A policy that permits exactly these destinations. An empty list permits nothing.
    pub fn new(destinations: Vec<Destination>) -> Self {
        Self { destinations, own_listeners: Vec::new() }
    }

    /// Also refuses to dial these listeners of ours, so that a tool cannot lead the gateway to itself.
    ///
    /// A listener on an unspecified address stands for its port on every loopback address, and on the address that a connection to it comes
    /// from, which is known once it is open.
    #[must_use]
    pub fn refusing_listeners(mut self, own_listeners: Vec<SocketAddr>) -> Self {
        self.own_listeners = own_listeners;
        self
    }

    pub(crate) fn names_https(&self) -> bool {
        self.destinations.iter().any(|entry| entry.scheme == Scheme::Https)
    }

    /// The entry for a scheme, host and port. Where two entries disagree about private ranges, the stricter one holds.
    pub(crate) fn find(
        &self,
        scheme: Scheme,
        host: &str,
        port: u16,
    ) -> Result<Destination, EgressError> {
        let wanted = parse_host(host);
        let mut found: Option<&Destination> = None;
        for entry in &self.destinations {
            let same =
                entry.scheme == scheme && entry.port == port && parse_host(&entry.host) == wanted;
            if same && (found.is_none() || entry.private == PrivateRanges::Refused) {
                found = Some(entry);
            }
        }
        match found.filter(|_| wanted.is_some()) {
            Some(entry) => entry.check_scheme().map(|()| entry.clone()),
            None => {
                let destination = format!("{}://{host}:{port}", scheme.as_str());
                Err(EgressError::DestinationRefused { destination })
            }
        }
    }

    pub(crate) fn is_own_listener(&self, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        self.own_listeners.iter().any(|own| {
            let own_ip = own.ip().to_canonical();
            own.port() == address.port()
                && (own_ip == ip || (own_ip.is_unspecified() && ip.is_loopback()))
        })
    }

    /// Whether an open connection leads back to a listener of ours on all addresses: from an address of this machine to the same one.
    pub(crate) fn is_own_connection(&self, local: SocketAddr, peer: SocketAddr) -> bool {
        local.ip().to_canonical() == peer.ip().to_canonical()
            && self
                .own_listeners
                .iter()
                .any(|own| own.port() == peer.port() && own.ip().to_canonical().is_unspecified())
    }
}

fn parse_host(host: &str) -> Option<Host<String>> {
    // A bare IPv6 address is what a hand-written destination may hold; a URL always has brackets.
    match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => Some(Host::Ipv6(address)),
        Err(_) => Host::parse(host).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Destination, EgressPolicy, PrivateRanges, Scheme};
    use crate::error::EgressError;
    use url::Url;

    fn destination(url: &str, private: PrivateRanges) -> Result<Destination, EgressError> {
        Destination::from_url(&Url::parse(url).unwrap(), private)
    }

    fn policy(url: &str) -> EgressPolicy {
        EgressPolicy::new(vec![destination(url, PrivateRanges::Refused).unwrap()])
    }

    #[test]
    fn a_destination_is_read_from_the_parsed_url() {
        let read = destination("https://API.Example.com/v1?x=y", PrivateRanges::Refused).unwrap();
        assert_eq!(read.to_string(), "https://api.example.com:443");
        assert_eq!(
            destination("https://[::1]:8443/", PrivateRanges::Allowed).unwrap().host,
            "[::1]"
        );
    }

    #[test]
    fn every_spelling_of_an_address_is_the_same_destination() {
        for host in
            ["0x7f.1", "2130706433", "017700000001", "127.1", "127\u{3002}0\u{3002}0\u{3002}1"]
        {
            let read = destination(&format!("https://{host}/"), PrivateRanges::Allowed).unwrap();
            assert_eq!(read.host, "127.0.0.1", "{host}");
            assert!(read.literal().is_some_and(|address| address.is_loopback()), "{host}");
        }
        let localhost = destination("https://\u{24db}ocalhost/", PrivateRanges::Allowed).unwrap();
        assert_eq!(localhost.host, "localhost");
    }

    #[test]
    fn other_schemes_and_passwords_are_refused() {
        for url in [
            "ftp://example.com/",
            "file:///etc/passwd",
            "https://user:secret@example.com/",
            "data:,x",
        ] {
            let refused = destination(url, PrivateRanges::Allowed).unwrap_err();
            assert!(matches!(refused, EgressError::UrlUnusable { .. }), "{url}");
            assert!(!refused.to_string().contains("secret"), "{url}");
        }
    }

    #[test]
    fn plain_http_needs_a_destination_that_names_private_ranges() {
        let refused = destination("http://example.com/", PrivateRanges::Refused).unwrap_err();
        assert!(matches!(refused, EgressError::PlainHttpRefused { .. }));
        assert!(destination("http://localhost:8080/", PrivateRanges::Allowed).is_ok());
    }

    #[test]
    fn an_empty_policy_permits_nothing() {
        let refused =
            EgressPolicy::new(Vec::new()).find(Scheme::Https, "example.com", 443).unwrap_err();
        assert!(matches!(refused, EgressError::DestinationRefused { .. }));
        assert!(EgressPolicy::default().find(Scheme::Https, "", 443).is_err());
    }

    #[test]
    fn scheme_host_and_port_must_all_be_equal() {
        let policy = policy("https://example.com/");
        assert!(policy.find(Scheme::Https, "example.com", 443).is_ok());
        for (scheme, host, port) in [
            (Scheme::Http, "example.com", 443),
            (Scheme::Https, "example.com", 444),
            (Scheme::Https, "example.com.", 443),
            (Scheme::Https, "www.example.com", 443),
            (Scheme::Https, "example.com.evil.test", 443),
            (Scheme::Https, "evil-example.com", 443),
            (Scheme::Https, "exampl\u{435}.com", 443),
        ] {
            assert!(policy.find(scheme, host, port).is_err(), "{host}:{port}");
        }
    }

    #[test]
    fn of_two_entries_for_one_destination_the_stricter_one_holds() {
        let lenient = destination("https://example.com/", PrivateRanges::Allowed).unwrap();
        let strict = destination("https://example.com/", PrivateRanges::Refused).unwrap();
        for entries in [vec![lenient.clone(), strict.clone()], vec![strict, lenient]] {
            let found = EgressPolicy::new(entries).find(Scheme::Https, "example.com", 443).unwrap();
            assert_eq!(found.private, PrivateRanges::Refused);
        }
    }

    #[test]
    fn a_plain_http_entry_made_by_hand_is_refused_without_private_ranges() {
        let private = PrivateRanges::Refused;
        let entry =
            Destination { scheme: Scheme::Http, host: "example.com".to_owned(), port: 80, private };
        let refused =
            EgressPolicy::new(vec![entry]).find(Scheme::Http, "example.com", 80).unwrap_err();
        assert!(matches!(refused, EgressError::PlainHttpRefused { .. }));
    }

    #[test]
    fn our_own_listeners_are_recognised_in_every_form() {
        let policy = EgressPolicy::new(Vec::new()).refusing_listeners(vec![
            "0.0.0.0:8080".parse().unwrap(),
            "203.0.113.5:443".parse().unwrap(),
        ]);
        for own in [
            "127.0.0.1:8080",
            "127.3.2.1:8080",
            "[::ffff:127.0.0.1]:8080",
            "[::1]:8080",
            "203.0.113.5:443",
        ] {
            assert!(policy.is_own_listener(own.parse().unwrap()), "{own}");
        }
        for other in ["127.0.0.1:8081", "203.0.113.5:8080", "203.0.113.6:443"] {
            assert!(!policy.is_own_listener(other.parse().unwrap()), "{other}");
        }
    }

    #[test]
    fn a_connection_from_an_address_to_the_same_one_ends_at_our_listener_on_all_addresses() {
        for everywhere in ["0.0.0.0:8080", "[::]:8080", "[::ffff:0.0.0.0]:8080"] {
            let policy = EgressPolicy::new(Vec::new()).refusing_listeners(vec![
                everywhere.parse().unwrap(),
                "10.0.0.5:443".parse().unwrap(),
            ]);
            let is_own = |local: &str, peer: &str| {
                policy.is_own_connection(local.parse().unwrap(), peer.parse().unwrap())
            };
            for (local, peer) in [
                ("10.0.0.5:50000", "10.0.0.5:8080"),
                ("[::ffff:10.0.0.5]:50000", "10.0.0.5:8080"),
                ("[fd00::5]:50000", "[fd00::5]:8080"),
            ] {
                assert!(is_own(local, peer), "{everywhere}: {local} to {peer}");
            }
            for (local, peer) in [
                ("10.0.0.5:50000", "10.0.0.6:8080"),
                ("10.0.0.5:50000", "10.0.0.5:8081"),
                ("10.0.0.5:8080", "10.0.0.5:50000"),
                ("10.0.0.6:50000", "10.0.0.6:443"),
            ] {
                assert!(!is_own(local, peer), "{everywhere}: {local} to {peer}");
            }
        }
    }
}
