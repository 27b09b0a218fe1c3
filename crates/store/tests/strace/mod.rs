//! The store's child processes under strace: which system calls a script makes, and what becomes of it when one of them is the last
//! or fails.
//!
//! Owns the command line of strace and the reading of its log. Not here: what the child does (`crash_points`), what must be true
//! afterwards (`support`).
//!
//! strace counts each thread's calls apart: `when=N` strikes in whichever thread comes to its Nth call first. So the child makes a
//! number of harmless calls in every thread that it can reach ([`burn`]), a different number in each; a call that another thread's
//! call of the same number still precedes cannot be struck and is counted as shadowed, never as covered.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

pub(crate) const FOLDER: &str = "PLACET_CRASH_POINTS_FOLDER";
pub(crate) const ACCOUNT: &str = "PLACET_CRASH_POINTS_ACCOUNT";
pub(crate) const SCRIPT: &str = "PLACET_CRASH_POINTS_SCRIPT";
pub(crate) const BURN: &str = "PLACET_CRASH_POINTS_BURN";

/// Every system call that changes a file, a folder or what is on disk of them.
pub(crate) const CALLS: [&str; 16] = [
    "openat",
    "write",
    "pwrite64",
    "fallocate",
    "ftruncate",
    "fdatasync",
    "fsync",
    "sync_file_range",
    "rename",
    "renameat",
    "renameat2",
    "unlink",
    "unlinkat",
    "mkdir",
    "mkdirat",
    "rmdir",
];
/// More than any thread makes of one kind that cannot be reached.
const BURN_STEP: u32 = 150;
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes `step * 150` harmless calls of the kind that is being counted, in this thread.
pub(crate) fn burn(kind: &str, step: u32) {
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { return };
    let nowhere = Path::new("/nonexistent/placet");
    for _ in 0..BURN_STEP.saturating_mul(step) {
        // Most of them fail, which is all the same.
        match kind {
            "openat" => drop(File::open(nowhere)),
            "write" => drop(std::io::Write::write(&mut &null, b"x")),
            "pwrite64" => drop(null.write_at(b"x", 0)),
            "ftruncate" => drop(null.set_len(0)),
            "fdatasync" => drop(null.sync_data()),
            "fsync" => drop(null.sync_all()),
            "rename" => drop(fs::rename(nowhere, nowhere)),
            "unlink" => drop(fs::remove_file(nowhere)),
            "mkdir" => drop(fs::create_dir(nowhere)),
            "rmdir" => drop(fs::remove_dir(nowhere)),
            // Made by few threads and seldom.
            _ => return,
        }
    }
}

/// One call of the child that can be struck.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Its number among its thread's calls of its kind.
    pub(crate) number: u32,
    /// Another thread makes its call of this number before.
    pub(crate) is_shadowed: bool,
    /// As strace shows it.
    pub(crate) text: String,
}

/// What is done to a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Blow<'a> {
    Nothing,
    Kill { number: u32 },
    Fail { number: u32, error: &'a str },
    Delay { us: u32 },
}

/// A child and where it works.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) script: &'a str,
    pub(crate) folder: &'a Path,
    pub(crate) account: &'a Path,
}

/// Says why nothing can be traced here; nothing where it can.
pub(crate) fn check_strace() -> Result<(), String> {
    if strace(&["-V"]).is_err() {
        return Err("strace is missing: install it (Debian, Ubuntu: apt-get install strace); \
            without it no crash point can be enumerated"
            .to_owned());
    }
    let probe = strace(&["-f", "-qq", "-o", "/dev/null", "-e", "trace=none", "true"]);
    match probe {
        Ok(status) if status.success() => Ok(()),
        _ => Err("strace may not trace its own child here: ptrace is forbidden (in a container allow it with \
            --cap-add=SYS_PTRACE or a seccomp profile that permits ptrace; on the host see kernel.yama.ptrace_scope)"
            .to_owned()),
    }
}

#[expect(clippy::disallowed_methods, reason = "the test starts a process of its own making")]
fn strace(arguments: &[&str]) -> std::io::Result<ExitStatus> {
    let mut command = Command::new("strace");
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
}

/// Which calls of `kind` the script makes in its folder. It runs to its end.
pub(crate) fn events(kind: &str, scene: Scene<'_>, log: &Path) -> Vec<Event> {
    let status = run(kind, Blow::Nothing, scene, log);
    assert!(status.success(), "`{}` fails without being struck: {status}", scene.script);
    parse(&fs::read_to_string(log).unwrap(), kind, scene.folder)
}

fn parse(log: &str, kind: &str, folder: &Path) -> Vec<Event> {
    let (folder, call) = (folder.to_str().unwrap(), format!("{kind}("));
    let mut threads: HashMap<&str, u32> = HashMap::new();
    // The thread that comes to a number first.
    let mut first: HashMap<u32, &str> = HashMap::new();
    let mut events = Vec::new();
    for line in log.lines() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if !text.starts_with(&call) {
            continue;
        }
        let count = threads.entry(thread).or_default();
        *count = count.saturating_add(1);
        let number = *count;
        let is_shadowed = *first.entry(number).or_insert(thread) != thread;
        if text.contains(folder) && (kind != "openat" || text.contains("O_CREAT")) {
            events.push(Event { number, is_shadowed, text: text.to_owned() });
        }
    }
    events
}

/// Runs the script and strikes the calls of `kind`.
pub(crate) fn run(kind: &str, blow: Blow<'_>, scene: Scene<'_>, log: &Path) -> ExitStatus {
    let mut arguments: Vec<OsString> =
        ["-f", "-qq", "-y", "-e", "signal=none", "-o"].map(OsString::from).into();
    arguments.push(log.into());
    arguments.extend(["-e".into(), format!("trace=?{kind}").into()]);
    let injection = match blow {
        Blow::Nothing => None,
        Blow::Kill { number } => Some(format!("signal=SIGKILL:when={number}")),
        Blow::Fail { number, error } => Some(format!("error={error}:when={number}")),
        Blow::Delay { us } => Some(format!("delay_enter={us}")),
    };
    if let Some(injection) = injection {
        arguments.extend(["-e".into(), format!("inject=?{kind}:{injection}").into()]);
    }
    // Harmless calls would be delayed too.
    let burnt = if matches!(blow, Blow::Delay { .. }) { "" } else { kind };
    start(arguments, burnt, scene, log)
}

#[expect(clippy::disallowed_methods, reason = "the test kills a process of its own making")]
fn start(arguments: Vec<OsString>, burnt: &str, scene: Scene<'_>, log: &Path) -> ExitStatus {
    let mut child = Command::new("strace")
        .args(arguments)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_is_struck", "--ignored", "--nocapture"])
        .env(FOLDER, scene.folder)
        .env(ACCOUNT, scene.account)
        .env(SCRIPT, scene.script)
        .env(BURN, burnt)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let step = Duration::from_millis(2);
    let mut left = PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        std::thread::park_timeout(step);
        left = left.saturating_sub(step);
        if left.is_zero() {
            let seen = fs::read_to_string(log).unwrap_or_default();
            let struck = seen.lines().find(|line| line.contains("(INJECTED)")).unwrap_or("nothing");
            panic!("`{}` hangs after a blow to {burnt}: {struck}", scene.script);
        }
    }
}

/// Whether the blow was the end of the child: strace ends as its child ended.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}
