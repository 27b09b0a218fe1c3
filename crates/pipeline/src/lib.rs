//! The way of a call: five stages, the approval desk, the adapters' supervisors and the tree that keeps them alive.
//!
//! Owns the actors and [`engine::Engine`], the handle that the doors use. Decides nothing itself (policy does), keeps nothing
//! itself (the ledger does), sends nothing itself (adapters do). Invariant: an admitted call is always answered, whatever dies.

pub mod answer;
pub mod attempts;
pub mod catalog;
mod decisions;
pub mod desk;
pub mod engine;
pub mod reload;
pub mod report;
pub mod settings;
pub mod submission;
pub mod ticket;
pub mod views;

mod active;
mod actors;
mod adapters;
mod admission;
mod call;
mod context;
mod credential_faults;
mod figures;
mod fleet;
mod hands;
mod operator;
mod policies;
mod queries;
mod rearm;
mod recovery;
mod registry;
mod retention;
mod stages;
mod standing;
mod subjects;
mod tokens;
