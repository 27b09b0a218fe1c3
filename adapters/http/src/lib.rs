//! Adapters for endpoints over HTTP that are not MCP servers: services whose requests the contract defines (`rest`), other agents (`a2a`),
//! and models that make up results for simulations (`lm`); requirements TS-01, EN-02 and EN-03.
//!
//! Owns the request of a call, and what an answer means for the call. Does not decide who may call. Invariant: the contract alone
//! defines the tools, and its one host is the only one that is contacted.

mod a2a;
mod connector;
mod lm;
mod rest;
mod target;

pub use connector::{HttpConnector, HttpSettings};

#[cfg(test)]
mod tests;
