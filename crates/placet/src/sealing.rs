//! The seal of the ledger: its key, and the task that signs checkpoints now and then.
//!
//! Owns when it is signed, and what follows when it cannot be. Not here: how (`placet-store`). Invariant: a log that is not what was signed
//! before is not served.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use placet_engine::engine::Engine;
use placet_ledger::store::StoreError;
use placet_store::{
    embedded::EmbeddedStore,
    notary::{Notary, NotaryError},
    seal::{SealError, SealKey, verify_checkpoint},
};
use placet_types::clock::Clock;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    config::load::Config,
    failure::{Attempted as _, Failure},
    storage::{self, Opened},
};

/// The beginning of the reason when an engine ends because its log does not continue what was signed.
pub(crate) const NOT_AFTER: &str = "the log is not what was signed before";

/// The file of the signing key.
pub(crate) fn key_file(config: &Config, data: &Path) -> PathBuf {
    let own = || storage::store_folder(data).join("seal.key");
    config.ledger.seal_key.clone().unwrap_or_else(own)
}

/// The folder of the last signed checkpoints.
pub(crate) fn sealed_folder(data: &Path) -> PathBuf {
    storage::store_folder(data).join("sealed")
}

/// The notary of an opened store, and the first checkpoint: that the log comes after what was signed last.
pub(crate) async fn notary(
    config: &Config,
    data: &Path,
    opened: &Opened,
) -> Result<Arc<Notary>, Failure> {
    let folder = sealed_folder(data);
    fs::create_dir_all(&folder)
        .attempted(format!("the folder `{}` cannot be made", folder.display()))?;
    let file = key_file(config, data);
    must_be_there(&file, &folder)?;
    let key = SealKey::open_or_create(&file, &config.ledger.deployment);
    let key = key.map_err(|error| unusable(&error))?;
    let deployment = config.ledger.deployment.clone();
    let notary = Arc::new(Notary::new(Arc::new(key), deployment, Arc::clone(&opened.log), folder));
    match notary.seal().await {
        Ok(_) => Ok(notary),
        Err(error) => Err(unsealed(&error, data)),
    }
}

/// A new key is made only where nothing was signed with an old one.
fn must_be_there(key: &Path, sealed: &Path) -> Result<(), Failure> {
    let signed = fs::read_dir(sealed).is_ok_and(|mut entries| entries.next().is_some());
    if !signed || key.try_exists().unwrap_or(true) {
        return Ok(());
    }
    Err(Failure::new(format!("the sealing key `{}` is missing", key.display()))
        .because("checkpoints were signed with it, and a new one would not go on from them")
        .try_this("put it back; it is not part of backups and exports")
        .try_this(format!("or, to go on under a new key, move `{}` away", sealed.display())))
}

/// Whether the key that signed the ledger can be used, or a new one may be made.
pub(crate) fn check_key(config: &Config, data: &Path) -> Result<(), Failure> {
    let file = key_file(config, data);
    must_be_there(&file, &sealed_folder(data))?;
    if matches!(file.try_exists(), Ok(false)) {
        return Ok(());
    }
    let key = SealKey::open(&file).map_err(|error| unusable(&error))?;
    match verify_kept(&key, &sealed_folder(data)) {
        Ok(()) => Ok(()),
        Err(error) => Err(unsealed(&error, data)),
    }
}

fn unusable(error: &SealError) -> Failure {
    let failure = Failure::new("the sealing key cannot be used").because(error);
    if matches!(error, SealError::KeyFile { .. }) {
        return failure.try_this(
            "restore it from a copy: what it signed is checked against it at each start",
        );
    }
    failure
}

/// Whether this key signed the checkpoints that are kept, one of each log. What cannot be listed or read is left to the start.
fn verify_kept(key: &SealKey, sealed: &Path) -> Result<(), NotaryError> {
    let Ok(entries) = fs::read_dir(sealed) else { return Ok(()) };
    for file in entries.flatten().map(|entry| entry.path()) {
        if file.extension().is_some_and(|extension| extension == "note")
            && let Ok(note) = fs::read_to_string(&file)
            && let Err(source) = verify_checkpoint(&note, key.public(), None)
        {
            return Err(NotaryError::Kept { file, source });
        }
    }
    Ok(())
}

fn unsealed(error: &NotaryError, data: &Path) -> Failure {
    let sealed = sealed_folder(data).display().to_string();
    let is_other = matches!(error, NotaryError::Seal(SealError::NotAfter { .. }));
    let what = if is_other { NOT_AFTER } else { "the ledger cannot be sealed" };
    let failure = Failure::new(what).because(error);
    match error {
        NotaryError::Seal(SealError::NotAfter { .. }) => failure
            .try_this("the log was changed, or an old copy was put in its place: `placet audit verify` says more")
            .try_this("restore the newest copy: a ledger that forgets would execute again"),
        NotaryError::Kept { source: SealError::NotSigned { .. }, .. } => failure
            .because("the checkpoints that were signed before are signed with another key")
            .try_this("put the key back that signed them")
            .try_this(format!("or, to go on under this key, move `{sealed}` away and publish the new key")),
        NotaryError::Kept { source: SealError::Log { .. }, .. } => failure
            .because("`ledger.deployment` is another name than before")
            .try_this("set it back")
            .try_this(format!("or, to go on under the new name, move `{sealed}` away")),
        NotaryError::Kept { .. } => failure
            .try_this("restore that file from a copy")
            .try_this(format!("or, after comparing the log with a checkpoint from elsewhere (`placet audit verify --checkpoint`), move `{sealed}` away")),
        NotaryError::Seal(_)
        | NotaryError::Store(_)
        | NotaryError::NoEntry
        | NotaryError::Moved
        | NotaryError::Unread { .. }
        | NotaryError::NoLog(_) => failure,
    }
}

