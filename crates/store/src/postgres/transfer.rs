//! The shared ledger as an export, and an export as a shared ledger.
//!
//! Owns what is written, in which order, and writing its lines into an empty database. Not here: the form ([`crate::transfer`]).
//! Invariants: an export is of one moment, while nodes may go on, and is refused if contents are lost; an import is in place only when all
//! of it was read, verified and committed; memory is bounded by some hundred lines.

use std::collections::BTreeSet;
use std::io::{BufRead, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tokio::sync::mpsc;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::log::LogEntry;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::RunRecord;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;

use super::config::PostgresConfig;
use super::connect::Connector;
use super::import::Import;
use super::snapshot::{APPROVALS, DIRECTIVES, EFFECTS, RUNS, Snapshot, Table};
use crate::transfer::{
    ExportHeader, ExportItem, ExportWriter, TransferError, TransferSummary, read_export,
};

/// How many rows are read or written at a time.
const PAGE: usize = 500;
/// The same for contents, which may be large.
const CONTENT_PAGE: usize = 8;
/// How many lines may wait for the database.
const LINES_MAX: usize = 64;
/// At which number the count of lost contents stops.
const LOST_MAX: usize = 1_000;

fn refused(error: impl std::fmt::Display) -> TransferError {
    TransferError::Store(error.to_string())
}

/// Writes everything in a database as an export, as of one moment; nodes may go on meanwhile.
///
/// # Errors
/// [`TransferError`]: the database cannot be read, something in it was altered, contents that its records name are lost, or the writing
/// failed.
pub async fn export(
    config: &PostgresConfig,
    out: impl Write + Send,
) -> Result<TransferSummary, TransferError> {
    config.check().map_err(refused)?;
    let connector = Connector::new(config.url.clone(), config.wait);
    let mut snapshot = Snapshot::take(&connector).await.map_err(refused)?;
    let logs = snapshot.logs().await.map_err(refused)?;
    let names: Vec<String> = logs.iter().map(|log| log.log.clone()).collect();
    let mut writer = ExportWriter::new(out, logs)?;
    for log in names {
        put_log(&mut snapshot, &mut writer, &log).await?;
    }
    put_effects(&mut snapshot, &mut writer).await?;
    put_records(&mut snapshot, &mut writer, &APPROVALS, ExportItem::Approval).await?;
    put_records(&mut snapshot, &mut writer, &DIRECTIVES, ExportItem::Directive).await?;
    put_records(&mut snapshot, &mut writer, &RUNS, ExportItem::Run).await?;
    put_contents(&mut snapshot, &mut writer).await?;
    let (_, summary) = writer.finish()?;
    Ok(summary)
}

async fn put_log<W: Write + Send>(
    snapshot: &mut Snapshot,
    writer: &mut ExportWriter<W>,
    log: &str,
) -> Result<(), TransferError> {
    let mut next = 1;
    loop {
        let entries = snapshot.entries(log, next, PAGE).await.map_err(refused)?;
        let Some(last) = entries.last() else { return Ok(()) };
        next = last.seq.saturating_add(1);
        for entry in entries {
            writer.put(&ExportItem::Entry { log: log.to_owned(), entry: Box::new(entry) })?;
        }
    }
}

/// Effect records, checking that the contents that they name exist: an export without them would look complete elsewhere.
async fn put_effects<W: Write + Send>(
    snapshot: &mut Snapshot,
    writer: &mut ExportWriter<W>,
) -> Result<(), TransferError> {
    let (mut after, mut lost) = (Vec::new(), BTreeSet::new());
    loop {
        let page = snapshot.records(&EFFECTS, after, PAGE).await.map_err(refused)?;
        let Some(last) = page.last() else { break };
        after = (EFFECTS.key)(last).map_err(refused)?;
        for (tenant, digest) in snapshot.lost(&page).await.map_err(refused)? {
            if lost.len() < LOST_MAX && lost.insert((tenant.clone(), digest)) {
                tracing::error!(%tenant, %digest, "a content that a record names is lost");
            }
        }
        for record in page {
            writer.put(&ExportItem::Record(Box::new(record)))?;
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    Err(TransferError::Lost { missing: lost.len(), altered: 0 })
}

/// All records of a table.
async fn put_records<W: Write + Send, T>(
    snapshot: &mut Snapshot,
    writer: &mut ExportWriter<W>,
    table: &Table<T>,
    item: fn(Box<T>) -> ExportItem,
) -> Result<(), TransferError> {
    let mut after = Vec::new();
    loop {
        let page = snapshot.records(table, after, PAGE).await.map_err(refused)?;
        let Some(last) = page.last() else { return Ok(()) };
        after = (table.key)(last).map_err(refused)?;
        for record in page {
            writer.put(&item(Box::new(record)))?;
        }
    }
}

async fn put_contents<W: Write + Send>(
    snapshot: &mut Snapshot,
    writer: &mut ExportWriter<W>,
) -> Result<(), TransferError> {
    let mut after = None;
    loop {
        let page = snapshot.contents(after.as_ref(), CONTENT_PAGE).await.map_err(refused)?;
        let Some((tenant, bytes)) = page.last() else { return Ok(()) };
        after = Some((tenant.clone(), Digest::of(bytes)));
        for (tenant, bytes) in page {
            let (digest, base64) = (Digest::of(&bytes), STANDARD.encode(bytes));
            writer.put(&ExportItem::Content { tenant, digest, base64 })?;
        }
    }
}

/// Imports an export into a database that no node has used. The export is read on a thread of its own.
///
/// # Errors
/// [`TransferError`]: the export is not whole, does not agree with itself, or cannot be written. The database is empty then, unless
/// the connection was lost at the very end, when it may be complete.
pub async fn import(
    config: &PostgresConfig,
    input: impl BufRead + Send + 'static,
) -> Result<TransferSummary, TransferError> {
    let import = Import::begin(config).await.map_err(refused)?;
    let (lines, mut inbox) = mpsc::channel(LINES_MAX);
    let reading = tokio::task::spawn_blocking(move || {
        read_export(input, &mut |item| {
            lines.blocking_send(item).map_err(|_gone| refused("the database refused"))
        })
    });
    let mut filling = Filling { import, header: None, page: Page::default() };
    let mut filled = Ok(());
    while let Some(item) = inbox.recv().await {
        filled = filling.take(item).await;
        if filled.is_err() {
            break;
        }
    }
    // The reading thread then has no receiver, and ends.
    drop(inbox);
    let read = reading.await.map_err(refused)?;
    filled?;
    let summary = read?;
    filling.finish().await?;
    Ok(summary)
}

/// Lines of one kind that are written together.
#[derive(Debug, Default)]
struct Page {
    log: String,
    entries: Vec<LogEntry>,
    records: Vec<EffectRecord>,
    approvals: Vec<ApprovalRecord>,
    directives: Vec<Directive>,
    runs: Vec<RunRecord>,
    contents: Vec<(TenantId, Vec<u8>)>,
}

impl Page {
    const fn is_full(&self) -> bool {
        self.entries.len() >= PAGE
            || self.records.len() >= PAGE
            || self.approvals.len() >= PAGE
            || self.directives.len() >= PAGE
            || self.runs.len() >= PAGE
            || self.contents.len() >= CONTENT_PAGE
    }
}

/// A database being filled.
struct Filling {
    import: Import,
    header: Option<ExportHeader>,
    page: Page,
}

impl Filling {
    async fn take(&mut self, item: ExportItem) -> Result<(), TransferError> {
        match item {
            ExportItem::Header(header) => {
                for log in &header.logs {
                    self.import.log(&log.log).map_err(refused)?;
                }
                self.header = Some(header);
            }
            ExportItem::Entry { log, entry } => {
                if self.page.log != log {
                    self.write().await?;
                    self.page.log = log;
                }
                self.page.entries.push(*entry);
            }
            ExportItem::Record(record) => self.page.records.push(*record),
            ExportItem::Approval(approval) => self.page.approvals.push(*approval),
            ExportItem::Directive(entry) => self.page.directives.push(*entry),
            ExportItem::Run(run) => self.page.runs.push(*run),
            ExportItem::Content { tenant, digest, base64 } => {
                let bytes = STANDARD.decode(base64).map_err(refused)?;
                if Digest::of(&bytes) != digest {
                    return Err(refused(format!("content `{digest}` is not what its digest says")));
                }
                self.page.contents.push((tenant, bytes));
            }
            // It is read where the export is.
            ExportItem::End(_) => {}
        }
        if self.page.is_full() { self.write().await } else { Ok(()) }
    }

    /// Entries first: a record needs the entry that made it.
    async fn write(&mut self) -> Result<(), TransferError> {
        let log = self.page.log.clone();
        let page = std::mem::take(&mut self.page);
        self.page.log.clone_from(&log);
        let Page { entries, records, approvals, directives, runs, contents, .. } = page;
        if !entries.is_empty() {
            self.import.entries(&log, &entries).await.map_err(refused)?;
        }
        self.import.effects(&records).await.map_err(refused)?;
        self.import.records(approvals, directives, runs).await.map_err(refused)?;
        self.import.contents(&contents).await.map_err(refused)
    }

    async fn finish(mut self) -> Result<(), TransferError> {
        self.write().await?;
        let header = self.header.ok_or_else(|| refused("the header is missing"))?;
        self.import.finish(&header.logs).await.map_err(refused)
    }
}
