//! Backups of a ledger that is served.
//!
//! Owns the folder of a backup: a data folder with the ledger and what was signed of it, without keys. Not here: copying the
//! ledger (`placet-store`). Invariants: one backup at a time, and a limited number of them; an unfinished one is named as such.

use std::{
    fs, io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::future::BoxFuture;
use placet_api::{
    backups::{BackupError, Backups},
    documents::BackupDocument,
};
use placet_store::{embedded::EmbeddedStore, notary::Notary};
use placet_types::clock::Clock;
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
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
    /// The minimum time between two requests.
    pub(crate) interval: Duration,
    /// How many are kept.
    pub(crate) kept_max: usize,
    /// When the last one was requested; locked while one is made.
    pub(crate) asked_at: Arc<Mutex<Option<Instant>>>,
}

impl Backups for LedgerBackups {
    fn backup(&self) -> BoxFuture<'static, Result<BackupDocument, BackupError>> {
        let backups = self.clone();
        Box::pin(async move { backups.make().await })
    }
}

impl LedgerBackups {
    async fn make(self) -> Result<BackupDocument, BackupError> {
        let Some(store) = self.store.clone() else {
            let why = "records are kept in PostgreSQL: back up the database, with `pg_basebackup` or what archives its log";
            return Err(BackupError::NotHere(why.to_owned()));
        };
        let Ok(mut asked_at) = self.asked_at.try_lock() else { return Err(BackupError::Busy) };
        let interval = self.interval;
        let wait = asked_at.map_or(Duration::ZERO, |at| interval.saturating_sub(at.elapsed()));
        if !wait.is_zero() {
            return Err(BackupError::TooSoon { interval, wait });
        }
        *asked_at = Some(Instant::now());
        let name = format!("backup-{}", self.clock.now()).replace([':', '.'], "-");
        let beside = self.folder.join(format!("{name}.{UNFINISHED}"));
        let made = self.copy(&store, name, &beside).await;
        if made.is_err() {
            // There may be none, if there was no room to begin it.
            drop(fs::remove_dir_all(&beside));
        } else if let Err(error) = delete_old(self.folder.clone(), self.kept_max).await {
            tracing::warn!(%error, "old backups could not be deleted");
        }
        made
    }

    /// Makes a backup in `beside`, and gives it its `name` once it is complete.
    async fn copy(
        &self,
        store: &EmbeddedStore,
        name: String,
        beside: &PathBuf,
    ) -> Result<BackupDocument, BackupError> {
        let failed = |error: &dyn std::fmt::Display| BackupError::Failed(error.to_string());
        // Signed before copying: the copy continues from this checkpoint.
        self.notary.seal().await.map_err(|error| failed(&error))?;
        let ledger = beside.join("ledger");
        prepare(&self.folder, beside).map_err(|error| failed(&error))?;
        let notes = read_notes(&self.sealed).map_err(|error| failed(&error))?;
        let made = store.backup(&ledger).await.map_err(|error| failed(&error))?;
        write_notes(&ledger.join("sealed"), notes).map_err(|error| failed(&error))?;
        // The name promises a complete backup, so the content is made durable first.
        [&ledger, beside]
            .into_iter()
            .try_for_each(|folder| sync_folder(folder))
            .map_err(|error| failed(&error))?;
        fs::rename(beside, self.folder.join(&name)).map_err(|error| failed(&error))?;
        sync_folder(&self.folder).map_err(|error| failed(&error))?;
        Ok(BackupDocument {
            folder: name,
            seq: made.seq,
            head: hex::encode(made.head),
            bytes: made.bytes,
        })
    }
}

/// Deletes complete backups, the oldest first, until only the allowed number is left. Nothing else in the folder is touched.
async fn delete_old(folder: PathBuf, kept_max: usize) -> io::Result<()> {
    let deleting = tokio::task::spawn_blocking(move || {
        let mut complete = Vec::new();
        for entry in fs::read_dir(&folder)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() && entry.file_name().to_str().is_some_and(is_backup) {
                complete.push(entry.path());
            }
        }
        // Names sort by age.
        complete.sort_unstable();
        let over = complete.len().saturating_sub(kept_max);
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
