//! The MCP front end: any MCP client works through Placet, and what it may do is decided as for every other caller.
//!
//! Owns the MCP server on the engine: which tools, resources and prompts a client sees, how a `tools/call`, or a request for one of these,
//! becomes a call of the engine, and in which words its outcome is told to a model. Speaks the revisions 2026-07-28, 2025-11-25 and 2025-06-18 (Streamable HTTP). Decides nothing about a call: the
//! engine does. Does not verify callers: the one who mounts [`router`] puts a [`VerifiedCaller`](placet_identity::VerifiedCaller), shared, into each
//! request first. Invariant: of a tool, nothing that an upstream server says of itself (annotations, names) is passed on as ours; it is from the contract.
//! Resources and prompts are listed as their servers name them now, within limits.

mod bodies;
mod calls;
mod cancellation;
mod changes;
mod completions;
mod direct;
mod elicitation;
mod features;
mod held;
mod meta;
mod prompts;
mod requests;
mod resources;
mod results;
mod runs;
mod server;
mod sessions;
mod shared;
mod tasks;
mod tools;

pub use elicitation::ApprovalPages;
pub use server::router;
pub use shared::McpSettings;
