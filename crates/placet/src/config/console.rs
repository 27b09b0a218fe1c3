//! The `console` section: where the web console is reached, and how people sign in to it.
//!
//! Owns the form and its check. Invariant: other machines reach a console only under a public address of its own, over TLS.

use std::{net::IpAddr, path::Path};

use placet_identity::{IssuerConfig, Secrets, SignInConfig};
use placet_types::bounded::Bounded;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::Url;

use crate::yaml::FileProblem;

/// The web console.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ConsoleFile {
    /// Whether the console is served.
    pub(crate) enabled: bool,
    /// The origin at which browsers reach the console, such as `https://placet.example`. Absent: any loopback name.
    #[schemars(with = "Option<String>", extend("format" = "uri"))]
    pub(crate) public_url: Option<Url>,
    /// The OpenID provider that people sign in with. Absent: they use the link that `placet console` prints, where development tokens are
    /// accepted.
    pub(crate) sign_in: Option<SignInConfig>,
    /// How long a session may be idle before it ends, in milliseconds.
    pub(crate) idle_ms: Bounded<60_000, 86_400_000>,
    /// The maximum duration of a session, in milliseconds.
    pub(crate) session_ms: Bounded<60_000, 86_400_000>,
    /// The maximum number of sessions at the same time.
    pub(crate) sessions_max: Bounded<1, 100_000>,
}

impl Default for ConsoleFile {
    fn default() -> Self {
        Self {
            enabled: true,
            public_url: None,
            sign_in: None,
            idle_ms: Bounded(30 * 60_000),
            session_ms: Bounded(8 * 3_600_000),
            sessions_max: Bounded(4_096),
        }
    }
}

impl ConsoleFile {
    /// Checks the section.
    pub(crate) fn check(
        &self,
        file: &Path,
        issuers: &[IssuerConfig],
        secrets: &Secrets,
    ) -> Result<(), FileProblem> {
        if let Some(url) = &self.public_url {
            let is_origin = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
            let is_safe = url.scheme() == "https"
                || (url.scheme() == "http" && url.host_str().is_some_and(is_loopback));
            if !is_origin || !is_safe || url.host().is_none() || !url.username().is_empty() {
                let problem = "must be `https://name` or `https://name:port`; plain HTTP is for loopback only";
                return Err(FileProblem::at(file, "console.public_url", problem));
            }
        }
        if let Some(sign_in) = &self.sign_in {
            let problem =
                |error: &dyn std::fmt::Display| FileProblem::at(file, "console.sign_in", error);
            sign_in.check(issuers).map_err(|error| problem(&error))?;
            if let Some(name) = &sign_in.client_secret {
                secrets.named(name).map_err(|error| {
                    FileProblem::at(file, "console.sign_in.client_secret", error)
                })?;
            }
        }
        Ok(())
    }
}

/// Whether a host, as a URL or a `Host` header writes it, leads to this machine alone.
pub(crate) fn is_loopback(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    match address.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().is_loopback(),
        Err(_) => host.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use placet_identity::Secrets;

    use super::{ConsoleFile, is_loopback};

    fn check(public_url: &str) -> bool {
        let file =
            ConsoleFile { public_url: Some(public_url.parse().unwrap()), ..ConsoleFile::default() };
        file.check(Path::new("placet.yaml"), &[], &Secrets::default()).is_ok()
    }

    #[test]
    fn a_public_address_is_an_origin_over_tls_or_on_loopback() {
        for url in [
            "https://placet.example",
            "https://placet.example:8443",
            "http://127.0.0.1:7411",
            "http://localhost",
            "http://[::1]:80",
        ] {
            assert!(check(url), "{url}");
        }
        for url in [
            "http://placet.example",
            "https://placet.example/directives",
            "https://u@placet.example",
            "https://placet.example/?a=b",
            "ftp://placet.example",
            "mailto:ann@example",
        ] {
            assert!(!check(url), "{url}");
        }
    }

    #[test]
    fn loopback_names_are_told_from_others() {
        for host in [
            "localhost",
            "LOCALHOST",
            "127.0.0.1",
            "127.8.9.1",
            "[::1]",
            "::1",
            "[::ffff:127.0.0.1]",
        ] {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "placet.example",
            "localhost.example",
            "127.0.0.1.example",
            "0.0.0.0",
            "[::]",
            "10.0.0.1",
            "",
            "x.localhost",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }
}
