//! The way of a call: five stages, the approval desk, the adapters' supervisors and the tree that keeps them alive.
//!
//! Owns the actors and [`engine::Engine`], the handle that the doors use. Decides nothing itself (policy does), keeps nothing
//! itself (the ledger does), sends nothing itself (adapters do). Invariant: an admitted call is always answered, whatever dies.

pub mod engine;
pub mod submission;
pub mod answer;
pub mod views;
pub mod catalog;
pub mod settings;

mod admission;
mod call;
mod context;
mod figures;
mod registry;
mod stages;
mod adapters;
mod desk;
mod operator;
mod queries;
mod recovery;
mod actors;
