//! The lifecycle of a call after its first attempt: what happens next, decided from plain values.
//!
//! Owns the rules. Does no I/O, reads no clock and calls no adapter: the stages and the execution tasks provide the facts and perform what
//! is decided here.

pub(crate) mod codes;
pub(crate) mod transitions;
