//! Servers over streamable HTTP.

mod beginnings;
mod calls;
mod modern;
mod owners;
mod peer;
mod probes;
mod sessions;
mod shares;
