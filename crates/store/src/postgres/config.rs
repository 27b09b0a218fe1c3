//! Where the database is, and what the store may use of it.
//!
//! Owns the configuration and the reading of `postgres://` addresses, which may name several hosts. Not here: connecting
//! (`connect`). Invariants: a password shows in no error, no Debug and no log; a host that is not this machine is spoken to over
//! TLS that verifies its name, unless the address says otherwise.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr as _;
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgSslMode};

use super::error::OpenError;
use crate::embedded::SyncObserver;

/// How long a node may be silent before another one takes over its work.
const LEASE: Duration = Duration::from_secs(15);
/// The longest that a look-up or a change waits for the database.
const WAIT: Duration = Duration::from_secs(5);
/// The shortest lease: three renewals have to fit in with room to spare.
const LEASE_MIN: Duration = Duration::from_millis(300);
/// The longest lease.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(600);
const CONNECTIONS: u32 = 16;
const HOSTS_MAX: usize = 16;
const NODE_BYTES_MAX: usize = 128;

/// The address of a database, `postgres://user:password@host:port,host:port/database?sslmode=verify-full`. Where it names several
/// hosts, the one that takes writes is found by asking them in turn.
#[derive(Clone)]
pub struct DatabaseUrl {
    pub(super) hosts: Vec<PgConnectOptions>,
    shown: String,
}

impl DatabaseUrl {
    /// Reads an address.
    ///
    /// # Errors
    /// [`OpenError::Address`] when it is of another form.
    pub fn parse(text: &str) -> Result<Self, OpenError> {
        let wrong = |why: &str| OpenError::Address { why: why.to_owned() };
        let rest = text
            .strip_prefix("postgres://")
            .or_else(|| text.strip_prefix("postgresql://"))
            .ok_or_else(|| wrong("it has to begin with `postgres://`"))?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, tail) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let hosts: Vec<&str> = hosts.split(',').collect();
        if hosts.len() > HOSTS_MAX {
            return Err(wrong("it names too many hosts"));
        }
        let says_ssl = tail.contains("sslmode=") || tail.contains("ssl-mode=");
        let hosts = hosts
            .into_iter()
            .map(|host| {
                // What the library says about a part it cannot read may quote it, password and all.
                let options = PgConnectOptions::from_str(&format!(
                    "postgres://{login}{host}{tail}"
                ))
                .map_err(|_quotes_the_address| {
                    wrong(
                        "a part of it cannot be read; special characters have to be written as %XX",
                    )
                })?;
                Ok(settle(options, says_ssl))
            })
            .collect::<Result<Vec<_>, OpenError>>()?;
        let shown = shown(&hosts);
        Ok(Self { hosts, shown })
    }
}

/// What the store sets for each connection.
fn settle(options: PgConnectOptions, says_ssl: bool) -> PgConnectOptions {
    let is_here = options.get_socket().is_some() || is_loopback(options.get_host());
    let options = if says_ssl {
        options
    } else if is_here {
        options.ssl_mode(PgSslMode::Disable)
    } else {
        options.ssl_mode(PgSslMode::VerifyFull)
    };
    options.application_name("placet").extra_float_digits(None)
}

fn is_loopback(host: &str) -> bool {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    host.starts_with('/')
        || host == "localhost"
        || bare.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn shown(hosts: &[PgConnectOptions]) -> String {
    let places: Vec<String> = hosts.iter().map(name).collect();
    let database = hosts.first().and_then(PgConnectOptions::get_database).unwrap_or_default();
    format!("{}/{database}", places.join(","))
}

/// A host, as it is named in messages.
pub(super) fn name(host: &PgConnectOptions) -> String {
    match host.get_socket() {
        Some(socket) => format!("{}:{}", socket.display(), host.get_port()),
        None => format!("{}:{}", host.get_host(), host.get_port()),
    }
}

impl fmt::Display for DatabaseUrl {
    /// The hosts and the database; never who logs in, nor with what.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DatabaseUrl({})", self.shown)
    }
}

