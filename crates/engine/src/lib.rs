//! The way of a call: five stages, the approval service, the adapters' supervisors and the tree that keeps them alive.
//!
//! Owns the actors and [`engine::Engine`], the handle that the listeners use. Decides nothing itself (policy does), keeps nothing
//! itself (the ledger does), sends nothing itself (adapters do). Invariant: an admitted call is always answered, whatever dies.

pub mod answer;
pub mod attempts;
pub mod engine;
pub mod reload;
pub mod report;
pub mod runs;
pub mod settings;
pub mod submission;
pub mod ticket;
pub mod tool_states;
pub mod views;

mod active;
mod actors;
mod adapters;
mod admission;
mod aliases;
mod call;
mod context;
mod credentials;
mod drift;
mod fleet;
mod held_calls;
mod in_flight;
mod lifecycle;
mod outcome;
mod policies;
mod rearm;
mod recovery;
mod registry;
mod responder;
mod result;
mod resume;
mod retention;
mod rounds;
mod routes;
mod sight;
mod stages;
mod tokens;
