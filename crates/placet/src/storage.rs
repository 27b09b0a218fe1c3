//! The store: opening the one that is configured for the engine.
//!
//! Owns the layout of the data folder. Not here: work on a folder that no process serves ([`offline`]). Invariant: a
//! process that finds a store in use is told which one holds it.

pub(crate) mod offline;
pub(crate) mod transfer;

use std::{
    fmt,
    fs::File,
    io::{self, Read as _},
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
};

use placet_ledger::{log::AuditLog, store::Store};
use placet_store::{
    embedded::{
        self, EmbeddedConfig, EmbeddedStore, OpenError, RecoveryReport, StateFate, SyncObserver,
    },
    journal::{JournalError, Lock},
    postgres::{self, PostgresConfig, PostgresStore},
    sessions::LocalSessions,
};
use placet_telemetry::metrics::Metrics;
use placet_types::{clock::Clock, digest::Digest, sessions::SessionStore};
use rustix::fs::FlockOperation;

use crate::{
    config::{ledger::Choice, load::Config},
    environment::Environment,
    failure::{Attempted as _, Failure},
    output,
};

/// The store's folder.
pub(crate) fn store_folder(data: &Path) -> PathBuf {
    data.join("ledger")
}

/// The journal's folder: the truth and the audit chain, with held calls, evidence and results.
pub(crate) fn journal_folder(data: &Path) -> PathBuf {
    store_folder(data).join("journal")
}

/// What this folder knows of the database that it is or was a node of.
pub(crate) fn witness_folder(data: &Path) -> PathBuf {
    store_folder(data).join("witness")
}

/// The folder of the console's sessions, where no database keeps them.
fn session_folder(data: &Path) -> PathBuf {
    data.join("console").join("sessions")
}

/// Resolves when a store has failed.
pub(crate) type Died = Pin<Box<dyn Future<Output = String> + Send>>;

/// An opened store, of either kind.
pub(crate) struct Opened {
    /// The store.
    pub(crate) store: Arc<dyn Store>,
    /// Its audit log.
    pub(crate) log: Arc<dyn AuditLog>,
    /// Sessions of the console, kept with it.
    pub(crate) sessions: Arc<dyn SessionStore>,
    /// The same store, if it is the embedded one.
    pub(crate) embedded: Option<Arc<EmbeddedStore>>,
    /// Resolves with the reason when the store has failed.
    pub(crate) died: Died,
    /// What opening found, as text.
    pub(crate) report: String,
    /// Keeps other nodes from the data folder while it is held; the embedded store has a lock of its own.
    pub(crate) lock: Option<Lock>,
}

impl fmt::Debug for Opened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opened").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Which store this process uses.
pub(crate) fn choice(config: &Config, data: &Path) -> Result<Choice, Failure> {
    let choice = config.ledger.choice(&node_name(data));
    choice.map_err(|why| Failure::usage("the ledger cannot be used").because(why))
}

/// The name of this process among those that share a database: the same at every start on this folder of this machine.
fn node_name(data: &Path) -> String {
    let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    let digest = Digest::of(data.as_os_str().as_encoded_bytes());
    let host = Environment::host_name().unwrap_or_else(|| "node".to_owned());
    let host: String = host.chars().take(64).collect();
    let folder: String = hex::encode(digest.as_bytes()).chars().take(8).collect();
    format!("{host}-{folder}")
}

