//! The store on disk: opening it for the engine, and the offline commands on it.
//!
//! Owns where things lie in the data folder. Invariant: an offline command takes the lock on the store, or names who holds it
//!.

use std::{
    fmt,
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use placet_store::{
    embedded::{
        self, EmbeddedConfig, EmbeddedStore, IndexFate, IndexVerdict, OpenError, RecoveryReport,
        SyncObserver, VerifyReport,
    },
    journal::JournalError,
};
use placet_telemetry::metrics::Metrics;
use placet_types::clock::Clock;
use rustix::fs::FlockOperation;
use serde_json::json;

use crate::{
    config::load::Config,
    failure::{Exit, Failure, Outcome},
    output,
};

/// The store's folder.
pub(crate) fn store_folder(data: &Path) -> PathBuf {
    data.join("ledger")
}

/// The journal's folder: the truth and the audit chain.
pub(crate) fn journal_folder(data: &Path) -> PathBuf {
    store_folder(data).join("journal")
}

/// The folder of parked calls, evidence and results.
pub(crate) fn content_folder(data: &Path) -> PathBuf {
    store_folder(data).join("content")
}

/// An opened store.
#[derive(Debug)]
pub(crate) struct Opened {
    /// The store.
    pub(crate) store: Arc<EmbeddedStore>,
    /// What opening found, in words.
    pub(crate) report: String,
}

/// Opens the store: takes the lock, verifies the journal, brings the index up to it.
///
/// # Errors
/// [`Failure`] when somebody else holds it, or it is damaged.
pub(crate) async fn open(
    (data, free_space_watermark_bytes): (&Path, u64),
    clock: Arc<dyn Clock>,
    metrics: Metrics,
) -> Result<Opened, Failure> {
    let folder = store_folder(data);
    let opening = tokio::task::spawn_blocking(move || {
        let on_sync =
            SyncObserver::new(move |entries, took| metrics.record_journal_sync(entries, took));
        let config = EmbeddedConfig {
            on_sync: Some(on_sync),
            free_space_watermark_bytes,
            ..EmbeddedConfig::new(folder)
        };
        EmbeddedStore::open(config, clock)
    });
    let opened =
        opening.await.map_err(|error| Failure::new("the store cannot be opened").because(error))?;
    let (store, report) = opened.map_err(|error| refused(&error))?;
    Ok(Opened { store, report: in_words(&report) })
}

/// What a person can do about a store that does not open.
fn refused(error: &OpenError) -> Failure {
    let failure = Failure::new("the store cannot be opened").because(error);
    let OpenError::Journal(journal) = error else { return failure };
    if matches!(journal, JournalError::Locked { .. }) {
        return failure.try_this("stop the other process, or use another data folder with --data");
    }
    if matches!(journal, JournalError::Corrupt { .. } | JournalError::Forgotten { .. }) {
        return failure
            .try_this("nothing was changed; `placet audit verify` says exactly what is wrong")
            .try_this("restore the folder from a copy: a ledger that forgets would execute again");
    }
    failure
}

/// What opening found, in a line.
fn in_words(report: &RecoveryReport) -> String {
    let open: Vec<String> =
        report.open.iter().map(|(state, count)| format!("{count} {state}")).collect();
    let open = if open.is_empty() { String::new() } else { format!(", open: {}", open.join(", ")) };
    let torn = if report.torn_bytes == 0 {
        String::new()
    } else {
        format!(", {} bytes of an interrupted append cut off", report.torn_bytes)
    };
    let index = match &report.index {
        IndexFate::Kept => String::new(),
        IndexFate::Rebuilt { why } => format!(", index made anew ({why})"),
    };
    format!(
        "ledger: {} entries verified, {} records{open}{torn}{index}",
        report.frames, report.effects
    )
}

/// Runs an offline command's work where it may block.
async fn offline<T: Send + 'static>(
    config: &Config,
    work: impl FnOnce(&Path) -> Result<T, OpenError> + Send + 'static,
) -> Result<T, Failure> {
    let folder = store_folder(&config.data);
    if !journal_folder(&config.data).try_exists().unwrap_or(false) {
        return Err(Failure::new(format!("there is no store in `{}`", folder.display()))
            .try_this("name the data folder with --data"));
    }
    let done = tokio::task::spawn_blocking(move || work(&folder)).await;
    done.map_err(|error| Failure::new("the store cannot be looked at").because(error))?
        .map_err(|error| refused(&error))
}

