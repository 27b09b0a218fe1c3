//! How much is in a store, counted.
//!
//! Owns the form of the answer, the same for both stores. Not here: the counting.

use std::collections::BTreeMap;

use serde::Serialize;

/// How much is in a store.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct StoreStats {
    /// Entries of the audit chain.
    pub entries: u64,
    /// Effect records by state.
    pub records: BTreeMap<String, u64>,
    /// Approvals by state.
    pub approvals: BTreeMap<String, u64>,
    /// Standing grants, break-glass records, freezes, delegations and revocations.
    pub directives: u64,
    /// Runs, and the meters that span several of them.
    pub runs: u64,
    /// Arguments, evidence and results.
    pub contents: u64,
    /// Messages that people are to be sent.
    pub messages: u64,
    /// Its size on the disk, in bytes, by part.
    pub bytes: BTreeMap<String, u64>,
}
