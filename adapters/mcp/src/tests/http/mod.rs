//! Servers over streamable HTTP.

mod calls;
mod modern;
mod owners;
mod peer;
mod probes;
mod sessions;
mod shares;
