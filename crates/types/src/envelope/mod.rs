//! The wire envelopes: a call, its result, and the proposal of a held call (TM-02, TM-03, TM-09).
//!
//! Owns their exact fields. Invariant: no other field is accepted, and each serialises to a document its schema accepts.

pub mod call;
pub mod proposal;
pub mod result;
