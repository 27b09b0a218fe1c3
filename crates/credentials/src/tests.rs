//! The broker against a token service that misbehaves as each test scripts it, over real sockets.

mod answers;
mod cache;
mod claims;
mod codes;
mod echoes;
mod privacy;
mod refusals;
mod requests;
mod revocations;
mod rotation;
mod support;
