//! Backups of a ledger that is served.
//!
//! Owns the folder of a backup: a data folder with the ledger and what was signed of it, without keys. Not here: copying the
//! ledger (`placet-store`). Invariants: one backup at a time, and a limited number of them; an unfinished one is named as such.

use std::{
    fmt, fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use http::StatusCode;
use placet_api::{documents::BackupDocument, problem::Failure};
use placet_ledger::store::Store as _;
use placet_store::{embedded::EmbeddedStore, notary::Notary};
use placet_types::error::{ErrorCode, Refusal};
use tokio::{sync::Mutex, time::Instant};

/// The name of a backup while it is being made.
const UNFINISHED: &str = "unfinished";

/// Makes backups of the embedded ledger.
#[derive(Debug, Clone)]
pub(crate) struct LedgerBackups {
    /// The store; none where records are in a database.
    pub(crate) store: Option<Arc<EmbeddedStore>>,
    /// Signs the log before it is copied.
    pub(crate) notary: Arc<Notary>,
    /// The signed checkpoints.
    pub(crate) sealed: PathBuf,
    /// Where backups go.
    pub(crate) folder: PathBuf,
    /// The minimum time between two requests.
    pub(crate) interval: Duration,
    /// How many are kept.
    pub(crate) kept_max: usize,
    /// When the last one was requested; locked while one is made.
    pub(crate) asked_at: Arc<Mutex<Option<Instant>>>,
}

impl LedgerBackups {
    /// Makes one, unless one was requested a moment ago.
    pub(crate) async fn make(self) -> Result<BackupDocument, Failure> {
        let Some(store) = self.store.clone() else {
            let why = "records are kept in PostgreSQL: back up the database, with `pg_basebackup` or what archives its log";
            let refusal = Refusal::new(ErrorCode::ValidationError, why);
            return Err(Failure::with_status(refusal, StatusCode::NOT_IMPLEMENTED));
        };
        let Ok(mut asked_at) = self.asked_at.try_lock() else {
            let why = "a backup is being made at this moment";
            return Err(Failure::new(Refusal::new(ErrorCode::InProgress, why)));
        };
        let interval = self.interval;
        let wait = asked_at.map_or(Duration::ZERO, |at| interval.saturating_sub(at.elapsed()));
        if !wait.is_zero() {
            let interval = interval.as_secs();
            let why = format!(
                "a backup was asked for less than {interval} s ago (`ledger.backup_interval_s`)"
            );
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            let refusal = Refusal::new(ErrorCode::RateLimited, why);
            return Err(Failure::new(refusal.with_retry_after_ms(wait_ms)));
        }
        *asked_at = Some(Instant::now());
        // The ledger's time: a clock that was set back would name this backup before older ones, which are deleted by name.
        let name = format!("backup-{}", store.now()).replace([':', '.'], "-");
        let beside = self.folder.join(format!("{name}.{UNFINISHED}"));
        let made = self.copy(&store, name.clone(), &beside).await;
        if let Err(error) = &made {
            tracing::error!(%error, "the backup failed");
            // There may be none, if there was no room to begin it.
            drop(fs::remove_dir_all(&beside));
        } else if let Err(error) = delete_old(self.folder.clone(), name, self.kept_max).await {
            tracing::warn!(%error, "old backups could not be deleted");
        }
        made.map_err(|error| {
            let why = format!("the backup could not be made: {error}");
            Failure::new(Refusal::new(ErrorCode::LedgerUnavailable, why.clone()).with_detail(why))
        })
    }

    /// Makes a backup in `beside`, and gives it its `name` once it is complete. A failure names the place.
    async fn copy(
        &self,
        store: &EmbeddedStore,
        name: String,
        beside: &PathBuf,
    ) -> Result<BackupDocument, String> {
        let failed =
            |path: &Path, error: &dyn fmt::Display| format!("`{}`: {error}", path.display());
        // Signed before copying: the copy continues from this checkpoint.
        self.notary.seal().await.map_err(|error| error.to_string())?;
        let ledger = beside.join("ledger");
        prepare(&self.folder, beside).map_err(|error| failed(&self.folder, &error))?;
        let notes = read_notes(&self.sealed).map_err(|error| failed(&self.sealed, &error))?;
        let made = store.backup(&ledger).await.map_err(|error| failed(&ledger, &error))?;
        write_notes(&ledger.join("sealed"), notes).map_err(|error| failed(&ledger, &error))?;
        // The name promises a complete backup, so the content is made durable first.
        [&ledger, beside]
            .into_iter()
            .try_for_each(|folder| sync_folder(folder))
            .map_err(|error| failed(beside, &error))?;
        let complete = self.folder.join(&name);
        fs::rename(beside, &complete).map_err(|error| failed(&complete, &error))?;
        sync_folder(&self.folder).map_err(|error| failed(&self.folder, &error))?;
        Ok(BackupDocument {
            folder: name,
            seq: made.seq,
            head: hex::encode(made.head),
            bytes: made.bytes,
        })
    }
}

/// Deletes complete backups, the oldest first, until only the allowed number is left. Nothing else in the folder is touched, and `newest`
/// stays, whatever the names of the others say about time.
async fn delete_old(folder: PathBuf, newest: String, kept_max: usize) -> io::Result<()> {
    let deleting = tokio::task::spawn_blocking(move || {
        let mut complete = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            let name = entry.file_name();
            let is_old = name.to_str().is_some_and(|name| is_backup(name) && name != newest);
            if is_old && entry.file_type()?.is_dir() {
                complete.push(entry.path());
            }
        }
        // Names sort by age.
        complete.sort_unstable();
        let over = complete.len().saturating_sub(kept_max.saturating_sub(1));
        complete.iter().take(over).try_for_each(fs::remove_dir_all)
    });
    deleting.await.map_err(io::Error::other)?
}

