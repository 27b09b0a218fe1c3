//! Who is notified of what, when, in which order, and what survives a restart: on a chain in memory, with a clock of the test's own.

mod delivery;
mod going_on;
mod looks;
mod notes;
mod orders;
pub(crate) mod support;
mod who;
mod wire;
