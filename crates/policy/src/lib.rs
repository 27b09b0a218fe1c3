//! Policy: decides, with Cedar, whether a call happens, waits for people or is refused; alone makes a [`permit::Permit`].
//!
//! Owns the Cedar schema (generated from the contracts), the checks a bundle passes before it is used, the decision, the
//! tool surface, who may review an approval and manage the approval service, and how all of that is explained. Does no I/O and reads no clock: files,
//! time and identity come in as values. Invariants: a policy that cannot be evaluated denies (trap T1); adding a `forbid`
//! never turns a denial into anything better; what is not decided is denied.

pub mod bundle;
pub mod cases;
pub mod catalog;
pub mod decision;
pub mod explain;
pub mod facts;
pub mod manage;
pub mod matrix;
pub mod permit;
pub mod policies;
pub mod review;
mod route;
pub mod snapshot;
pub mod staffing;
pub mod verdict;

mod actions;
mod annotations;
mod approval;
mod condition;
mod context;
mod decide;
mod entities;
mod evaluate;
mod history;
mod input;
mod mentions;
mod nesting;
mod schema;
mod surface;
mod value;
mod vocabulary;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod testing;
