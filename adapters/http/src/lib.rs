//! Adapters for endpoints over HTTP that are no MCP servers: services whose requests the contract writes down (`rest`), other agents (`a2a`),
//! and models that make up results for simulations (`lm`); requirements TS-01, EN-02 and EN-03.
//!
//! Owns what a call is as a request, and what an answer says about the call. Does not decide who may call. Invariant: the contract is all there
//! is about the tools, and its one host is the only one that is reached.

mod a2a;
mod connector;
mod lm;
mod rest;
mod target;

pub use connector::{HttpConnector, HttpSettings};