/// Opens the store that is configured.
pub(crate) async fn open(
    config: &Config,
    data: &Path,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> Result<Opened, Failure> {
    let on_sync =
        SyncObserver::new(move |entries, took| metrics.record_journal_sync(entries, took));
    match choice(config, data)? {
        Choice::Embedded => {
            check_own(data)?;
            let embedded =
                EmbeddedConfig { on_sync: Some(on_sync), ..embedded_config(config, data) };
            open_embedded(embedded, clock, &session_folder(data)).await
        }
        Choice::Postgres(mut postgres) => {
            // Before the store is opened: an epoch that is then refused would have fenced another start.
            let lock = lock_node(data)?;
            postgres.on_sync = Some(on_sync);
            postgres.witness = Some(witness_folder(data));
            Ok(Opened { lock: Some(lock), ..open_postgres(*postgres).await? })
        }
    }
}

/// The embedded store as configured.
pub(crate) fn embedded_config(config: &Config, data: &Path) -> EmbeddedConfig {
    EmbeddedConfig {
        free_space_watermark_bytes: config.free_space_bytes_min,
        archive: config.ledger.archive.clone(),
        ..EmbeddedConfig::new(store_folder(data))
    }
}

async fn open_embedded(
    config: EmbeddedConfig,
    clock: Arc<dyn Clock>,
    sessions: &Path,
) -> Result<Opened, Failure> {
    let for_sessions = Arc::clone(&clock);
    let opening = tokio::task::spawn_blocking(move || EmbeddedStore::open(config, clock));
    let opened =
        opening.await.map_err(|error| Failure::new("the store cannot be opened").because(error))?;
    let (store, report) = opened.map_err(|error| refused(&error))?;
    // Under the lock of the store: no other process has them.
    let sessions = LocalSessions::open(sessions, for_sessions)
        .attempted(format!("the folder `{}` cannot be used", sessions.display()))?;
    Ok(Opened {
        sessions: Arc::new(sessions),
        died: Box::pin(store.died()),
        log: Arc::<EmbeddedStore>::clone(&store),
        embedded: Some(Arc::clone(&store)),
        store,
        report: in_words(&report),
        lock: None,
    })
}

async fn open_postgres(config: PostgresConfig) -> Result<Opened, Failure> {
    let (url, node) = (config.url.to_string(), config.node.clone());
    let opened = PostgresStore::open(config).await;
    let (store, report) = opened.map_err(|error| refused_by_database(&error))?;
    let fenced = match report.fenced.len() {
        0 => String::new(),
        count => format!(", {count} earlier starts of this node taken over from"),
    };
    let report = format!(
        "ledger: {url}, node `{node}`, epoch {}, {}{fenced}{}",
        report.epoch,
        output::counted(report.others, "other node", "other nodes"),
        unknown_in_words(report.indeterminate)
    );
    Ok(Opened {
        died: Box::pin(store.died()),
        log: Arc::<PostgresStore>::clone(&store),
        sessions: Arc::<PostgresStore>::clone(&store),
        embedded: None,
        store,
        report,
        lock: None,
    })
}

/// Takes the data folder of a node. The lock is not in the witness folder, whose presence says that the node was given an epoch.
fn lock_node(data: &Path) -> Result<Lock, Failure> {
    Lock::take(data).map_err(|error| refused(&OpenError::Journal(error)))
}

/// What a person can do about a store that does not open.
pub(crate) fn refused(error: &OpenError) -> Failure {
    let failure = Failure::new("the store cannot be opened").because(error);
    if let OpenError::UnfinishedImport { .. } = error {
        return failure.try_this(
            "run `placet ledger import` again: an empty ledger would do everything once more",
        );
    }
    if matches!(error, OpenError::State(_)) {
        return failure.try_this("`placet ledger fsck --rebuild` makes the state from the journal");
    }
    if let OpenError::Refused(source) | OpenError::Journal(JournalError::Io { source, .. }) = error
        && let Some(todo) = on_disk(source.kind())
    {
        return failure.try_this(todo);
    }
    let OpenError::Journal(journal) = error else { return failure };
    if matches!(journal, JournalError::Locked { .. }) {
        return failure.try_this("stop the other process, or use another data folder with --data");
    }
    if let JournalError::Corrupt { segment, .. } = journal {
        let what =
            if *segment > 0 { "that segment, in the data folder or in the archive," } else { "it" };
        return failure
            .try_this("nothing was changed; `placet audit verify` says exactly what is wrong")
            .try_this(format!(
                "restore {what} from the newest copy: a ledger that forgets would execute again"
            ));
    }
    if matches!(journal, JournalError::Forgotten { .. }) {
        return failure.try_this(
            "nothing was changed: restore the newest copy of the folder, since what the missing entries did would be executed again",
        );
    }
    if matches!(journal, JournalError::Archived { .. }) {
        return failure
            .try_this("put the segments back into the archive, or name it under `ledger.archive`");
    }
    failure
}

/// What a person can do about an answer of the operating system.
fn on_disk(refusal: io::ErrorKind) -> Option<&'static str> {
    let of_kind = [
        (
            io::ErrorKind::StorageFull,
            "make room: a start takes the space of a whole segment of the journal at once",
        ),
        (
            io::ErrorKind::PermissionDenied,
            "run this as the user to whom the data folder belongs, as `placet serve` runs",
        ),
        (io::ErrorKind::NotADirectory, "name the data folder with --data"),
    ];
    of_kind.into_iter().find(|(kind, _)| *kind == refusal).map(|(_, todo)| todo)
}

/// Refuses a data folder whose ledger is not whole: an interrupted backup or import.
pub(crate) fn check_finished(data: &Path) -> Result<(), Failure> {
    embedded::check_finished(&store_folder(data)).map_err(|error| refused(&error))
}

/// Refuses the ledger in a data folder that is or was a node of a database: what was executed there is not in it.
pub(crate) fn check_own(data: &Path) -> Result<(), Failure> {
    let witness = witness_folder(data);
    if matches!(witness.try_exists(), Ok(false)) {
        return Ok(());
    }
    Err(Failure::new(format!("the ledger in `{}` is not used", store_folder(data).display()))
        .because("this folder is or was a node of a database, and what was executed there since would be executed again")
        .try_this("name the database with --ledger, or under `ledger.store`")
        .try_this(format!("or, if nothing was executed there, delete `{}`", witness.display())))
}

