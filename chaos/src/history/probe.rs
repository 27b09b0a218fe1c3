//! The findings at the end, when nothing is sent any more.

use serde::{Deserialize, Serialize};

use super::journal::JournalEntry;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "found", rename_all = "snake_case")]
pub(crate) enum Probe {
    /// The effect records of a tenant, all of them, as a node lists them to an operator.
    Records { tenant: String, node: u32, records: Vec<RecordRow> },
    /// The approvals of a tenant, as a node lists them.
    Approvals { tenant: String, node: u32, approvals: Vec<ApprovalRow> },
    /// One entry of the exported audit log, in the order of the log.
    Entry(Box<JournalEntry>),
    /// A whole log was exported.
    LogEnd {
        log: String,
        entries: u64,
        /// The hash of the last one.
        head: String,
    },
    /// The result of one of the program's checks: `audit verify`, `ledger verify`.
    Verified {
        check: String,
        /// The node whose data was checked; `None`: the shared data.
        node: Option<u32>,
        ok: bool,
        /// Entries, where it says so.
        entries: Option<u64>,
        /// The hash of the last entry, where it says so.
        head: Option<String>,
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
    Epoch { epoch: u64, node: u32 },
    /// What a run has spent.
    Budget {
        tenant: String,
        agent: String,
        user: Option<String>,
        run_id: String,
        /// Calls that it was charged for.
        used: u64,
        limit: u64,
    },
    /// The peak of a value with a cap.
    Gauge { node: u32, name: String, value: u64, cap: u64 },
    /// Everything on the disk was searched for the secrets.
    Secrets {
        files: u64,
        bytes: u64,
        /// Which secret was found where.
        hits: Vec<String>,
    },
}

/// A record in a listing, under its own names or those of `GET /v1/ledger`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RecordRow {
    pub(crate) record_id: String,
    pub(crate) call_id: String,
    pub(crate) state: String,
    /// How often the upstream was called.
    pub(crate) attempts: u32,
    #[serde(alias = "dispatch_token")]
    pub(crate) token: Option<String>,
    pub(crate) agent: String,
    /// The operation, as `adapter/capability`.
    #[serde(alias = "capability_id")]
    pub(crate) capability: String,
}

/// An approval in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ApprovalRow {
    pub(crate) approval_id: String,
    pub(crate) call_id: String,
    pub(crate) state: String,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::RecordRow;

    #[test]
    fn a_record_is_read_as_a_node_lists_it_and_as_the_history_keeps_it() {
        let listed = json!({
            "record_id": "sha256:1", "call_id": "call_1", "state": "indeterminate", "attempts": 2, "agent": "clerk",
            "capability_id": "witness/put", "dispatch_token": "plc_1", "args": {}, "created_at": 1,
        });
        let row: RecordRow = serde_json::from_value(listed).unwrap();
        assert_eq!((row.capability.as_str(), row.token.as_deref()), ("witness/put", Some("plc_1")));
        let kept = serde_json::to_value(&row).unwrap();
        assert_eq!(serde_json::from_value::<RecordRow>(kept).unwrap(), row);
        let without = json!({"record_id": "sha256:1", "call_id": "call_1", "state": "denied"});
        assert!(serde_json::from_value::<RecordRow>(without).is_err());
    }
}
