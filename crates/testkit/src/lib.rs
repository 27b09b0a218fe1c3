//! What the tests of several crates need, each thing once: clocks, ids, ports, strace, a private PostgreSQL.
//!
//! Owns tools of tests only: no product crate depends on it outside of its tests. It knows no crate of ours but `types`, so that the
//! unit tests of every crate above `types` can use it.

pub mod clock;
pub mod ids;
pub mod machine;
pub mod moment;
pub mod port;
pub mod postgres;
pub mod strace;
