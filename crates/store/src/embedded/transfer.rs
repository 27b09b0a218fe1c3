//! The embedded ledger as an export, and an export as an embedded ledger.
//!
//! Owns what is written, in which order, and how an export becomes a data folder. Not here: the form ([`crate::transfer`]), the logs that
//! came from other stores (`kept`).
//! Invariants: an export of an embedded ledger becomes the same ledger, byte for byte in its chain; one of another store keeps that
//! store's logs as they were, as do the exports of this one, to be verified beside its own; nothing is in place before all of it was read, verified and durable.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::proof::Frontier;
use placet_ledger::proof::note::NoteName;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::RunRecord;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::codec::{Entry, encode_imported};
use super::identity::importing;
use super::keeper::Bodies;
use super::kept::{IMPORTED, each_kept, kept_logs};
use super::log::{LOG, entry as log_entry};
use super::offline::{ContentVerdict, Contents, Scratch};
use super::open::{CONTENT, JOURNAL, OpenError, Opened, journal_config, open};
use super::records::{Records, decode_directives, decode_run};
use super::{EmbeddedConfig, keys, query};
use crate::content::ContentStore;
use crate::journal::lock::Lock;
use crate::journal::medium::replace_file;
use crate::journal::{Base, Begin, Journal, JournalError};
use crate::seal::{ExportLine, entry_hash, export_header, export_line};
use crate::transfer::{
    EXPORT_VERSION, ExportHeader, ExportItem, ExportWriter, ExportedLog, TransferError,
    TransferSummary, read_export,
};

pub(super) fn refused(error: impl std::fmt::Display) -> TransferError {
    TransferError::Store(error.to_string())
}

/// Writes everything in a ledger that no process serves as an export. To export one that is served, make a backup first.
///
/// # Errors
/// [`TransferError`]: the ledger cannot be opened, an archived segment is not at hand, contents that it names are lost or altered, or the
/// writing failed.
pub fn export(config: &EmbeddedConfig, out: impl Write) -> Result<TransferSummary, TransferError> {
    export_as(config, None, out)
}

/// The same, with the name under which the logs were signed, by which they can be verified wherever they come to.
///
/// # Errors
/// As [`export`].
pub fn export_as(
    config: &EmbeddedConfig,
    deployment: Option<NoteName>,
    out: impl Write,
) -> Result<TransferSummary, TransferError> {
    let journal = config.directory.join(JOURNAL);
    std::fs::metadata(&journal)
        .map_err(OpenError::io("find the journal", &journal))
        .map_err(Box::new)?;
    let Opened { journal, content, index, rest, .. } = open(config, None).map_err(Box::new)?;
    archive_is_at_hand(&journal, &rest.footing.base)
        .map_err(OpenError::Journal)
        .map_err(Box::new)?;
    let (size, head) = journal.head();
    let log = ExportedLog { log: LOG.to_owned(), size, head: hex::encode(head) };
    let others = kept_logs(&config.directory)?;
    let header = ExportHeader {
        placet_export: EXPORT_VERSION,
        store_id: rest.store_id.clone(),
        logs: std::iter::once(log).chain(others.iter().map(|kept| kept.log.clone())).collect(),
        deployment,
        kept: others.iter().map(|kept| (kept.log.log.clone(), kept.origin.clone())).collect(),
    };
    let mut writer = ExportWriter::begin(out, header)?;
    let mut tenants = Tenants::default();
    let scratch = Scratch::new(&config.directory).map_err(Box::new)?;
    let mut named = Contents::new(content.reader(), &scratch).map_err(Box::new)?;
    for frame in journal.read_from(1) {
        let frame = frame.map_err(refused)?;
        let made = super::codec::decode_entry(frame.kind, &frame.payload).map_err(refused)?;
        named.check(&made).map_err(refused)?;
        tenants.note(made);
        let line = export_line(&log_entry(frame)).map_err(refused)?;
        let entry: ExportLine = serde_json::from_str(&line).map_err(refused)?;
        writer.put(&ExportItem::Entry { log: LOG.to_owned(), entry: Box::new(entry) })?;
    }
    // What came of it elsewhere would look whole.
    let ContentVerdict { missing, altered, .. } = named.verdict().map_err(Box::new)?;
    if !missing.is_empty() || !altered.is_empty() {
        return Err(TransferError::Lost { missing: missing.len(), altered: altered.len() });
    }
    for kept in &others {
        each_kept(&kept.file, &mut |line| {
            writer.put(&ExportItem::Entry { log: kept.log.log.clone(), entry: Box::new(line) })
        })?;
    }
    let records = Records::new(journal.reader(), Bodies::new(rest.bodies));
    for pair in index.everything() {
        let (key, value) = pair.map_err(refused)?;
        if let Some(item) = item(&records, &key, &value)? {
            writer.put(&item)?;
        }
    }
    content.reader().each(&mut |tenant_key, digest, bytes| {
        let Some(tenant) = tenants.0.get(&tenant_key).cloned() else { return Ok(()) };
        writer.put(&ExportItem::Content { tenant, digest, base64: STANDARD.encode(bytes) })
    })?;
    let (_, summary) = writer.finish()?;
    index.close().map_err(refused)?;
    journal.close().map_err(refused)?;
    Ok(summary)
}

