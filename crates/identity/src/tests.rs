//! Tests of the crate through its public API. Helpers are in `support`; every token here has a real signature.

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
