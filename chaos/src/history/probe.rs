//! The findings at the end, when nothing is sent any more.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::journal::JournalEntry;

/// A finding.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub enum Probe {
    /// The effect records of a tenant, all of them, as a node lists them to an operator.
    Records {
        /// The tenant.
        tenant: String,
        /// The node that was asked.
        node: u32,
        /// The records.
        records: Vec<RecordRow>,
    },
    /// The approvals of a tenant, as a node lists them.
    Approvals {
        /// The tenant.
        tenant: String,
        /// The node that was asked.
        node: u32,
        /// The approvals.
        approvals: Vec<ApprovalRow>,
    },
    /// One entry of the exported audit log, in the order of the log.
    Entry(Box<JournalEntry>),
    /// A whole log was exported.
    LogEnd {
        /// Its name.
        log: String,
        /// How many entries it has.
        entries: u64,
        /// The hash of the last one.
        head: String,
    },
    /// The result of one of the program's checks: `audit verify`, `ledger verify`.
    Verified {
        /// Which check.
        check: String,
        /// The node whose data was checked; `None`: the shared data.
        node: Option<u32>,
        /// Whether all is well.
        ok: bool,
        /// Entries, where it says so.
        entries: Option<u64>,
        /// The hash of the last entry, where it says so.
        head: Option<String>,
        /// What is wrong.
        problem: Option<String>,
    },
    /// According to the database, a start of a node has ended: shut out, or stopped in order.
    Fenced {
        /// The start, by the number of its log.
        epoch: u64,
        /// When, by the database's clock.
        at_ms: i64,
        /// The start that shut it out; `None`: it stopped in order.
        by: Option<u64>,
    },
    /// The node of a start, according to the database.
    Epoch {
        /// The start, by the number of its log.
        epoch: u64,
        /// The node.
        node: u32,
    },
    /// What a run has spent.
    Budget {
        /// The tenant.
        tenant: String,
        /// The agent.
        agent: String,
        /// The user it acts for.
        user: Option<String>,
        /// The run.
        run_id: String,
        /// Calls that it was charged for.
        used: u64,
        /// The most it may.
        limit: u64,
    },
    /// The peak of a value with a cap.
    Gauge {
        /// The node.
        node: u32,
        /// Its name.
        name: String,
        /// The highest value seen.
        value: u64,
        /// The cap.
        cap: u64,
    },
    /// Everything on the disk was searched for the secrets.
    Secrets {
        /// How many files.
        files: u64,
        /// How many bytes.
        bytes: u64,
        /// Which secret was found where.
        hits: Vec<String>,
    },
}

/// A record in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordRow {
    /// The record.
    pub record_id: String,
    /// The call that made it.
    pub call_id: String,
    /// Its state.
    pub state: String,
    /// How often the upstream was called.
    pub attempts: u32,
    /// The token.
    pub token: Option<String>,
    /// The agent.
    pub agent: String,
    /// The operation, as `adapter/capability`.
    pub capability: String,
}

impl RecordRow {
    /// Reads a record of `GET /v1/ledger`.
    pub fn read(document: &Value) -> Option<Self> {
        let text = |name: &str| document.get(name)?.as_str().map(str::to_owned);
        Some(Self {
            record_id: text("record_id")?,
            call_id: text("call_id")?,
            state: text("state")?,
            attempts: u32::try_from(document.get("attempts")?.as_u64()?).ok()?,
            token: text("dispatch_token"),
            agent: text("agent")?,
            capability: text("capability_id")?,
        })
    }
}

/// An approval in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalRow {
    /// The approval.
    pub approval_id: String,
    /// The call that waits.
    pub call_id: String,
    /// Its state.
    pub state: String,
}

impl ApprovalRow {
    /// Reads an approval of `GET /v1/approvals`.
    pub fn read(document: &Value) -> Option<Self> {
        let text = |name: &str| document.get(name)?.as_str().map(str::to_owned);
        Some(Self {
            approval_id: text("approval_id")?,
            call_id: text("call_id")?,
            state: text("state")?,
        })
    }
}
