//! The life of a call after its first try: what happens next, decided from plain values.
//!
//! Owns the rules. Reads no store, no clock and calls no adapter: the stages and the execution tasks bring the facts and perform what is
//! decided here.

pub(crate) mod codes;
pub(crate) mod transitions;
