//! The supervision tree.
//!
//! ```text
//! root (one-for-one)
//! ├─ policy · identity · approvals · keeper
//! ├─ build · broker · gate · return      a pool of workers each
//! └─ invoke                              a pool of workers, and one supervisor per adapter
//! ```
//!
//! Owns restarts with intensity and backoff; too many end the process, and recovery is the tested path. Actors hold no calls and no
//! outcomes: those live in the registry and the ledger, so any of them may die at any moment.

pub(crate) mod adapter;
pub(crate) mod approvals;
pub(crate) mod keeper;
pub(crate) mod policy;
pub(crate) mod root;
pub(crate) mod supervisor;
pub(crate) mod tree;
pub(crate) mod worker;
