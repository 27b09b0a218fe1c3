//! Child processes as servers.

mod calls;
mod life;
mod listing;
mod probes;
