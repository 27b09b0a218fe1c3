//! The MCP front end: any MCP client works through Placet, and its calls are decided like every other caller's.
//!
//! Owns the MCP server on the engine: which tools, resources and prompts a client sees, how a `tools/call`, or a request for one of these,
//! becomes a call of the engine, and how its outcome is worded for a model. Speaks the revisions 2026-07-28, 2025-11-25 and 2025-06-18
//! (Streamable HTTP). Decides nothing about a call: the engine does. Does not verify callers: whatever mounts [`router`] first puts a
//! shared [`VerifiedCaller`](placet_identity::VerifiedCaller) into each request. Invariant: nothing that an upstream server says about its
//! tools (annotations, names) is passed on as ours; that comes from the contract. Resources and prompts are listed as their servers name
//! them now, within limits.

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
mod uris;

pub use elicitation::ApprovalPages;
pub use server::router;
pub use shared::McpSettings;
