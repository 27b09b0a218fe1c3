//! The HTTP API on the engine, the pages that are mounted next to it, and the admin listener.
//!
//! Owns the routes, what a request must look like to be heard, the form of every answer, and the OpenAPI document that is
//! generated from the same table of routes as the router. Decides nothing about a call: the engine does. Pages are given by the composition
//! root ([`router::Pages`]); nothing here knows what is on them.
//!
//! Invariants, written as absences:
//! - no route but `/`, `/openapi.json`, the meaning of error codes and the token metadata reads a body, a path or a query before its caller is verified;
//! - no body reaches a type except through the strict parser of `placet-types`;
//! - no answer carries a refusal's `detail`, which is for the log;
//! - a caller that goes away cancels no call, decision or resolution.

pub mod answer;
pub mod body;
pub mod config;
pub mod documents;
pub mod events;
pub mod listen;
pub mod openapi;
pub mod places;
pub mod problem;
pub mod router;
pub mod state;
pub mod tls;

mod admin;
mod challenge;
mod connections;
mod counts;
mod guard;
mod paced;
mod query;
mod request;
mod routes;

#[cfg(any(test, feature = "test-support"))]
#[expect(
    missing_docs,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "these are tests, of other crates too"
)]
pub mod testing;
#[cfg(test)]
mod tests;
