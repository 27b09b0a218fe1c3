//! The five stages as functions; the actors in [`crate::actors`] are thin shells around them.
//!
//! In the order of a call: build, broker, gate, invoke, return.

pub(crate) mod again;
pub(crate) mod approach;
pub(crate) mod broker;
pub(crate) mod build;
pub(crate) mod credential;
pub(crate) mod duplicate;
pub(crate) mod execute;
pub(crate) mod facts;
pub(crate) mod gate;
pub(crate) mod hold;
pub(crate) mod invoke;
pub(crate) mod meters;
pub(crate) mod put_off;
pub(crate) mod recorded;
pub(crate) mod references;
pub(crate) mod refuse;
pub(crate) mod resolve;
pub(crate) mod result;
pub(crate) mod ret;
pub(crate) mod run;
pub(crate) mod sending;
pub(crate) mod settle;
pub(crate) mod take;
pub(crate) mod unsettled;
