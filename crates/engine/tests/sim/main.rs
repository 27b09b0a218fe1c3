//! Seeded simulation of the whole pipeline on a virtual clock: engines over a disk that crashes, a target that misbehaves, clients
//! that retry, people who vote. Thousands of seeds in the time of a few real schedules.
//!
//! `PLACET_SIM_SEEDS=20000` runs more; `PLACET_SIM_SEED=4711` runs one and tells what happened. A seed that failed once goes into
//! `REGRESSIONS`.
//!
//! Owns the list of modules: `#[cfg(test)]` tells the lints that they are test code.

#[cfg(test)]
mod checker;
#[cfg(test)]
mod client;
#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "small numbers, and a test that overflows fails"
)]
mod disk;
#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "small numbers, and a test that overflows fails"
)]
mod process;
#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "small numbers, and a test that overflows fails"
)]
mod seeds;
#[cfg(test)]
#[expect(
    clippy::arithmetic_side_effects,
    reason = "small numbers, and a test that overflows fails"
)]
mod time;
#[cfg(test)]
mod witness;