/// Whether a folder is named as a complete backup is.
fn is_backup(name: &str) -> bool {
    let form = "backup-0000-00-00T00-00-00-000Z";
    let fits = |(found, wanted): (char, char)| match wanted {
        '0' => found.is_ascii_digit(),
        wanted => found == wanted,
    };
    name.chars().count() == form.len() && name.chars().zip(form.chars()).all(fits)
}

fn prepare(folder: &Path, beside: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    fs::DirBuilder::new().mode(0o700).create(beside)
}

fn read_notes(sealed: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let mut notes = Vec::new();
    for entry in fs::read_dir(sealed)? {
        let path = entry?.path();
        if let Some(name) =
            path.file_name().filter(|_| path.extension().is_some_and(|e| e == "note"))
        {
            notes.push((PathBuf::from(name), fs::read(&path)?));
        }
    }
    Ok(notes)
}

fn write_notes(folder: &Path, notes: Vec<(PathBuf, Vec<u8>)>) -> io::Result<()> {
    fs::create_dir(folder)?;
    for (name, note) in notes {
        let path = folder.join(name);
        fs::write(&path, note)?;
        fs::File::open(&path)?.sync_all()?;
    }
    sync_folder(folder)
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    fs::File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc, time::Duration};

    use placet_ledger::{
        audit::{AuditEvent, AuditKind},
        proof::note::NoteName,
        store::{Admission, Changes, Durability, Store as _},
    };
    use placet_store::{
        embedded::{EmbeddedConfig, EmbeddedStore},
        notary::Notary,
        seal::SealKey,
    };
    use placet_testkit::clock::TestClock;

    use placet_types::error::ErrorCode;

    use super::LedgerBackups;

    const NOON: i64 = 1_800_000_000_000;
    const DAY: i64 = 86_400_000;

    async fn opened(data: &std::path::Path, now_ms: i64) -> Arc<EmbeddedStore> {
        let config = EmbeddedConfig {
            free_space_watermark_bytes: 1 << 20,
            ..EmbeddedConfig::new(data.join("ledger"))
        };
        let (store, _) = EmbeddedStore::open(config, TestClock::at(now_ms)).unwrap();
        let audit = vec![AuditEvent::new(AuditKind::Security)];
        let changes = Changes { audit, ..Changes::new(Durability::Synced, Admission::Completion) };
        store.commit(changes).await.unwrap();
        store
    }

    fn backups(data: &std::path::Path, store: &Arc<EmbeddedStore>) -> LedgerBackups {
        let name = NoteName::new("placet.example").unwrap();
        let key = Arc::new(SealKey::from_seed(name.clone(), &[7; 32]));
        let sealed = data.join("ledger").join("sealed");
        fs::create_dir_all(&sealed).unwrap();
        let log = Arc::<EmbeddedStore>::clone(store);
        LedgerBackups {
            store: Some(Arc::clone(store)),
            notary: Arc::new(Notary::new(key, name, log, &sealed)),
            sealed,
            folder: data.join("backups"),
            interval: Duration::ZERO,
            kept_max: 2,
            asked_at: Arc::default(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn backup_made_after_clock_went_back_is_the_newest() {
        let data = tempfile::tempdir().unwrap();
        let store = opened(data.path(), NOON).await;
        store.close().await.unwrap();
        drop(store);
        // One of a minute before, and one of a clock that was ahead of every entry.
        let (old, ahead) = ("backup-2027-01-15T07-59-00-000Z", "backup-2099-01-01T00-00-00-000Z");
        for name in [old, ahead] {
            fs::create_dir_all(data.path().join("backups").join(name)).unwrap();
        }
        let store = opened(data.path(), NOON - 3 * DAY).await;
        let made = backups(data.path(), &store).make().await.unwrap().folder;
        assert!(made.as_str() > old, "{made}");
        let left = |name: &str| data.path().join("backups").join(name).is_dir();
        assert!(left(&made) && left(ahead) && !left(old));
        store.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn failed_backup_names_its_folder() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("backups"), "a file").unwrap();
        let store = opened(data.path(), NOON).await;
        let failed = backups(data.path(), &store).make().await.unwrap_err();
        let (document, folder) = (failed.document(), data.path().join("backups"));
        assert_eq!(document.error_code, ErrorCode::LedgerUnavailable);
        assert!(document.detail.contains(&folder.display().to_string()), "{document:?}");
        // The log gets the reason too.
        assert!(format!("{failed:?}").contains("detail: Some(\"the backup could not be made: "));
        store.close().await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn refused_backup_has_the_status_of_its_reason() {
        let data = tempfile::tempdir().unwrap();
        let store = opened(data.path(), NOON).await;
        let backups =
            LedgerBackups { interval: Duration::from_secs(60), ..backups(data.path(), &store) };
        let status = async |backups: &LedgerBackups| {
            backups.clone().make().await.map_or_else(|failed| failed.document().status, |_| 200)
        };
        let busy = backups.asked_at.lock().await;
        assert_eq!(status(&backups).await, 409);
        drop(busy);
        assert_eq!(status(&backups).await, 200);
        assert_eq!(status(&backups).await, 429);
        assert_eq!(status(&LedgerBackups { store: None, ..backups }).await, 501);
        store.close().await.unwrap();
    }
}
