//! Exporting an embedded ledger, and importing an export as one.
//!
//! Owns what is written, in which order, and how an export becomes a data folder. Not here: the form ([`crate::transfer`]), the logs that
//! came from other stores (`kept`).
//! Invariants: an export of an embedded ledger becomes the same ledger, byte for byte in its chain; one of another store keeps that
//! store's logs as they were, as do the exports of this one, to be verified beside its own; nothing is in place before all of it was read, verified and durable.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use placet_ledger::log::LogEntry;
use placet_ledger::proof::note::NoteName;
use placet_ledger::record::EffectRecord;
use placet_ledger::store::EffectChange;
use placet_types::digest::Digest;

use super::codec::{Entry, Stored, decode_value, encode_imported};
use super::identity::importing;
use super::kept::{IMPORTED, each_kept, kept_logs};
use super::log::LOG;
use super::open::{JOURNAL, OpenError, Opened, journal_config, open};
use super::tree::{Tree, TreeFault};
use super::{EmbeddedConfig, keys, read, trust};
use crate::journal::lock::Lock;
use crate::journal::{Base, Content, Journal, JournalError, Placed};
use crate::seal::{Walk, export_header, export_line};
use crate::transfer::{
    EXPORT_VERSION, ExportHeader, ExportItem, ExportWriter, ExportedLog, TransferError,
    TransferSummary, read_export,
};

pub(super) fn refused(error: impl std::fmt::Display) -> TransferError {
    TransferError::Store(error.to_string())
}

fn unopened(error: OpenError) -> TransferError {
    TransferError::Open(error.into())
}

