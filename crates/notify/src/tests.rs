//! What is told to whom, when, in which order, and what is left over a restart: on a chain in memory, with a clock of the test's own.

mod delivery;
mod going_on;
mod looks;
mod notes;
mod orders;
pub(crate) mod support;
mod who;
mod wire;
