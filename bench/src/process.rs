//! The operating system's counts for a process: CPU time, context switches, memory.
//!
//! Owns the reading of `/proc`. Invariant: what cannot be read is an error, never zero.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result};

/// The clock ticks of a second in `/proc/PID/stat`, which Linux fixes for programs.
const TICKS_PER_SECOND: u64 = 100;

/// Counts of one process since its start, and its memory now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Usage {
    /// User and system time of all its threads.
    pub(crate) cpu: Duration,
    /// How often its live threads gave up the CPU to wait.
    pub(crate) waits: u64,
    /// Resident memory, in bytes.
    pub(crate) resident: u64,
}

impl Usage {
    /// The counts of this process.
    pub(crate) fn of(pid: u32) -> Result<Self> {
        let folder = format!("/proc/{pid}");
        let read = |name: &str| {
            let path = format!("{folder}/{name}");
            fs::read_to_string(&path).with_context(|| format!("no `{path}`"))
        };
        let mut waits: u64 = 0;
        for thread in fs::read_dir(format!("{folder}/task"))? {
            // A thread that ends meanwhile has no count.
            let status = fs::read_to_string(thread?.path().join("status")).unwrap_or_default();
            let count = field(&status, "voluntary_ctxt_switches:").unwrap_or(0);
            waits = waits.saturating_add(count);
        }
        let resident = field(&read("status")?, "VmRSS:").context("no resident memory")?;
        let cpu = cpu(&read("stat")?).context("no processor time")?;
        Ok(Self { cpu, waits, resident: resident.saturating_mul(1_024) })
    }
}

/// User and system time of all processes with this name; `None` if there are none.
pub(crate) fn cpu_of_all(name: &str) -> Result<Option<Duration>> {
    let mut all = None;
    for process in fs::read_dir("/proc")? {
        // An entry that is not a process has none, and neither has a process that ends meanwhile.
        let stat = fs::read_to_string(process?.path().join("stat")).unwrap_or_default();
        if stat.contains(&format!(" ({name}) ")) {
            let sum: Duration = all.unwrap_or_default();
            all = Some(sum.saturating_add(cpu(&stat).unwrap_or_default()));
        }
    }
    Ok(all)
}

/// The first number of a line of `/proc/PID/status`.
fn field(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time in the text of `/proc/PID/stat`: the 14th and 15th field, counted behind the name, which may hold spaces.
fn cpu(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let all = ticks()?.saturating_add(ticks()?);
    Some(Duration::from_millis(all.saturating_mul(1_000).div_euclid(TICKS_PER_SECOND)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Usage, cpu, cpu_of_all, field};

    #[test]
    fn processor_time_is_user_and_system_time() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 4194560 9 9 9 9 150 25 3 3 20 0 5 0 99 1 1";
        assert_eq!(cpu(stat), Some(Duration::from_millis(1_750)));
        assert_eq!(cpu("7 (x) S 1 2"), None);
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let status = "VmHWM:\t  9 kB\nVmRSS:\t 1024 kB\nnonvoluntary_ctxt_switches:\t5\nvoluntary_ctxt_switches:\t4\n";
        assert_eq!(field(status, "VmRSS:"), Some(1_024));
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(4));
        assert_eq!(field(status, "VmSwap:"), None);
    }

    #[test]
    fn processes_are_found_by_their_name() {
        let own = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert!(cpu_of_all(own.trim()).unwrap().is_some());
        assert_eq!(cpu_of_all("no such process").unwrap(), None);
    }

    #[test]
    fn a_process_that_has_ended_has_no_counts() {
        assert!(Usage::of(std::process::id()).unwrap().resident > 0);
        assert!(Usage::of(u32::MAX).is_err());
    }
}
