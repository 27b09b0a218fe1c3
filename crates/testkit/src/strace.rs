//! strace: kills, fails or delays a process at the n-th of a system call.
//!
//! Owns its arguments and what it reports. Invariant: an injection counts only if strace's own report, or the end of the
//! process while it was attached, shows it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};
use tokio::{
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

/// What happens at the system call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tamper {
    /// The process is killed as it enters the call.
    Kill,
    /// The call is not made and answers this error.
    Error(Errno),
    /// The call is not made and answers that nothing was written.
    Short,
    /// The call is delayed by so many milliseconds.
    Delay(u64),
}

/// An error of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Errno {
    /// The device failed.
    #[serde(rename = "EIO")]
    Io,
    /// It is full.
    #[serde(rename = "ENOSPC")]
    NoSpace,
}

/// One injection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct At {
    /// The system call.
    pub call: String,
    /// The how-manieth one, from 1.
    pub when: u64,
    /// Whether every later one too.
    #[serde(default)]
    pub onwards: bool,
    /// What happens.
    pub tamper: Tamper,
}

impl At {
    fn arguments(&self) -> [OsString; 4] {
        let what = match self.tamper {
            Tamper::Kill => "signal=SIGKILL".to_owned(),
            Tamper::Error(Errno::Io) => "error=EIO".to_owned(),
            Tamper::Error(Errno::NoSpace) => "error=ENOSPC".to_owned(),
            Tamper::Short => "retval=0".to_owned(),
            Tamper::Delay(ms) => format!("delay_enter={}", ms.saturating_mul(1_000)),
        };
        let plus = if self.onwards { "+" } else { "" };
        let inject = format!("inject={}:{what}:when={}{plus}", self.call, self.when);
        ["-e".into(), format!("trace={}", self.call).into(), "-e".into(), inject.into()]
    }
}

/// What is put before the program so that it starts under strace. The program keeps the process number of the child.
pub fn wrapper(strace: &Path, at: &At, report: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        vec![strace.into(), "-D".into(), "-f".into(), "-qq".into(), "-o".into(), report.into()];
    words.extend(at.arguments());
    words
}

/// Whether a report shows that something was injected.
pub fn injections(report: &Path) -> u64 {
    let text = fs::read_to_string(report).unwrap_or_default();
    let shown = |line: &&str| line.contains("(INJECTED)") || line.contains("(DELAYED)");
    u64::try_from(text.lines().filter(shown).count()).unwrap_or(u64::MAX)
}

/// An attached strace.
#[derive(Debug)]
pub struct Tracer {
    child: Child,
    report: PathBuf,
}

impl Tracer {
    /// Attaches to a process.
    ///
    /// # Errors
    /// strace does not start, or does not attach.
    pub async fn attach(strace: &Path, pid: u32, at: &At, report: &Path) -> Result<Self> {
        Self::attach_as(&["-f", "-qq", "-o"], strace, pid, at, report).await
    }

    /// Attaches to one thread and to no other.
    ///
    /// # Errors
    /// strace does not start, or does not attach.
    pub async fn attach_thread(strace: &Path, thread: u32, at: &At, report: &Path) -> Result<Self> {
        Self::attach_as(&["-qq", "-o"], strace, thread, at, report).await
    }

    async fn attach_as(
        options: &[&str],
        strace: &Path,
        pid: u32,
        at: &At,
        report: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(strace);
        command
            .args(options)
            .arg(report)
            .args(at.arguments())
            .args(["-p", &pid.to_string()])
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let child = command.spawn().context("strace does not start")?;
        let tracer = Self { child, report: report.to_owned() };
        let attached = timeout(Duration::from_secs(5), async {
            while traced(pid) == Some(false) {
                sleep(Duration::from_millis(2)).await;
            }
        });
        attached.await.context("strace does not attach")?;
        Ok(tracer)
    }

    /// How many injections it has reported so far.
    pub fn injections(&self) -> u64 {
        injections(&self.report)
    }

    /// Waits for an injection for so long.
    pub async fn injected_within(&self, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if self.injections() > 0 {
                return true;
            }
            sleep(Duration::from_millis(10)).await;
        }
        false
    }

    /// Lets go of the process.
    pub async fn detach(mut self) {
        let pid = self.child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        if let Some(pid) = pid {
            // It may have ended with its process.
            kill_process(pid, Signal::INT).unwrap_or_default();
        }
        if timeout(Duration::from_secs(5), self.child.wait()).await.is_err() {
            self.child.start_kill().unwrap_or_default();
        }
    }
}

/// Whether somebody traces the process; `None` when it is gone.
fn traced(pid: u32) -> Option<bool> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("TracerPid:"))?;
    Some(!line.ends_with("\t0"))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsString, fs, path::Path};

    use super::{At, Errno, Tamper, injections, wrapper};

    #[test]
    fn an_injection_is_written_as_strace_reads_it() {
        let at = |tamper, onwards| At { call: "fdatasync".to_owned(), when: 3, onwards, tamper };
        let last = |at: &At| at.arguments()[3].clone();
        assert_eq!(last(&at(Tamper::Kill, false)), "inject=fdatasync:signal=SIGKILL:when=3");
        assert_eq!(last(&at(Tamper::Error(Errno::Io), true)), "inject=fdatasync:error=EIO:when=3+");
        assert_eq!(last(&at(Tamper::Short, false)), "inject=fdatasync:retval=0:when=3");
        assert_eq!(
            last(&at(Tamper::Delay(20), false)),
            "inject=fdatasync:delay_enter=20000:when=3"
        );
        let words = wrapper(Path::new("strace"), &at(Tamper::Kill, false), Path::new("r"));
        assert_eq!(words[0], OsString::from("strace"));
        assert_eq!(words[1], OsString::from("-D"));
    }

    #[test]
    fn only_what_strace_reports_as_injected_counts() {
        let folder = tempfile::tempdir().unwrap();
        let report = folder.path().join("report");
        assert_eq!(injections(&report), 0);
        fs::write(
            &report,
            "7 fdatasync(13) = 0\n7 fdatasync(13) = -1 EIO (I/O error) (INJECTED)\n",
        )
        .unwrap();
        assert_eq!(injections(&report), 1);
    }
}