/// Everything is exported, so what was archived has to be there.
fn archive_is_at_hand(journal: &Journal, base: &Base) -> Result<(), JournalError> {
    (1..base.segment).try_for_each(|n| journal.reader().files().open_read(n).map(drop))
}

/// The tenants that entries name, by the names of their folders.
#[derive(Debug, Default)]
struct Tenants(std::collections::BTreeMap<[u8; 32], TenantId>);

impl Tenants {
    fn note(&mut self, entry: Entry) {
        let Entry { effects, approvals, directives, forget_content, audit, .. } = entry;
        for effect in effects {
            if let super::EffectEntry::Put(record) = effect {
                self.add(record.scope.tenant.clone());
            }
        }
        for approval in approvals {
            self.add(approval.chain.tenant().clone());
        }
        for entry in directives {
            self.add(entry.tenant);
        }
        let audited = audit.into_iter().filter_map(|event| event.tenant);
        for tenant in forget_content.into_iter().map(|(tenant, _)| tenant).chain(audited) {
            self.add(tenant);
        }
    }

    fn add(&mut self, tenant: TenantId) {
        self.0.insert(*Digest::of(tenant.as_str().as_bytes()).as_bytes(), tenant);
    }
}

/// What a key of the index is in an export, if it is anything there.
fn item(records: &Records, key: &[u8], value: &[u8]) -> Result<Option<ExportItem>, TransferError> {
    let Some((prefix, rest)) = key.split_first() else { return Ok(None) };
    if value.is_empty() || !keys::is_filtered(key) {
        return Ok(None);
    }
    let stored = super::codec::decode_value(key, value)
        .ok_or_else(|| refused("the index holds a value that does not verify"))?;
    let item = match *prefix {
        keys::EFFECT => {
            let id = query::record_id(rest).ok_or_else(|| refused("a record has no identity"))?;
            let record = records.effect(&id, stored.seq).map_err(refused)?;
            ExportItem::Record(Box::new(Arc::unwrap_or_clone(record)))
        }
        keys::APPROVAL => {
            let id = std::str::from_utf8(rest).map_err(refused)?;
            let id = placet_types::ids::ApprovalId::new(id).map_err(refused)?;
            let approval = records.approval(&id, stored.seq).map_err(refused)?;
            ExportItem::Approval(Box::new(Arc::unwrap_or_clone(approval)))
        }
        keys::DIRECTIVE => {
            ExportItem::Directive(Box::new(decode_directives(&stored).map_err(refused)?))
        }
        _ => ExportItem::Run(Box::new(decode_run(&stored).map_err(refused)?)),
    };
    Ok(Some(item))
}

/// Makes a ledger of an export, in a folder that is not there yet or empty. Until all of it is read, verified and durable it is in a
/// folder beside it.
///
/// # Errors
/// [`TransferError`]: the export is not whole, does not agree with itself, or cannot be written. Nothing is in place then.
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
    let making = EmbeddedConfig { directory: beside.clone(), known_head: None, ..config.clone() };
    let mut import = Import::new(&making)?;
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

