//! Servers over streamable HTTP.

mod calls;
mod modern;
mod peer;
mod probes;
mod sessions;
