//! What a child process cannot do: gain privileges, exceed its limits, write a core file.
//!
//! Owns how the limits of a contract are applied to the process. Does not choose them. Invariants: a process that could not be limited is
//! killed before it is returned; the limits hold for whatever it starts.

use std::{io, num::NonZeroU64};

use placet_types::contract::process::ProcessFile;
use rustix::{
    process::{Pid, Resource, Rlimit, prlimit},
    thread::set_no_new_privs,
};
use tokio::{
    process::{Child, Command},
    runtime::Handle,
};

use super::sandbox::Rules;

/// Starts a program within its limits, and within the rules that [`Rules::of`] made of them.
pub(super) fn spawn(
    command: &mut Command,
    bounds: &ProcessFile,
    rules: Option<Rules>,
) -> io::Result<Child> {
    let mut child = spawn_unprivileged(command, rules)?;
    let pid = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    if let Err(error) = pid.map_or(Ok(()), |pid| bind(pid, bounds)) {
        // An error means that it has ended already.
        let _gone = child.start_kill().is_err();
        return Err(error);
    }
    Ok(child)
}

/// `no_new_privs` and the rules are attributes of a thread, and inherited by whatever the thread starts. So a thread sets them, starts the
/// program and ends; the other threads of Placet are unaffected.
fn spawn_unprivileged(command: &mut Command, rules: Option<Rules>) -> io::Result<Child> {
    let runtime = Handle::current();
    std::thread::scope(|scope| {
        let starting = scope.spawn(|| {
            set_no_new_privs(true)?;
            rules.map_or(Ok(()), Rules::restrict)?;
            let _entered = runtime.enter();
            command.spawn()
        });
        starting.join().unwrap_or_else(|_panic| Err(io::Error::other("the start was cut short")))
    })
}

/// Sets the limits of a process that has just started. What it may have started in that moment is not limited.
fn bind(pid: Pid, bounds: &ProcessFile) -> io::Result<()> {
    let set = |resource, most: u64| {
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        prlimit(Some(pid), resource, limit).map(drop)
    };
    set(Resource::Core, 0)?;
    for (resource, most) in [
        (Resource::As, bounds.memory_bytes_max),
        (Resource::Nofile, bounds.open_files_max),
        (Resource::Nproc, bounds.processes_max),
        (Resource::Cpu, bounds.cpu_s_max),
        (Resource::Fsize, bounds.file_bytes_max),
    ] {
        if let Some(most) = most.map(NonZeroU64::get) {
            set(resource, most)?;
        }
    }
    Ok(())
}