/// What is maintained while the engine runs.
#[derive(Debug)]
pub(crate) struct Tending {
    /// Stopped when the log does not continue what was signed before.
    pub(crate) engine: Engine,
    /// Signs the log.
    pub(crate) notary: Arc<Notary>,
    /// The embedded store, if that is used.
    pub(crate) embedded: Option<Arc<EmbeddedStore>>,
    /// How long segments stay in place, where there is an archive.
    pub(crate) archive_after: Option<Duration>,
    /// The time.
    pub(crate) clock: Arc<dyn Clock>,
}

impl Tending {
    /// Signs, makes snapshots and archives at intervals, until the process ends.
    pub(crate) async fn run(self, every: Duration) {
        if let Some(store) = &self.embedded {
            drop(tokio::spawn(scrub(self.engine.clone(), Arc::clone(store))));
        }
        let mut ticks = interval(every);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        // The first tick is immediate: the start has signed nothing of a log that it has begun itself.
        let mut entries = 0;
        loop {
            ticks.tick().await;
            match self.notary.seal().await {
                Ok(sealed) => {
                    let now = sealed.iter().map(|sealed| sealed.size).fold(0, u64::saturating_add);
                    if now != entries {
                        self.tend().await;
                    }
                    entries = now;
                }
                Err(error @ NotaryError::Seal(SealError::NotAfter { .. })) => {
                    self.engine.die(&format!("{NOT_AFTER}: {error}"));
                    return;
                }
                Err(error) => tracing::warn!(%error, "no checkpoint could be signed"),
            }
        }
    }

    async fn tend(&self) {
        let Some(store) = &self.embedded else { return };
        if let Err(error) = store.snapshot_if_due().await {
            tracing::warn!(%error, "no snapshot of the state could be made");
        }
        let Some(after) = self.archive_after else { return };
        let after = i64::try_from(after.as_millis()).unwrap_or(i64::MAX);
        match store.archive(self.clock.now().plus_ms(after.saturating_neg())).await {
            Ok(archived) if archived.segments > 0 => {
                tracing::info!(segments = archived.segments, "old segments are in the archive");
            }
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "old segments could not be archived"),
        }
    }
}

/// How often the whole journal is verified.
const SCRUB_EVERY: Duration = Duration::from_secs(24 * 3_600);

/// Reads the whole journal, at once and then every day: a start has not read what the state covers.
async fn scrub(engine: Engine, store: Arc<EmbeddedStore>) {
    let mut ticks = interval(SCRUB_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        match store.scrub().await {
            Ok(entries) => tracing::info!(entries, "journal scrub finished"),
            Err(StoreError::Damaged(why)) => {
                engine.die(&format!("the journal is not what was written: {why}"));
                return;
            }
            // Closed, or failed: then it has told the engine, as of any disk that cannot be read.
            Err(StoreError::Stopped(why)) => {
                tracing::info!(why, "journal scrub stopped");
                return;
            }
            Err(error) => tracing::warn!(%error, "journal scrub failed"),
        }
    }
}

/// Signs the end of the log at an orderly stop; a failure is logged, and noticed again at the next start.
pub(crate) async fn at_stop(notary: &Notary) {
    if let Err(error) = notary.seal().await {
        tracing::warn!(%error, "no checkpoint could be signed at the stop");
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use placet_ledger::proof::{TreeHead, checkpoint::Checkpoint, empty_root, note::NoteName};
    use placet_store::seal::{SealKey, sign_checkpoint};
    use placet_types::clock::Timestamp;

    use super::verify_kept;

    #[test]
    fn key_that_did_not_sign_the_checkpoint_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let name = || NoteName::new("placet.example").unwrap();
        let key = |seed: u8| SealKey::from_seed(name(), &[seed; 32]);
        let head = TreeHead { size: 1, root: empty_root() };
        let at = Timestamp::from_ms(0);
        let checkpoint = Checkpoint { origin: name(), head, chain: [1; 32], epoch: 1, at };
        let note = sign_checkpoint(&key(7), &checkpoint).unwrap();
        fs::write(folder.path().join("journal.note"), note.to_string()).unwrap();
        verify_kept(&key(7), folder.path()).unwrap();
        let refused = verify_kept(&key(8), folder.path()).unwrap_err().to_string();
        assert!(refused.contains("journal.note"), "{refused}");
    }
}
