//! The ledger's verbs over the model store, with permits from real decisions.

mod approvals;
mod dispatching;
mod settling;
mod world;