/// Removes what is left of an import that was cut short, not what another process is making.
fn take_away(beside: &Path) -> Result<(), TransferError> {
    let journal = beside.join(JOURNAL);
    let _lock = match journal.try_exists()? {
        true => Some(Lock::take(&journal).map_err(OpenError::Journal).map_err(Box::new)?),
        false => None,
    };
    Ok(std::fs::remove_dir_all(beside)?)
}

/// Opens what was made, and compares it with what was in the export.
fn check(config: &EmbeddedConfig, summary: &TransferSummary) -> Result<(), TransferError> {
    let Opened { journal, index, tree, .. } = open(config, None).map_err(Box::new)?;
    let counts = index.applied().counts;
    let expected = (summary.records, summary.approvals, summary.runs, summary.directives);
    if (counts.effects, counts.approvals, counts.runs, counts.directives) != expected {
        return Err(refused("the entries do not come to the records of the export"));
    }
    drop(tree);
    index.close().map_err(refused)?;
    journal.close().map_err(refused)
}

/// A ledger in the making.
struct Import {
    directory: PathBuf,
    journal: Journal,
    content: ContentStore,
    /// Whether the log of this name becomes the journal as it is.
    is_verbatim: bool,
    deployment: Option<NoteName>,
    /// How the logs were signed that the exporting store kept from others.
    signed_as: BTreeMap<String, NoteName>,
    /// The newest time in what came: nothing of this ledger is older.
    newest_ms: i64,
    logs: Vec<ExportedLog>,
    /// The log whose entries come now: how many came, the last hash, and where they are kept.
    log: Option<(String, u64, [u8; 32])>,
    kept: Option<BufWriter<File>>,
    ended: Vec<ExportedLog>,
    unsynced: usize,
}

/// After how many entries the journal is synced while it is made.
const SYNC_ENTRIES: usize = 4096;