/// The same for a database. When another node is in the way or the connection was lost, `placet doctor` would find nothing.
fn refused_by_database(error: &postgres::OpenError) -> Failure {
    let failure = Failure::new("the store cannot be opened").because(error);
    if matches!(error, postgres::OpenError::LockTimeout { .. }) {
        return failure.try_this(
            "start again: a node that fell silent is let go of within its `lease_ms`; a session that still holds it then has to be ended \
             by an administrator of the database",
        );
    }
    if matches!(error, postgres::OpenError::Lost { .. }) {
        return failure.try_this("start again");
    }
    failure.try_this("`placet doctor` says what the database lacks")
}

/// How many calls wait for a person to say what became of them.
fn unknown_in_words(count: u64) -> String {
    match count {
        0 => String::new(),
        count => {
            format!(
                ", {count} with an unknown outcome (`placet ledger list --state indeterminate`)"
            )
        }
    }
}

/// What opening found, in a line.
fn in_words(report: &RecoveryReport) -> String {
    let open: Vec<String> =
        report.open.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let open = if open.is_empty() { String::new() } else { format!(", open: {}", open.join(", ")) };
    let unknown = unknown_in_words(report.indeterminate);
    let torn = if report.torn_bytes == 0 {
        String::new()
    } else {
        format!(", {} bytes of an interrupted append cut off", report.torn_bytes)
    };
    let state = match &report.state {
        StateFate::Kept => String::new(),
        StateFate::Rebuilt { why } => format!(", state rebuilt ({why})"),
    };
    format!("ledger: {} entries{open}{unknown}{torn}{state}", report.frames)
}

/// Who holds the lock on the store or on the folder of a node, if anybody does. Changes nothing.
pub(crate) fn lock_holder(data: &Path) -> Option<String> {
    [journal_folder(data), data.to_owned()].iter().find_map(|folder| holder_in(folder))
}

fn holder_in(folder: &Path) -> Option<String> {
    let file = File::open(folder.join("lock")).ok()?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    // Even without a number in the file, the lock is held.
    file.take(20).read_to_string(&mut text).unwrap_or_default();
    Some(match text.trim() {
        "" => "another process".to_owned(),
        pid => format!("process {pid}"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use placet_store::{embedded::EmbeddedConfig, postgres::OpenError};

    use super::{
        lock_holder, lock_node, node_name, open_embedded, refused_by_database, store_folder,
    };
    use crate::clock::SystemClock;

    #[tokio::test]
    async fn a_store_that_is_open_names_its_holder_to_the_doctor_and_to_a_second_process() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(lock_holder(data.path()), None);
        let sessions = data.path().join("sessions");
        let open = || {
            let config = EmbeddedConfig {
                free_space_watermark_bytes: 1 << 20,
                ..EmbeddedConfig::new(store_folder(data.path()))
            };
            open_embedded(config, Arc::new(SystemClock), &sessions)
        };
        let opened = open().await.unwrap();
        let holder = lock_holder(data.path()).unwrap();
        assert_eq!(holder, format!("process {}", std::process::id()));
        let second = open().await.unwrap_err().to_string();
        assert!(second.contains("in use by process") && second.contains("--data"), "{second}");
        opened.store.close().await.unwrap();
    }

    #[test]
    fn anyone_who_is_held_up_by_another_session_is_told_to_start_again_and_not_what_the_database_lacks()
     {
        let (what, why) = ("give this node an epoch", "process 7 holds it".to_owned());
        for error in [
            OpenError::LockTimeout { what, why: why.clone() },
            OpenError::Lost { what, why: why.clone() },
        ] {
            let remedy = refused_by_database(&error).remedy();
            assert!(remedy.contains("start again") && !remedy.contains("doctor"), "{remedy}");
        }
        let remedy = refused_by_database(&OpenError::Refused { what, why }).remedy();
        assert!(remedy.contains("`placet doctor`"), "{remedy}");
    }

    #[test]
    fn second_node_on_one_data_folder_is_refused() {
        let data = tempfile::tempdir().unwrap();
        let first = lock_node(data.path()).unwrap();
        let own = format!("process {}", std::process::id());
        let second = lock_node(data.path()).unwrap_err().to_string();
        assert!(second.contains(&own) && second.contains("--data"), "{second}");
        assert_eq!(lock_holder(data.path()), Some(own));
        drop(first);
        drop(lock_node(data.path()).unwrap());
    }

    #[test]
    fn a_node_has_the_same_name_at_every_start_and_another_one_for_another_folder() {
        let folder = std::path::Path::new("/srv/placet");
        assert_eq!(node_name(folder), node_name(folder));
        assert_ne!(node_name(folder), node_name(std::path::Path::new("/srv/other")));
    }
}
