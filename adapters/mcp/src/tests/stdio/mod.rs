//! Child processes as servers.

mod calls;
mod confined;
mod life;
mod listing;
mod probes;
