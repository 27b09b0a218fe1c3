//! `Host` and `Origin`: keeps web pages away from a port on the visitor's own machine (DNS rebinding, CSRF).
//!
//! Owns the two allow-lists. Does not know who calls. Invariant: a request with no `Host`, two, or one that is not in the
//! list is refused, and so is one with any `Origin` that is not in the other list.

use std::net::{IpAddr, SocketAddr};

use http::{HeaderMap, HeaderName, StatusCode, Uri, header};
use url::Url;

use placet_types::error::{ErrorCode, Refusal};

use crate::{config::ConfigError, problem::Failure, request::at_most_one};

/// The allow-lists of one listener.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    hosts: Vec<HostName>,
    origins: Vec<String>,
    addresses_allowed: bool,
    is_tls: bool,
}

impl Guard {
    /// The lists of a listener bound to `bound`: the loopback names and the address itself, and what is configured.
    pub(crate) fn new<'a>(
        bound: SocketAddr,
        hosts: impl IntoIterator<Item = &'a String>,
        origins: impl IntoIterator<Item = &'a String>,
    ) -> Result<Self, ConfigError> {
        let mut all = vec![
            HostName { name: "localhost".to_owned(), port: Some(bound.port()) },
            HostName { name: "127.0.0.1".to_owned(), port: Some(bound.port()) },
            HostName { name: "::1".to_owned(), port: Some(bound.port()) },
        ];
        if !bound.ip().is_unspecified() {
            all.push(HostName { name: bound.ip().to_string(), port: Some(bound.port()) });
        }
        for entry in hosts {
            all.push(
                HostName::parse(entry).ok_or_else(|| ConfigError::Host { entry: entry.clone() })?,
            );
        }
        let origins =
            origins.into_iter().map(|entry| parse_origin(entry)).collect::<Result<_, _>>()?;
        Ok(Self { hosts: all, origins, addresses_allowed: false, is_tls: false })
    }

    /// For a TLS listener, where a `Host` without a port means the HTTPS port.
    pub(crate) fn with_tls(mut self) -> Self {
        self.is_tls = true;
        self
    }

    /// Accepts any IP address as `Host`, since probes call a listener by addresses nobody knows beforehand: only a name can be rebound, an
    /// address cannot.
    pub(crate) fn with_addresses_allowed(mut self) -> Self {
        self.addresses_allowed = true;
        self
    }

    /// Also accepts the pages' origin: their public URL, or else the loopback names.
    pub(crate) fn with_pages(
        mut self,
        bound: SocketAddr,
        public: Option<&Url>,
    ) -> Result<Self, ConfigError> {
        let Some(url) = public else {
            let port = bound.port();
            let names = ["localhost", "127.0.0.1", "[::1]"];
            let scheme = if self.is_tls { "https" } else { "http" };
            self.origins.extend(names.map(|name| format!("{scheme}://{name}:{port}")));
            return Ok(self);
        };
        let origin = url.origin().ascii_serialization();
        let host = origin.split_once("://").and_then(|(_, host)| HostName::parse(host));
        self.hosts.push(host.ok_or_else(|| ConfigError::Origin { entry: url.to_string() })?);
        self.origins.push(origin);
        Ok(self)
    }

    /// Checks a request.
    pub(crate) fn check(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), Failure> {
        let host = exactly_one(headers, &header::HOST).and_then(HostName::parse);
        let host_fits = host.is_some_and(|host| self.serves(&host));
        let target_fits = uri.authority().is_none_or(|authority| {
            HostName::parse(authority.as_str()).is_some_and(|host| self.serves(&host))
        });
        if !host_fits || !target_fits {
            return Err(forbidden("this service is not called by that `Host`"));
        }
        let origin_fits = match exactly_one(headers, &header::ORIGIN) {
            Some(origin) => self.origins.iter().any(|allowed| allowed.eq_ignore_ascii_case(origin)),
            None => !headers.contains_key(header::ORIGIN),
        };
        if !origin_fits {
            return Err(forbidden("scripts of that `Origin` may not call this service"));
        }
        Ok(())
    }

    fn serves(&self, host: &HostName) -> bool {
        let is_address = host.name.parse::<IpAddr>().is_ok();
        (self.addresses_allowed && is_address)
            || self.hosts.iter().any(|allowed| allowed.covers(host, self.is_tls))
    }
}

/// The value of a header that is there once, as text.
fn exactly_one<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    at_most_one(headers, name).ok().flatten()
}

fn forbidden(message: &str) -> Failure {
    Failure::with_status(Refusal::new(ErrorCode::PolicyDenied, message), StatusCode::FORBIDDEN)
}

/// A host as a `Host` header or an allow-list writes it; a name in lower case, an address without brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
struct HostName {
    name: String,
    port: Option<u16>,
}

impl HostName {
    fn parse(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, after) = rest.split_once(']')?;
            let IpAddr::V6(address) = inside.parse().ok()? else { return None };
            let port =
                if after.is_empty() { None } else { Some(parse_port(after.strip_prefix(':')?)?) };
            return Some(Self { name: address.to_string(), port });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(parse_port(port)?)),
            None => (text, None),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let sound = !name.is_empty() && name.len() <= 253 && name.chars().all(plain);
        sound.then(|| Self { name: name.to_ascii_lowercase(), port })
    }

    /// Whether an entry of the list covers a host: an entry without a port covers every port.
    fn covers(&self, host: &Self, is_tls: bool) -> bool {
        let usual = if is_tls { 443 } else { 80 };
        self.name == host.name && self.port.is_none_or(|port| host.port.unwrap_or(usual) == port)
    }
}

fn parse_port(text: &str) -> Option<u16> {
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if digits { text.parse().ok() } else { None }
}

fn parse_origin(entry: &str) -> Result<String, ConfigError> {
    let host = entry.strip_prefix("https://").or_else(|| entry.strip_prefix("http://"));
    match host.and_then(HostName::parse) {
        Some(_) => Ok(entry.to_owned()),
        None => Err(ConfigError::Origin { entry: entry.to_owned() }),
    }
}

#[cfg(test)]
mod tests;
