//! Exporting an embedded ledger, and importing an export as one.
//!
//! Owns what is written, in which order, and how an export becomes a data folder. Not here: the form ([`crate::transfer`]).
//! Invariants: an export becomes the same ledger, byte for byte in its chain, and one of a database none; nothing is in place before all of
//! it was read, verified and durable.

use std::fs::File;
use std::io::{BufRead, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use placet_ledger::log::LogEntry;
use placet_types::digest::Digest;

use super::codec::{Stored, decode_value};
use super::identity::importing;
use super::log::LOG;
use super::open::{JOURNAL, OpenError, Opened, journal_config, open};
use super::tree::{Tree, TreeFault};
use super::{EmbeddedConfig, keys, read, trust};
use crate::journal::lock::Lock;
use crate::journal::{Base, Content, Journal, JournalError, Placed};
use crate::seal::Walk;
use crate::transfer::{
    ExportHeader, ExportItem, ExportWriter, ExportedLog, TransferError, TransferSummary,
    read_export,
};

fn refused(error: impl std::fmt::Display) -> TransferError {
    TransferError::Store(error.to_string())
}

fn unopened(error: OpenError) -> TransferError {
    TransferError::Open(error.into())
}

/// Writes everything in a ledger that no process serves as an export. To export one that is served, make a backup first.
///
/// # Errors
/// [`TransferError`]: the ledger cannot be opened, an archived segment is not at hand, contents that it names are lost or altered, or the
/// writing failed.
pub fn export(config: &EmbeddedConfig, out: impl Write) -> Result<TransferSummary, TransferError> {
    let journal = config.directory.join(JOURNAL);
    std::fs::metadata(&journal)
        .map_err(JournalError::io("find the journal", &journal))
        .map_err(|error| unopened(error.into()))?;
    let Opened { journal, tree, base, .. } = open(config, None).map_err(unopened)?;
    archive_is_at_hand(&journal, &base).map_err(OpenError::Journal).map_err(unopened)?;
    let (size, head) = journal.head();
    let log = ExportedLog { log: LOG.to_owned(), size, head: hex::encode(head) };
    let mut writer = ExportWriter::new(out, vec![log])?;
    let mut altered = 0_usize;
    for frame in journal.reader().read_from(1) {
        let frame = frame.map_err(refused)?;
        for placed in &frame.contents {
            match kept_content(&tree, &journal, placed)? {
                Kept::Sound(bytes) => {
                    let (tenant, digest) = (placed.tenant.clone(), placed.digest);
                    let base64 = STANDARD.encode(bytes);
                    writer.put(&ExportItem::Content { tenant, digest, base64 })?;
                }
                Kept::Altered => altered = altered.saturating_add(1),
                Kept::Not => {}
            }
        }
        let entry = Box::new(frame.entry);
        writer.put(&ExportItem::Entry { log: LOG.to_owned(), entry })?;
    }
    // An export of it would look complete elsewhere.
    if altered > 0 {
        return Err(TransferError::Lost { missing: 0, altered });
    }
    each_record(&tree, &mut |item| writer.put(&item))?;
    let (_, summary) = writer.finish()?;
    trust::close(&tree, &config.directory).map_err(refused)?;
    journal.close().map_err(refused)?;
    Ok(summary)
}

/// Everything is exported, so all archived segments have to be at hand.
fn archive_is_at_hand(journal: &Journal, base: &Base) -> Result<(), JournalError> {
    (1..base.segment).try_for_each(|n| journal.reader().files().open_read(n).map(drop))
}

/// The status of a content that came with an entry.
enum Kept {
    Sound(Vec<u8>),
    Altered,
    /// It was deleted, or written again by a later entry.
    Not,
}

fn kept_content(tree: &Tree, journal: &Journal, placed: &Placed) -> Result<Kept, TransferError> {
    let place = read::place(tree, &placed.tenant, placed.digest).map_err(refused)?;
    if place != Some(placed.place) {
        return Ok(Kept::Not);
    }
    let bytes = journal.reader().content(&placed.place).map_err(refused)?;
    Ok(if Digest::of(&bytes) == placed.digest { Kept::Sound(bytes) } else { Kept::Altered })
}

/// Passes every record of the state on.
fn each_record(
    tree: &Tree,
    hand: &mut dyn FnMut(ExportItem) -> Result<(), TransferError>,
) -> Result<(), TransferError> {
    for pair in tree.walk(&[]) {
        let (key, value) = pair.map_err(refused)?;
        if keys::is_record(&key) {
            let stored = decode_value(&key, &value).ok_or(TreeFault::Altered).map_err(refused)?;
            item(&key, &stored).map_err(refused)?.map_or(Ok(()), &mut *hand)?;
        }
    }
    Ok(())
}

/// The record in an export; `None`: it is a message to people, which stays with this ledger.
fn item(key: &[u8], stored: &Stored) -> Result<Option<ExportItem>, TreeFault> {
    Ok(match key.first() {
        Some(&keys::EFFECT) => Some(ExportItem::Record(read::parsed(stored)?)),
        Some(&keys::APPROVAL) => Some(ExportItem::Approval(read::parsed(stored)?)),
        Some(&keys::DIRECTIVE) => Some(ExportItem::Directive(read::parsed(stored)?)),
        Some(&keys::RUN) => Some(ExportItem::Run(read::parsed(stored)?)),
        Some(_) | None => None,
    })
}

/// Makes a ledger of the export of another embedded one, in a folder that does not exist yet or is empty. Until all of it is read, verified
/// and durable it is in a folder next to it.
///
/// # Errors
/// [`TransferError`]: the export is of a database, is not whole, does not agree with itself, or cannot be written. Nothing is in place then.
pub fn import(
    config: &EmbeddedConfig,
    input: impl BufRead,
) -> Result<TransferSummary, TransferError> {
    let target = &config.directory;
    let is_taken = std::fs::read_dir(target).is_ok_and(|mut entries| entries.next().is_some());
    if is_taken {
        return Err(TransferError::Taken(target.clone()));
    }
    let beside = importing(target);
    if beside.try_exists()? {
        take_away(&beside)?;
    }
    let making = EmbeddedConfig { directory: beside.clone(), ..config.clone() };
    let mut import = None;
    let summary = read_export(input, &mut |item| match (item, &mut import) {
        (ExportItem::Header(header), _) => {
            import = Some(Import::begin(&making, header)?);
            Ok(())
        }
        (item, Some(import)) => import.take(item),
        (_, None) => Ok(()),
    })?;
    import.map_or(Ok(()), Import::finish)?;
    check(&making, &summary)?;
    if matches!(target.try_exists(), Ok(true)) {
        std::fs::remove_dir(target)?;
    }
    std::fs::rename(&beside, target)?;
    if let Some(parent) = target.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        config.medium.sync_dir(parent)?;
    }
    Ok(summary)
}

