//! The five stages as functions; the actors in [`crate::actors`] are thin shells around them.
//!
//! In the order of a call: build, broker, gate, invoke, return.

pub(crate) mod broker;
pub(crate) mod build;
pub(crate) mod credential;
pub(crate) mod deferral;
pub(crate) mod duplicate;
pub(crate) mod execute;
pub(crate) mod facts;
pub(crate) mod gate;
pub(crate) mod hold;
pub(crate) mod invoke;
pub(crate) mod meters;
pub(crate) mod parked;
pub(crate) mod references;
pub(crate) mod refuse;
pub(crate) mod retry;
pub(crate) mod run;
pub(crate) mod runner;
pub(crate) mod sending;
