//! The ledger's verbs over the model store, with permits from real decisions.

mod approvals;
mod directives;
mod dispatching;
mod keeping;
#[expect(clippy::arithmetic_side_effects, reason = "small numbers, counted naively")]
mod orders;
mod settling;
mod world;
