//! Connections: finding the host that takes writes, and refusing a server that may lose what it acknowledges.
//!
//! Owns making connections that are fit for use. Not here: who keeps them (`pool`, `writer`, `lease`). Invariant: no connection is returned
//! without limits (`limits`), or before its server has been asked whether it takes writes and keeps them.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection, PgRow};
use sqlx::{ConnectOptions as _, Row as _, query, raw_sql};
use tokio::time::{Instant, timeout};

use placet_ledger::store::StoreError;

use super::config::{DatabaseUrl, name};
use super::error::{OpenError, Trouble, said};
use super::limits;

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Look-ups, and the sessions of the console.
    Reading,
    /// Transactions, which have limits of their own.
    Writing,
}

/// What the server says about itself; a setting that it does not have is `None`.
const ASK: &str = "SELECT pg_is_in_recovery() AS in_recovery, \
     current_setting('default_transaction_read_only') AS read_only, \
     current_setting('fsync', true) AS fsync, \
     current_setting('full_page_writes', true) AS full_page_writes, \
     current_setting('synchronous_commit', true) AS synchronous_commit, \
     current_setting('synchronous_standby_names', true) AS standbys, \
     current_setting('zero_damaged_pages', true) AS zero_damaged_pages, \
     current_setting('server_encoding', true) AS server_encoding, \
     current_setting('server_version_num', true) AS version";

/// When a caller gives up on a host after this long, other hosts are asked first.
const SLOW: Duration = Duration::from_millis(50);

/// The oldest supported server version.
const VERSION_MIN: u32 = 130_000;

/// Makes connections.
#[derive(Debug)]
pub(super) struct Connector {
    url: DatabaseUrl,
    wait: Duration,
    /// The host that took writes last.
    last: AtomicUsize,
    /// The host to ask first: the last one, unless a caller gave up waiting for it.
    first: AtomicUsize,
    /// Counts changes of the host: earlier connections must not be used again.
    generation: AtomicU64,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum ConnectError {
    /// No host takes writes at the moment.
    Away(String),
    /// The host that takes writes must not be used.
    Unfit(OpenError),
}

impl ConnectError {
    /// What it means for a store in use: a role that cannot log in at the moment is treated like a server that is away; a server that would
    /// lose what it acknowledges is not used any more.
    pub(super) fn in_use(self) -> Result<String, OpenError> {
        match self {
            Self::Away(why) => Ok(why),
            Self::Unfit(OpenError::Refused { why, .. }) => Ok(why),
            Self::Unfit(error) => Err(error),
        }
    }

    pub(super) fn into_open(self, url: &DatabaseUrl) -> OpenError {
        match self {
            Self::Away(why) => OpenError::Unreachable { hosts: url.to_string(), why },
            Self::Unfit(error) => error,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Away(why) => f.write_str(why),
            Self::Unfit(error) => error.fmt(f),
        }
    }
}

impl From<ConnectError> for StoreError {
    fn from(error: ConnectError) -> Self {
        Self::Unreachable(error.to_string())
    }
}

impl Connector {
    pub(super) fn new(url: DatabaseUrl, wait: Duration) -> Self {
        Self {
            url,
            wait,
            last: AtomicUsize::new(0),
            first: AtomicUsize::new(0),
            generation: AtomicU64::new(0),
        }
    }

    pub(super) const fn url(&self) -> &DatabaseUrl {
        &self.url
    }

    /// How long a statement waits at most.
    pub(super) const fn wait(&self) -> Duration {
        self.wait
    }

    /// Connections of an earlier generation lead to a host that takes no writes any more.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// A connection to the host that takes writes: the last one that did, or else the first that says so.
    pub(super) async fn connect(&self, purpose: Purpose) -> Result<PgConnection, ConnectError> {
        let hosts = &self.url.hosts;
        let first = self.first.load(Ordering::Acquire);
        let (mut reasons, mut unfit) = (Vec::new(), None);
        for step in 0..hosts.len() {
            let place = first.wrapping_add(step).checked_rem(hosts.len()).unwrap_or(0);
            let Some(host) = hosts.get(place) else { continue };
            let next = place.wrapping_add(1);
            let mut asked =
                Asked { first: &self.first, next, at: Instant::now(), has_answered: false };
            let answer = timeout(self.wait, self.connect_to(host, purpose)).await;
            asked.has_answered = answer.is_ok();
            drop(asked);
            match answer {
                Ok(Ok(connection)) => {
                    self.first.store(place, Ordering::Release);
                    if self.last.swap(place, Ordering::AcqRel) != place {
                        self.generation.fetch_add(1, Ordering::AcqRel);
                        tracing::warn!(host = %name(host), "another host of the database takes the writes now");
                    }
                    return Ok(connection);
                }
                // Another host may do better; if none does, this is the error to report.
                Ok(Err(ConnectError::Unfit(error))) => unfit = unfit.or(Some(error)),
                Ok(Err(ConnectError::Away(why))) => reasons.push(format!("{}: {why}", name(host))),
                Err(_elapsed) => {
                    let wait = self.wait.as_millis();
                    reasons.push(format!("{}: no answer within {wait} ms", name(host)));
                }
            }
        }
        match unfit {
            Some(error) => Err(ConnectError::Unfit(error)),
            None => Err(ConnectError::Away(reasons.join("; "))),
        }
    }