/// Verifies journal, index and content of a stopped Placet.
pub(crate) async fn verify(config: &Config, json: bool) -> Outcome {
    let report = offline(config, embedded::verify).await?;
    let sound = report.is_sound();
    if json {
        output::json(&document(&report));
    } else {
        told(&report);
    }
    Ok(if sound { Exit::Ok } else { Exit::Findings })
}

fn index_in_words(verdict: &IndexVerdict) -> String {
    match verdict {
        IndexVerdict::Agrees => "agrees with the journal".to_owned(),
        IndexVerdict::Behind { entries } => {
            format!("{entries} entries behind; the next start catches up")
        }
        IndexVerdict::Absent => "is not there; the next start makes it".to_owned(),
        IndexVerdict::Disagrees { why } => {
            format!("DISAGREES with the journal ({why}); `placet ledger rebuild` makes it anew")
        }
    }
}

fn told(report: &VerifyReport) {
    output::line(format!(
        "journal  ok: {} entries, head {}",
        report.journal.frames,
        hex::encode(report.journal.head)
    ));
    output::line(format!("index    {}", index_in_words(&report.index)));
    output::line(format!(
        "content  {} pieces named, {} missing (deleted or lost), {} ALTERED",
        report.content.named,
        report.content.missing.len(),
        report.content.altered.len(),
    ));
    for (what, list) in [("missing", &report.content.missing), ("altered", &report.content.altered)]
    {
        for (tenant, digest) in list {
            output::line(format!("  {what}: {digest} of tenant {tenant}"));
        }
    }
}

fn document(report: &VerifyReport) -> serde_json::Value {
    let listed = |list: &[(placet_types::ids::TenantId, placet_types::digest::Digest)]| {
        list.iter()
            .map(|(tenant, digest)| json!({ "tenant": tenant, "digest": digest }))
            .collect::<Vec<_>>()
    };
    json!({
        "ok": report.is_sound(),
        "entries": report.journal.frames,
        "head": hex::encode(report.journal.head),
        "index": index_in_words(&report.index),
        "content": {
            "named": report.content.named,
            "missing": listed(&report.content.missing),
            "altered": listed(&report.content.altered),
        },
    })
}

/// Rebuilds the index of a stopped Placet.
pub(crate) async fn rebuild(config: &Config, json: bool) -> Outcome {
    let report = offline(config, embedded::rebuild).await?;
    if json {
        output::json(
            &json!({ "ok": true, "entries": report.frames, "records": report.effects, "approvals": report.approvals }),
        );
    } else {
        output::line(in_words(&report));
    }
    Ok(Exit::Ok)
}

/// Who holds the lock on the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Holder(Option<String>);

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(pid) => write!(f, "process {pid}"),
            None => f.write_str("another process"),
        }
    }
}

/// Who holds the lock on the store, if anybody does. Changes nothing.
pub(crate) fn lock_holder(data: &Path) -> Option<Holder> {
    let file = File::open(journal_folder(data).join("lock")).ok()?;
    if rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
        return None;
    }
    let mut text = String::new();
    // Without a number in it, it is still held.
    file.take(20).read_to_string(&mut text).unwrap_or_default();
    Some(Holder(Some(text.trim().to_owned()).filter(|pid| !pid.is_empty())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use placet_telemetry::metrics::Metrics;

    use super::{lock_holder, open};
    use crate::clock::SystemClock;

    #[tokio::test]
    async fn a_store_that_is_open_names_its_holder_to_the_doctor_and_to_a_second_process() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(lock_holder(data.path()), None);
        let opened =
            open((data.path(), 1 << 20), Arc::new(SystemClock), Metrics::new()).await.unwrap();
        let holder = lock_holder(data.path()).unwrap();
        assert_eq!(holder.to_string(), format!("process {}", std::process::id()));
        let second = open((data.path(), 1 << 20), Arc::new(SystemClock), Metrics::new())
            .await
            .unwrap_err()
            .to_string();
        assert!(second.contains("in use by process") && second.contains("--data"), "{second}");
        placet_ledger::store::Store::close(opened.store.as_ref()).await.unwrap();
    }
}
