//! MCP servers as adapters: child processes over stdio, and streamable HTTP.
//!
//! Owns the connection to one MCP server, the listing of what it offers, and the translation of one dispatch into one `tools/call`,
//! `resources/read`, `prompts/get` or `completion/complete`, and of its answer into an outcome. Does not decide who may call, keeps no
//! secret, and opens no socket itself: HTTP goes through `placet-egress`.
//!
//! Invariants, written as absences:
//! - nothing of `rmcp` is in a public signature;
//! - no session with a server is used for calls of two owners of credentials, no matter who asks for it and in whatever order;
//! - no call is sent twice, and no outcome is called a failure unless the server declared it or nothing was sent;
//! - no child process sees an environment variable that its contract does not name, and none outlives its connection;
//! - nothing that a server says about itself is trusted, and nothing that it sends is kept without a limit.

mod adapter;
mod answer;
mod call;
pub mod connector;
mod escapes;
mod failure;
mod features;
mod handshake;
mod http;
mod link;
mod listener;
mod listing;
mod probe;
mod sessions;
mod settings;
mod stdio;
mod tasks;
mod text;

#[cfg(test)]
mod tests;
