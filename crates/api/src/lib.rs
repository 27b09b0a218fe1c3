//! The HTTP API on the engine, and the admin listener beside it.
//!
//! Owns the routes, what a request must look like to be heard, the form of every answer, and the OpenAPI document that is
//! generated from the same table of routes as the router. Decides nothing about a call: the engine does.
//!
//! Invariants, written as absences:
//! - no route but `/`, `/openapi.json`, the token metadata and the console's reads a body, a path or a query before its caller is verified;
//! - no body reaches a type except through the strict parser of `placet-types`;
//! - no answer carries a refusal's `detail`, which is for the log;
//! - a caller that goes away cancels no call, decision or resolution.

pub mod backups;
pub mod config;
pub mod console;
pub mod documents;
pub mod listen;
pub mod openapi;
pub mod problem;
pub mod tls;

mod admin;
mod answer;
mod api;
mod body;
mod challenge;
mod connections;
mod events;
mod guard;
mod paced;
mod per_address;
mod query;
mod request;
mod router;
mod routes;
mod streams;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
