//! The pipeline against a store in memory and an adapter that keeps its own witness.
//!
//! Owns the behaviour of a whole engine without doors: the way of a call, duplicates, approvals, faults of actors. What needs a disk,
//! a network or a process is in the end-to-end tests.

mod world;

mod calls;
mod approvals;
mod faults;
mod schedules;
mod told;
