//! `placet-chaos`: drives a deployment of Placet through seeded schedules of faults, and proves from outside what it did.
//!
//! Owns the harness in two halves that share only the form of a [`history`]. One half injects faults; the other half judges:
//! the [`witness`] is the upstream in which effects happen, the [`checker`] compares what was answered with what happened, the
//! [`report`] presents it. What both need to run is `placet-testkit`'s. Invariant: nothing in the judging half uses the other half.

pub mod checker;
pub mod history;
mod listed;
pub mod report;
pub mod witness;
