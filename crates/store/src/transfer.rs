//! Moving a ledger: everything in it as lines of JSON, from one store into another.
//!
//! Owns the form of an export and the proof that it is whole. Not here: what a store writes into it, or makes of it (`embedded::export`,
//! `embedded::import`, and the same for the store on PostgreSQL).
//! Invariants: an export is trusted only when its last line has been read and its count and digest match all lines before it; memory is
//! bounded by one line.
//!
//! ```text
//! {"header":{"placet_export":1,"logs":[{"log":"journal","size":3,"head":"9b0e…"}]}}
//! {"content":{"tenant":"acme","digest":"sha256:…","base64":"…"}}      contents; in an embedded ledger before the entry that brought them
//! {"entry":{"log":"journal","entry":{"seq":1,…,"payload":"{…}"}}}      the entries of each log in order, as audited
//! {"record":{…}}                                                        effect records, as they are now
//! {"approval":{…}}
//! {"run":{…}}
//! {"end":{"lines":42,"sha256":"…"}}                                     over the bytes of all lines before it
//! ```

mod read;
mod write;

use std::io;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::log::LogEntry;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::RunRecord;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use serde::{Deserialize, Serialize};

pub use read::read_export;
pub use write::ExportWriter;

/// The form of an export that this build writes and reads.
pub const EXPORT_VERSION: u16 = 1;

/// The first line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportHeader {
    /// The form; another number is refused.
    pub placet_export: u16,
    /// Its logs, in the order in which their entries follow.
    pub logs: Vec<ExportedLog>,
}

/// One log of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportedLog {
    /// Its name within the store.
    pub log: String,
    /// How many entries it has.
    pub size: u64,
    /// The hash of the last one, in hexadecimal.
    pub head: String,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ExportItem {
    /// The first line.
    Header(ExportHeader),
    /// An entry of a log.
    Entry {
        /// The log.
        log: String,
        /// The entry.
        entry: Box<LogEntry>,
    },
    /// The current effect record.
    Record(Box<EffectRecord>),
    /// The current approval.
    Approval(Box<ApprovalRecord>),
    /// The current entry of the approval service.
    Directive(Box<Directive>),
    /// The current run.
    Run(Box<RunRecord>),
    /// A piece of content.
    Content {
        /// Its tenant.
        tenant: TenantId,
        /// Its digest.
        digest: Digest,
        /// Its bytes.
        base64: String,
    },
    /// The last line.
    End(ExportEnd),
}

/// The last line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportEnd {
    /// How many lines come before it.
    pub lines: u64,
    /// The SHA-256 over them, line ends included, in hexadecimal.
    pub sha256: String,
}

/// How much was in an export.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TransferSummary {
    /// Lines before the last one.
    pub lines: u64,
    /// Entries of logs.
    pub entries: u64,
    /// Effect records.
    pub records: u64,
    /// Approvals.
    pub approvals: u64,
    /// Entries of the approval service.
    pub directives: u64,
    /// Runs.
    pub runs: u64,
    /// Pieces of content.
    pub contents: u64,
    /// The SHA-256 over all lines before the last one, in hexadecimal.
    pub sha256: String,
}

impl TransferSummary {
    fn count(&mut self, item: &ExportItem) {
        self.lines = self.lines.saturating_add(1);
        let counter = match item {
            ExportItem::Entry { .. } => &mut self.entries,
            ExportItem::Record(_) => &mut self.records,
            ExportItem::Approval(_) => &mut self.approvals,
            ExportItem::Directive(_) => &mut self.directives,
            ExportItem::Run(_) => &mut self.runs,
            ExportItem::Content { .. } => &mut self.contents,
            ExportItem::Header(_) | ExportItem::End(_) => return,
        };
        *counter = counter.saturating_add(1);
    }
}

/// Why an export could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum TransferError {
    /// The file or pipe failed.
    #[error("the export cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// A line is not one of an export.
    #[error("line {line} of the export is malformed: {why}")]
    Malformed {
        /// Its number, from 1.
        line: u64,
        /// Why.
        why: String,
    },
    /// It ends before its last line, or its digest differs.
    #[error("the export is not whole: {0}")]
    NotWhole(String),
    /// Contents that entries name are missing or altered, and nothing says that they were deleted.
    #[error("{missing} contents that records name are lost, and {altered} are altered")]
    Lost {
        /// How many are missing: a thousand means at least that many.
        missing: usize,
        /// How many are altered, counted likewise.
        altered: usize,
    },
    /// The ledger cannot be opened: it is in use, or damaged. The error is the store's.
    #[error("{0}")]
    Open(Box<dyn std::error::Error + Send + Sync>),
    /// Something exists where the ledger is to be made.
    #[error("`{}` is not empty", .0.display())]
    Taken(std::path::PathBuf),
    /// It is of a database, and was to become a data folder.
    #[error("an export of a database is imported into a database")]
    OfDatabase,
    /// The store on either side refused.
    #[error("{0}")]
    Store(String),
}
