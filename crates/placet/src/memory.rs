//! The memory of this process, which holds secrets in use, is private to the process.
//!
//! Owns the kernel settings for it. Does not own the memory of children: their limits are the MCP adapter's. Invariants: a process that
//! crashes leaves no core file, whatever its starter allows; no other process of the same user, so no tool that runs as a child, reads its
//! memory or the environment it was started with.

use rustix::process::{Resource, Rlimit, setrlimit};

use crate::failure::{Attempted as _, Failure};

/// Sets it for the rest of the process's life; nothing in this process undoes it.
pub(crate) fn keep_to_itself() -> Result<(), Failure> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).attempted("core files cannot be switched off")?;
    closed_to_others()
}

/// In addition to the limit, since a kernel that pipes cores into a program ignores it.
#[cfg(target_os = "linux")]
fn closed_to_others() -> Result<(), Failure> {
    use rustix::process::{DumpableBehavior, set_dumpable_behavior};
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .attempted("the memory of this process cannot be closed to others")
}

#[cfg(not(target_os = "linux"))]
fn closed_to_others() -> Result<(), Failure> {
    Ok(())
}
