//! The ledger's verbs over the model store, with permits from real decisions.

mod approvals;
mod dispatching;
mod keeping;
mod settling;
mod world;