/// Writes everything in a ledger that no process serves as an export, with the name under which the logs were signed, so that they can be
/// verified elsewhere. To export one that is served, make a backup first.
///
/// # Errors
/// [`TransferError`]: the ledger cannot be opened, an archived segment is not at hand, contents that it names are lost or altered, or the
/// writing failed.
pub fn export(
    config: &EmbeddedConfig,
    deployment: Option<NoteName>,
    out: impl Write,
) -> Result<TransferSummary, TransferError> {
    let journal = config.directory.join(JOURNAL);
    std::fs::metadata(&journal)
        .map_err(OpenError::io("find the journal", &journal))
        .map_err(unopened)?;
    let Opened { journal, tree, base, .. } = open(config, None).map_err(unopened)?;
    archive_is_at_hand(&journal, &base).map_err(OpenError::Journal).map_err(unopened)?;
    let (size, head) = journal.head();
    let log = ExportedLog { log: LOG.to_owned(), size, head: hex::encode(head) };
    let others = kept_logs(&config.directory)?;
    let header = ExportHeader {
        placet_export: EXPORT_VERSION,
        logs: std::iter::once(log).chain(others.iter().map(|kept| kept.log.clone())).collect(),
        deployment,
        kept: others.iter().map(|kept| (kept.log.log.clone(), kept.origin.clone())).collect(),
    };
    let mut writer = ExportWriter::begin(out, header)?;
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
        let entry = Box::new(LogEntry::from(frame));
        writer.put(&ExportItem::Entry { log: LOG.to_owned(), entry })?;
    }
    // An export of it would look complete elsewhere.
    if altered > 0 {
        return Err(TransferError::Lost { missing: 0, altered });
    }
    for kept in &others {
        each_kept(&kept.file, &mut |entry| {
            writer.put(&ExportItem::Entry { log: kept.log.log.clone(), entry: Box::new(entry) })
        })?;
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

/// Makes a ledger of an export, in a folder that does not exist yet or is empty. Until all of it is read, verified and durable it is in a
/// folder next to it. Its own log will be signed under the name `deployment`.
///
/// # Errors
/// [`TransferError`]: the export is not whole, does not agree with itself, holds another log that was signed under the same name, or
/// cannot be written. Nothing is in place then.
pub fn import(
    config: &EmbeddedConfig,
    deployment: Option<&NoteName>,
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
    let mut import = Import::new(&making)?;
    import.own = deployment.map(|deployment| format!("{deployment}/{LOG}"));
    let summary = read_export(input, &mut |item| import.take(item))?;
    import.finish()?;
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
    let counts = tree.meta().counts;
    let expected = (summary.records, summary.approvals, summary.runs, summary.directives);
    if (counts.effects, counts.approvals, counts.runs, counts.directives) != expected {
        return Err(refused("the entries do not come to the records of the export"));
    }
    trust::close(&tree, &config.directory).map_err(refused)?;
    journal.close().map_err(refused)
}

/// A ledger being imported.
struct Import {
    directory: PathBuf,
    journal: Journal,
    /// Contents to write with the next entry, and how many bytes they are.
    contents: Vec<Content>,
    content_bytes: usize,
    /// Whether the log of this name becomes the journal as it is.
    is_verbatim: bool,
    deployment: Option<NoteName>,
    /// The name under which the new log will be signed.
    own: Option<String>,
    /// How the logs were signed that the exporting store kept from others.
    signed_as: BTreeMap<String, NoteName>,
    /// The newest time in the export: no entry of this ledger is dated earlier.
    newest_ms: i64,
    logs: Vec<ExportedLog>,
    /// The log being read, how far it was verified, and where it is kept.
    log: Option<(String, Walk)>,
    kept: Option<BufWriter<File>>,
    ended: Vec<ExportedLog>,
    unsynced: usize,
}

/// After how many bytes contents of another store get an entry of their own.
const CONTENT_BYTES: usize = 8 << 20;
/// After how many entries the journal is synced during an import.
const SYNC_ENTRIES: usize = 4096;

impl Import {
    fn new(config: &EmbeddedConfig) -> Result<Self, TransferError> {
        let directory = config.directory.clone();
        config.medium.create_dir(&directory)?;
        let recovered = Journal::open(journal_config(config));
        Ok(Self {
            directory,
            journal: recovered.map_err(refused)?.journal,
            contents: Vec::new(),
            content_bytes: 0,
            is_verbatim: false,
            deployment: None,
            own: None,
            signed_as: BTreeMap::new(),
            newest_ms: 0,
            logs: Vec::new(),
            log: None,
            kept: None,
            ended: Vec::new(),
            unsynced: 0,
        })
    }

    fn take(&mut self, item: ExportItem) -> Result<(), TransferError> {
        match item {
            ExportItem::Header(header) => self.header(header),
            ExportItem::Entry { log, entry } => self.entry(log, &entry),
            ExportItem::Record(record) => self.record(*record),
            ExportItem::Approval(approval) => {
                self.imported(|entry| entry.approvals.push(*approval))
            }
            ExportItem::Directive(entry) => self.imported(|it| it.directives.push(*entry)),
            ExportItem::Run(run) => self.imported(|entry| entry.runs.push(*run)),
            ExportItem::Content { tenant, digest, base64 } => {
                let bytes = STANDARD.decode(base64).map_err(refused)?;
                if Digest::of(&bytes) != digest {
                    return Err(refused(format!("content `{digest}` is not what its digest says")));
                }
                self.content_bytes = self.content_bytes.saturating_add(bytes.len());
                self.contents.push(Content { tenant, digest, bytes });
                // Contents of another store belong to no entry of this one.
                let is_much = !self.is_verbatim && self.content_bytes >= CONTENT_BYTES;
                if is_much { self.imported(|_| {}) } else { Ok(()) }
            }
            // It is read where the export is.
            ExportItem::End(_) => Ok(()),
        }
    }

    fn header(&mut self, header: ExportHeader) -> Result<(), TransferError> {
        let mut own = header.logs.iter().filter(|log| !header.kept.contains_key(&log.log));
        self.is_verbatim = own.next().is_some_and(|log| log.log == LOG) && own.next().is_none();
        self.logs = header.logs;
        (self.deployment, self.signed_as) = (header.deployment, header.kept);
        Ok(())
    }

    fn entry(&mut self, log: String, entry: &LogEntry) -> Result<(), TransferError> {
        if self.log.as_ref().is_none_or(|(current, _)| *current != log) {
            self.end_log()?;
            self.begin_log(&log)?;
        }
        let Some((_, walk)) = &mut self.log else { return Ok(()) };
        walk.entry(entry).map_err(|fault| refused(format!("log `{log}`: {fault}")))?;
        self.newest_ms = self.newest_ms.max(entry.at_ms);
        self.journal.not_before(entry.epoch);
        if let Some(kept) = &mut self.kept {
            writeln!(kept, "{}", export_line(entry).map_err(refused)?)?;
            return Ok(());
        }
        let contents = self.take_contents();
        self.journal.append_as(entry, &contents).map_err(refused)?;
        self.sync_now_and_then()
    }

    fn begin_log(&mut self, log: &str) -> Result<(), TransferError> {
        self.log = Some((log.to_owned(), Walk::default()));
        if !self.is_verbatim || log != LOG {
            let folder = self.directory.join(IMPORTED);
            std::fs::create_dir_all(&folder)?;
            let name: String =
                log.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let mut file = BufWriter::new(File::create(folder.join(format!("{name}.jsonl")))?);
            // As signed by its original store, so that it verifies against what was signed there.
            let signed_as = self.signed_as.get(log).map(ToString::to_string);
            let deployment = self.deployment.as_ref().map_or("imported", NoteName::as_str);
            let origin = signed_as.unwrap_or_else(|| format!("{deployment}/{log}"));
            // One key that signs two logs under one name could not be told from one that forks a log.
            if self.own.as_ref() == Some(&origin) {
                return Err(TransferError::SameName(origin));
            }
            let origin = NoteName::new(origin).map_err(refused)?;
            let header = export_header(&origin).map_err(refused)?;
            writeln!(file, "{header}")?;
            self.kept = Some(file);
        }
        Ok(())
    }

    fn end_log(&mut self) -> Result<(), TransferError> {
        if let Some(kept) = self.kept.take() {
            kept.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        }
        if let Some((log, walk)) = self.log.take() {
            let (size, head) = (walk.frontier().size(), hex::encode(walk.head()));
            self.ended.push(ExportedLog { log, size, head });
        }
        Ok(())
    }

    fn record(&mut self, record: EffectRecord) -> Result<(), TransferError> {
        // Whatever process had the duty to settle it is over; so its epoch lies before that of the next start.
        if let Some(attempt) = record.state.attempt() {
            self.journal.not_before(attempt.duty().max(attempt.epoch));
        }
        self.newest_ms = self.newest_ms.max(record.updated_at.as_ms());
        self.imported(|entry| entry.effects.push(EffectChange::Put(Box::new(record))))
    }

    /// Records of another store become an entry of their own; those of an embedded store are in its entries already.
    fn imported(&mut self, fill: impl FnOnce(&mut Entry)) -> Result<(), TransferError> {
        if self.is_verbatim {
            return Ok(());
        }
        let (kind, payload) = encode_imported(fill).map_err(refused)?;
        let at_ms = self.journal.last_at_ms().map_or(self.newest_ms, |at| at.max(self.newest_ms));
        let contents = self.take_contents();
        self.journal.append_with(kind, at_ms, &payload, &contents).map_err(refused)?;
        self.sync_now_and_then()
    }

    fn take_contents(&mut self) -> Vec<Content> {
        self.content_bytes = 0;
        std::mem::take(&mut self.contents)
    }

    fn sync_now_and_then(&mut self) -> Result<(), TransferError> {
        self.unsynced = self.unsynced.saturating_add(1);
        if self.unsynced >= SYNC_ENTRIES {
            self.journal.sync().map_err(refused)?;
            self.unsynced = 0;
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(), TransferError> {
        self.end_log()?;
        let expected: Vec<_> = self.logs.iter().filter(|log| log.size > 0).cloned().collect();
        if self.ended != expected {
            return Err(refused("the logs do not end as the export's header says"));
        }
        if !self.contents.is_empty() {
            self.imported(|_| {})?;
        }
        if !self.contents.is_empty() {
            return Err(refused("contents come after the last entry"));
        }
        self.journal.close().map_err(refused)?;
        Ok(File::open(&self.directory)?.sync_all()?)
    }
}
