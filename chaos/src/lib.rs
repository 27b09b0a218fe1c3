//! `placet-chaos`: drives a deployment of Placet through seeded schedules of faults, and proves from outside what it did.
//!
//! Owns the harness in two halves that share only the form of a [`history`]. One half makes trouble; the other half judges:
//! the [`witness`] is the world that effects happen in, the [`checker`] reads what was said and what happened, the [`report`]
//! tells it. What both need to run is `placet-testkit`'s. Invariant: nothing in
//! the judging half uses the half that makes trouble.

pub mod checker;
pub mod history;
pub mod report;
pub mod witness;