impl Import {
    fn new(config: &EmbeddedConfig) -> Result<Self, TransferError> {
        let directory = config.directory.clone();
        config.medium.create_dir(&directory)?;
        let journal = journal_config(config);
        let lock = Journal::lock(&journal).map_err(refused)?;
        let recovered = Journal::open_locked(journal, lock, &Begin::First, &mut |_| Ok(()));
        let (content, _) =
            ContentStore::open_on(Arc::clone(&config.medium), directory.join(CONTENT))
                .map_err(refused)?;
        Ok(Self {
            directory,
            journal: recovered.map_err(refused)?.journal,
            content,
            is_verbatim: false,
            deployment: None,
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
            ExportItem::Entry { log, entry } => self.entry(log, *entry),
            ExportItem::Record(record) => self.record(*record),
            ExportItem::Approval(approval) => self.approval(*approval),
            ExportItem::Directive(entry) => self.directives(*entry),
            ExportItem::Run(run) => self.run(*run),
            ExportItem::Content { tenant, digest, base64 } => {
                let bytes = STANDARD.decode(base64).map_err(refused)?;
                if Digest::of(&bytes) != digest {
                    return Err(refused(format!("content `{digest}` is not what its digest says")));
                }
                self.content.put(tenant.as_str(), bytes).map_err(refused)?;
                self.unsynced = self.unsynced.saturating_add(1);
                if self.unsynced >= SYNC_ENTRIES {
                    self.content.sync().map_err(refused)?;
                    // Where the contents lie is not to be held in memory for all of them.
                    self.content.reader().tend().map_err(refused)?;
                    self.unsynced = 0;
                }
                Ok(())
            }
            // It is read where the export is.
            ExportItem::End(_) => Ok(()),
        }
    }

    fn header(&mut self, header: ExportHeader) -> Result<(), TransferError> {
        let path = self.directory.join("store-id");
        let id = format!("{}\n", header.store_id);
        replace_file(&crate::journal::medium::Disk, &path, id.as_bytes())?;
        let mut own = header.logs.iter().filter(|log| !header.kept.contains_key(&log.log));
        self.is_verbatim = own.next().is_some_and(|log| log.log == LOG) && own.next().is_none();
        self.logs = header.logs;
        (self.deployment, self.signed_as) = (header.deployment, header.kept);
        Ok(())
    }

    fn entry(&mut self, log: String, line: ExportLine) -> Result<(), TransferError> {
        if self.log.as_ref().is_none_or(|(current, ..)| *current != log) {
            self.end_log()?;
            self.begin_log(&log)?;
        }
        let Some((_, count, last)) = &mut self.log else { return Ok(()) };
        let (said, text) = (line.hash, serde_json::to_string(&line).map_err(refused)?);
        let entry: placet_ledger::log::LogEntry = line.into();
        let follows = entry.seq == count.saturating_add(1)
            && entry.prev == *last
            && said == entry_hash(&entry);
        if !follows {
            return Err(refused(format!("entry {} of log `{log}` breaks the chain", entry.seq)));
        }
        (*count, *last) = (entry.seq, said);
        self.newest_ms = self.newest_ms.max(entry.at_ms);
        self.journal.not_before(entry.epoch);
        if let Some(kept) = &mut self.kept {
            writeln!(kept, "{text}")?;
            return Ok(());
        }
        self.journal.append_as(&entry).map_err(refused)?;
        self.sync_now_and_then()
    }

    fn begin_log(&mut self, log: &str) -> Result<(), TransferError> {
        self.log = Some((log.to_owned(), 0, [0; 32]));
        if !self.is_verbatim || log != LOG {
            let folder = self.directory.join(IMPORTED);
            std::fs::create_dir_all(&folder)?;
            let name: String =
                log.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
            let mut file = BufWriter::new(File::create(folder.join(format!("{name}.jsonl")))?);
            // As it was signed where it was written, so that it verifies against what was signed of it there.
            let signed_as = self.signed_as.get(log).map(ToString::to_string);
            let deployment = self.deployment.as_ref().map_or("imported", NoteName::as_str);
            let origin = signed_as.unwrap_or_else(|| format!("{deployment}/{log}"));
            let origin = NoteName::new(origin).map_err(refused)?;
            let header = export_header(&origin, 1, &Frontier::new()).map_err(refused)?;
            writeln!(file, "{header}")?;
            self.kept = Some(file);
        }
        Ok(())
    }

    fn end_log(&mut self) -> Result<(), TransferError> {
        if let Some(kept) = self.kept.take() {
            kept.into_inner().map_err(|error| error.into_error())?.sync_all()?;
        }
        if let Some((log, size, head)) = self.log.take() {
            self.ended.push(ExportedLog { log, size, head: hex::encode(head) });
        }
        Ok(())
    }

    fn record(&mut self, record: EffectRecord) -> Result<(), TransferError> {
        // Whatever process had the duty to settle it is over; so its epoch lies before that of the next start.
        if let Some(attempt) = record.state.attempt() {
            self.journal.not_before(attempt.duty().max(attempt.epoch));
        }
        self.newest_ms = self.newest_ms.max(record.updated_at.as_ms());
        self.imported(|entry| entry.effects.push(super::EffectEntry::Put(Box::new(record))))
    }

    fn approval(&mut self, approval: ApprovalRecord) -> Result<(), TransferError> {
        self.imported(|entry| entry.approvals.push(approval))
    }

    fn directives(&mut self, directives: Directive) -> Result<(), TransferError> {
        self.imported(|entry| entry.directives.push(directives))
    }

    fn run(&mut self, run: RunRecord) -> Result<(), TransferError> {
        self.imported(|entry| entry.runs.push(run))
    }

    /// What another store kept becomes an entry of its own; of this store's own kind it is in the entries already.
    fn imported(&mut self, fill: impl FnOnce(&mut Entry)) -> Result<(), TransferError> {
        if self.is_verbatim {
            return Ok(());
        }
        let (kind, payload) = encode_imported(fill).map_err(refused)?;
        let at_ms = self.journal.last_at_ms().map_or(self.newest_ms, |at| at.max(self.newest_ms));
        self.journal.append(kind, at_ms, &payload).map_err(refused)?;
        self.sync_now_and_then()
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
        self.content.sync().map_err(refused)?;
        self.journal.close().map_err(refused)?;
        sync_folder(&self.directory)?;
        Ok(())
    }
}

fn sync_folder(folder: &Path) -> Result<(), TransferError> {
    Ok(File::open(folder)?.sync_all()?)
}