/// Removes what is left of an interrupted import, but not one that another process is making.
fn take_away(beside: &Path) -> Result<(), TransferError> {
    let journal = beside.join(JOURNAL);
    let _lock = match journal.try_exists()? {
        true => Some(Lock::take(&journal).map_err(OpenError::Journal).map_err(unopened)?),
        false => None,
    };
    Ok(std::fs::remove_dir_all(beside)?)
}

/// Opens the new ledger, and compares it with the export.
fn check(config: &EmbeddedConfig, summary: &TransferSummary) -> Result<(), TransferError> {
    let Opened { journal, tree, .. } = open(config, None).map_err(unopened)?;
    for (kind, expected) in [
        (keys::EFFECT, summary.records),
        (keys::APPROVAL, summary.approvals),
        (keys::RUN, summary.runs),
        (keys::DIRECTIVE, summary.directives),
    ] {
        if tree.count(&[kind]).map_err(refused)? != expected {
            return Err(refused("the entries do not come to the records of the export"));
        }
    }
    trust::close(&tree, &config.directory).map_err(refused)?;
    journal.close().map_err(refused)
}

/// A ledger being imported.
struct Import {
    directory: PathBuf,
    journal: Journal,
    /// The journal as the header promises it, and how far it was verified.
    log: ExportedLog,
    walk: Walk,
    /// Contents to write with the next entry.
    contents: Vec<Content>,
    unsynced: usize,
}

/// After how many entries the journal is synced during an import.
const SYNC_ENTRIES: usize = 4096;

impl Import {
    /// Begins the folder of an embedded ledger's export; of another one it makes nothing.
    fn begin(config: &EmbeddedConfig, header: ExportHeader) -> Result<Self, TransferError> {
        let logs: Result<[ExportedLog; 1], _> = header.logs.try_into();
        let log = logs.ok().filter(|[log]| log.log == LOG).ok_or(TransferError::OfDatabase)?;
        let [log] = log;
        let directory = config.directory.clone();
        config.medium.create_dir(&directory)?;
        let journal = Journal::open(journal_config(config)).map_err(refused)?.journal;
        let (walk, contents) = (Walk::new(), Vec::new());
        Ok(Self { directory, journal, log, walk, contents, unsynced: 0 })
    }

    fn take(&mut self, item: ExportItem) -> Result<(), TransferError> {
        match item {
            ExportItem::Content { tenant, digest, base64 } => {
                let bytes = STANDARD.decode(base64).map_err(refused)?;
                if Digest::of(&bytes) != digest {
                    return Err(refused(format!("content `{digest}` is not what its digest says")));
                }
                self.contents.push(Content { tenant, digest, bytes });
                Ok(())
            }
            ExportItem::Entry { entry, .. } => self.entry(&entry),
            // Its entries come to the records, and the header and the end are read elsewhere.
            ExportItem::Header(_)
            | ExportItem::Record(_)
            | ExportItem::Approval(_)
            | ExportItem::Directive(_)
            | ExportItem::Run(_)
            | ExportItem::End(_) => Ok(()),
        }
    }

    fn entry(&mut self, entry: &LogEntry) -> Result<(), TransferError> {
        self.walk.entry(entry).map_err(refused)?;
        let contents = std::mem::take(&mut self.contents);
        self.journal.append_as(entry, &contents).map_err(refused)?;
        self.unsynced = self.unsynced.saturating_add(1);
        if self.unsynced >= SYNC_ENTRIES {
            self.journal.sync().map_err(refused)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn finish(self) -> Result<(), TransferError> {
        // Those of a database follow its records.
        if !self.contents.is_empty() {
            return Err(TransferError::OfDatabase);
        }
        let (size, head) = self.journal.head();
        if (size, hex::encode(head)) != (self.log.size, self.log.head) {
            return Err(refused("the log does not end as the export's header says"));
        }
        self.journal.close().map_err(refused)?;
        Ok(File::open(&self.directory)?.sync_all()?)
    }
}
