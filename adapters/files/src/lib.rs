//! The compiled-in adapters. There is one: `files`, which works inside one directory.
//!
//! Owns the connector of `files`, the definition of its tools, and the contract that goes with them. Does not decide who may call it.
//! Invariant: no path given to it is ever resolved outside its root, and it changes nothing without a
//! [`placet_adapter::adapter::Dispatch`].

pub mod contract;
pub mod files;
