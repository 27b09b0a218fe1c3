//! The approval desk: what waits for people, and what happens when they have decided.
//!
//! Owns taking up parked calls, expiry, and the people's side of an approval. Who may decide is Cedar's answer, never ours.

pub(crate) mod people;
pub(crate) mod resume;
