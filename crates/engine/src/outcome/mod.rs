//! What became of calls: how a record stands as its caller is told, and how an outcome gets into the ledger.
//!
//! From what is read (`recorded`) to what is written: settlements, those that are tried again, and evidence that comes late.

pub(crate) mod abandoned;
pub(crate) mod recorded;
pub(crate) mod resolve;
pub(crate) mod settle;
pub(crate) mod settlement_retry;