/// How this node uses the database.
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    /// Where it is.
    pub url: DatabaseUrl,
    /// The name of this node, unlike that of every other node: a start under a name fences the process that ran under it before.
    pub node: String,
    /// How long this node may be silent before another one takes over its work.
    pub lease: Duration,
    /// The longest that a look-up or a change waits: for a connection, for a lock, for the database to return.
    pub wait: Duration,
    /// The connections used for look-ups; changes have one of their own, the lease another.
    pub connections_max: u32,
    /// A folder outside of the database, in which the store notes what the database had acknowledged, so that the next start recognises an
    /// old copy put in the database's place.
    pub witness: Option<PathBuf>,
    /// Called at every commit of the database.
    pub on_sync: Option<SyncObserver>,
}

impl PostgresConfig {
    /// The defaults: a lease of 15 seconds, waits of 5 seconds, 16 connections, no witness.
    pub fn new(url: DatabaseUrl, node: impl Into<String>) -> Self {
        Self {
            url,
            node: node.into(),
            lease: LEASE,
            wait: WAIT,
            connections_max: CONNECTIONS,
            witness: None,
            on_sync: None,
        }
    }

    pub(super) fn check(&self) -> Result<(), OpenError> {
        let wrong = |why: &str| Err(OpenError::Config { why: why.to_owned() });
        if self.node.is_empty() || self.node.len() > NODE_BYTES_MAX || self.node.contains('\0') {
            return wrong("the node needs a name of 1 to 128 bytes");
        }
        if self.lease < LEASE_MIN || self.lease > LEASE_MAX {
            return wrong("the lease has to be 300 ms to 10 minutes long");
        }
        if self.wait.is_zero() || self.connections_max == 0 {
            return wrong("the longest wait and the number of connections have to be above zero");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        DatabaseUrl::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn an_address_may_name_several_hosts_and_shows_no_password() {
        let text = "postgres://ada:s3cr%40t@db1:5433,db2,127.0.0.1:5434/ledger?sslmode=require";
        let url = DatabaseUrl::parse(text).unwrap();
        assert_eq!(url.to_string(), "db1:5433,db2:5432,127.0.0.1:5434/ledger");
        let shown = format!("{url:?} {:?}", PostgresConfig::new(url.clone(), "node-1"));
        assert!(!shown.contains("s3cr") && !shown.contains("ada"), "{shown}");
        assert_eq!(url.hosts[1].get_host(), "db2");
        assert!(matches!(url.hosts[0].get_ssl_mode(), PgSslMode::Require));
    }

    #[test]
    fn an_address_that_cannot_be_read_is_refused_without_quoting_it() {
        for text in [
            "mysql://ada:s3cret@db/ledger",
            "postgres://ada:s3cret@db:port/ledger",
            "postgres://ada:s3cret@db/ledger?sslmode=perhaps",
            "s3cret",
        ] {
            let said = error(text);
            assert!(said.contains("postgres://") || said.contains("%XX"), "{said}");
            assert!(!said.contains("s3cret"), "{said}");
        }
    }

    #[test]
    fn a_host_elsewhere_is_verified_unless_the_address_says_otherwise() {
        let mode = |text: &str| DatabaseUrl::parse(text).unwrap().hosts[0].get_ssl_mode();
        assert!(matches!(mode("postgres://ada@db.example/ledger"), PgSslMode::VerifyFull));
        assert!(matches!(mode("postgres://ada@db/ledger?sslmode=disable"), PgSslMode::Disable));
        for here in ["localhost", "127.0.0.1:5432", "[::1]:5432"] {
            let text = format!("postgres://ada@{here}/ledger");
            assert!(matches!(mode(&text), PgSslMode::Disable), "{here}");
        }
        let socket = mode("postgres://ada@%2Frun%2Fpostgresql:5432/ledger");
        assert!(matches!(socket, PgSslMode::Disable));
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused() {
        let url = DatabaseUrl::parse("postgres://ada@localhost/ledger").unwrap();
        let sound = PostgresConfig::new(url, "node-1");
        sound.check().unwrap();
        for wrong in [
            PostgresConfig { node: String::new(), ..sound.clone() },
            PostgresConfig { node: "n".repeat(129), ..sound.clone() },
            PostgresConfig { lease: Duration::from_millis(299), ..sound.clone() },
            PostgresConfig { lease: Duration::from_secs(601), ..sound.clone() },
            PostgresConfig { wait: Duration::ZERO, ..sound.clone() },
            PostgresConfig { connections_max: 0, ..sound.clone() },
        ] {
            assert!(matches!(wrong.check(), Err(OpenError::Config { .. })), "{wrong:?}");
        }
    }
}
