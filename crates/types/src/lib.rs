//! The vocabulary of Placet: what a call, its result, a contract, a principal and a refusal are.
//!
//! Owns the wire envelopes with their JSON Schemas, strict JSON and digests, and the names everything else uses. Does not
//! decide, store, send or read a clock: this crate is pure. Invariant: a value of a type in here has passed the checks
//! its name promises (a [`ids::TenantId`] is never empty, a digest is over a strictly parsed value).

pub mod approval;
pub mod argument_schema;
pub mod binding;
pub mod bounded;
pub mod caller;
pub mod clock;
pub mod contract;
pub mod digest;
pub mod directive;
pub mod directory;
pub mod envelope;
pub mod error;
pub mod evidence;
pub mod ids;
pub mod json;
pub mod mode;
mod named;
pub mod narrowing;
pub mod principal;
pub mod proof;
pub mod run_context;
pub mod run_history;
pub mod schemas;
pub mod sessions;
pub mod taint;
pub mod text;
