//! Open runs: what an orchestrator's model is offered at each of its turns, and what it has called so far.
//!
//! Owns the state of the runs that are open on this node, in memory, bounded in number, size and age. Budget, ceiling, taint and effects
//! are in the ledger: a process that ends loses which tools a run had added and what it remembered, never what it did. Decides nothing: a
//! tool that a run has is in the caller's surface. Layers: `views`, then `names`, `offer` and `batch`, then `turns` with `state`,
//! `sessions` and `exposure`, then `definitions` and `kept`.

pub mod batch_views;
pub mod sessions;
pub mod views;

pub(crate) mod batch;
pub(crate) mod definitions;
pub(crate) mod exposure;
pub(crate) mod kept;
pub(crate) mod names;
pub(crate) mod offer;
pub(crate) mod state;
pub(crate) mod turns;
