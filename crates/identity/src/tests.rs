//! Tests of the crate as its users see it. Helpers are in `support`; every token in here is signed for real.

mod acceptance;
mod acting;
mod binding;
mod certificates;
mod claims;
mod dev_key;
mod key_sets;
mod privacy;
mod proofs;
mod remembered;
mod secrets;
mod sign_in;
pub(crate) mod support;
mod tokens;
mod workloads;
