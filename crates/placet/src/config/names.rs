//! The configured names of this service, and whether they are all loopback names.
//!
//! Owns the rule that the development key is for loopback: where any configured name is another, others are meant to reach this service,
//! through a proxy for example, though its listener is on loopback.

use url::Url;

use super::{console::is_loopback, load::Config};
use crate::failure::Failure;

impl Config {
    /// Refuses development tokens, and with them the development sign-in, where a configured name of ours is not a loopback one.
    pub(crate) fn check_development_names(&self) -> Result<(), Failure> {
        let foreign = self.names().find(|(_, host, _)| !is_loopback(host));
        let Some((key, _, value)) = foreign.filter(|_| self.development_tokens) else {
            return Ok(());
        };
        Err(Failure::new("refused to accept development tokens under a name that others use")
            .because(format!(
                "`{key}` says `{value}`, which is not a name of this machine alone; development tokens and the development \
                 sign-in are for loopback only, also behind a proxy"
            ))
            .try_this("name your identity provider under `issuers:`, without `development_tokens: true`")
            .try_this(format!("or take `{value}` out of `{key}` to use Placet on this machine alone")))
    }

    /// Each configured name: its key, the host in it, and the whole value.
    fn names(&self) -> impl Iterator<Item = (&'static str, String, String)> {
        let of_url =
            |key, url: &Url| (key, url.host_str().unwrap_or_default().to_owned(), url.to_string());
        let console =
            self.console.public_url.iter().map(move |url| of_url("console.public_url", url));
        let hosts = self.server.allowed_hosts.iter();
        let hosts =
            hosts.map(|host| ("http.allowed_hosts", without_port(host).to_owned(), host.clone()));
        let origins = self.server.allowed_origins.iter().map(|origin| {
            let host = origin.split_once("://").map_or(origin.as_str(), |(_, host)| host);
            ("http.allowed_origins", without_port(host).to_owned(), origin.clone())
        });
        let audience = Url::parse(&self.audience).ok().filter(Url::has_host);
        let audience = audience
            .map(|url| (url.host_str().unwrap_or_default().to_owned(), self.audience.clone()));
        let audience = audience.map(|(host, value)| ("audience", host, value));
        console.chain(hosts).chain(origins).chain(audience)
    }
}

/// `name` of `name:port`, and an address of IPv6 with its brackets.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, _))
            if !host.ends_with(']') && (host.starts_with('[') || !name.contains(':')) =>
        {
            name
        }
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::without_port;

    #[test]
    fn a_port_is_no_part_of_a_name() {
        for (host, name) in [
            ("placet.example", "placet.example"),
            ("placet.example:443", "placet.example"),
            ("[::1]:7411", "[::1]"),
            ("[::1]", "[::1]"),
            ("::1", "::1"),
        ] {
            assert_eq!(without_port(host), name);
        }
    }
}