    async fn connect_to(
        &self,
        host: &PgConnectOptions,
        purpose: Purpose,
    ) -> Result<PgConnection, ConnectError> {
        let mut connection = host.connect().await.map_err(|error| sort(&error))?;
        // Before anything that could wait: the caller may be gone after that.
        limits::settle(&mut connection, self.wait).await.map_err(|error| sort(&error))?;
        let row = query(ASK).fetch_one(&mut connection).await.map_err(|error| sort(&error))?;
        check_role(&row)?;
        check_settings(&row).map_err(ConnectError::Unfit)?;
        let has_standbys = text(&row, "standbys").is_some_and(|names| !names.trim().is_empty());
        if purpose == Purpose::Reading && has_standbys {
            confirm(&mut connection).await.map_err(|error| sort(&error))?;
        }
        Ok(connection)
    }
}

/// A host being asked. The caller may have less time than the host is given: if it gives up, the next caller begins with the following
/// host, so that a host that never answers cannot block callers with little time.
struct Asked<'a> {
    first: &'a AtomicUsize,
    next: usize,
    at: Instant,
    has_answered: bool,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if !self.has_answered && self.at.elapsed() >= SLOW {
            self.first.store(self.next, Ordering::Release);
        }
    }
}

/// A restarted server shows what it had committed before its synchronous standby had it. A later write that the standby acknowledges proves
/// that the standby has everything visible now (I6). No transaction holds the row it writes: a hung node must not keep the others from
/// reading. It is a single message, so that nobody can be lost half-way.
async fn confirm(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let write = raw_sql("UPDATE placet.confirmations SET times = times + 1 WHERE id = 1");
    match write.execute(connection).await?.rows_affected() {
        0 => Err(sqlx::Error::RowNotFound),
        _ => Ok(()),
    }
}

/// A wrong password or a missing database will not come right by waiting, but another host may have them.
fn sort(error: &sqlx::Error) -> ConnectError {
    match Trouble::of(error) {
        Trouble::Fatal(why) | Trouble::Denied(why) | Trouble::Unkeepable(why) => {
            ConnectError::Unfit(OpenError::Refused { what: "let this node in", why })
        }
        Trouble::Again | Trouble::Busy(_) | Trouble::Away(_) | Trouble::Full => {
            ConnectError::Away(said(error))
        }
    }
}

fn text(row: &PgRow, column: &str) -> Option<String> {
    row.try_get::<Option<String>, _>(column).ok().flatten()
}

fn check_role(row: &PgRow) -> Result<(), ConnectError> {
    if row.try_get::<bool, _>("in_recovery").unwrap_or(true) {
        return Err(ConnectError::Away("it is a standby, which takes no writes".to_owned()));
    }
    if text(row, "read_only").as_deref() != Some("off") {
        return Err(ConnectError::Away(
            "it takes no writes (`default_transaction_read_only` is on)".to_owned(),
        ));
    }
    Ok(())
}

/// What a setting has to be, and what another value would cost.
const SAFE: [(&str, &str, &str); 4] = [
    ("fsync", "on", "a power cut may lose or damage everything; set it to `on`"),
    (
        "full_page_writes",
        "on",
        "a power cut may damage pages that are half written; set it to `on`",
    ),
    ("zero_damaged_pages", "off", "it forgets silently; set it to `off`"),
    ("server_encoding", "UTF8", "names may hold any character; make the database with `UTF8`"),
];

/// Refuses a server that acknowledges what it may lose.
pub(super) fn check_settings(row: &PgRow) -> Result<(), OpenError> {
    let unsafe_setting = |setting, value: &str, why| {
        Err(OpenError::Unsafe { setting, value: value.to_owned(), why })
    };
    for (setting, safe, why) in SAFE {
        if let Some(value) = text(row, setting).filter(|value| value != safe) {
            return unsafe_setting(setting, &value, why);
        }
    }
    let standbys = text(row, "standbys").is_some_and(|names| !names.trim().is_empty());
    match text(row, "synchronous_commit").as_deref() {
        None | Some("on" | "remote_apply") => {}
        Some("local" | "remote_write") if !standbys => {}
        Some(value @ ("local" | "remote_write")) => {
            let why = "a failover may lose what was acknowledged; set it to `on`, since there are synchronous standbys";
            return unsafe_setting("synchronous_commit", value, why);
        }
        Some(value) => {
            let why = "a crash may lose what was acknowledged; set it to `on`, for the server, the database and the role";
            return unsafe_setting("synchronous_commit", value, why);
        }
    }
    let version = text(row, "version").and_then(|version| version.parse::<u32>().ok());
    if let Some(value) = version.filter(|version| *version < VERSION_MIN) {
        return unsafe_setting(
            "server_version_num",
            &value.to_string(),
            "version 13 or later is needed",
        );
    }
    Ok(())
}

/// Asks the server again, since an operator may change its settings at any time.
pub(super) async fn ask_again(
    connection: &mut PgConnection,
) -> Result<Result<(), OpenError>, sqlx::Error> {
    let row = query(ASK).fetch_one(connection).await?;
    Ok(check_settings(&row))
}
