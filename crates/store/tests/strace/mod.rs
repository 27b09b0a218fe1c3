//! The store's child processes under strace: which system calls a script makes, and what becomes of it when one of them is the last
//! or fails.
//!
//! Owns the command line of strace and the reading of its log. Not here: what the child does (`crash_points`), what must be true
//! afterwards (`support`).
//!
//! strace counts each thread's calls apart: `when=N` counts in whichever thread comes to its Nth call first. So only the calls on
//! one path are counted (`-P`), which mostly one thread makes; a call that another thread's call of the same number on the same path
//! precedes cannot be struck and is counted as shadowed, never as covered.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

pub(crate) const FOLDER: &str = "PLACET_CRASH_POINTS_FOLDER";
pub(crate) const ACCOUNT: &str = "PLACET_CRASH_POINTS_ACCOUNT";
pub(crate) const SCRIPT: &str = "PLACET_CRASH_POINTS_SCRIPT";

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
const PATIENCE: Duration = Duration::from_secs(60);

/// One call of the child that can be struck.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    /// Which system call it is.
    pub(crate) kind: &'static str,
    /// The file or folder it is made on, below the scene's folder.
    pub(crate) path: PathBuf,
    /// Its number among its thread's calls of its kind on this path.
    pub(crate) number: u32,
    /// Another thread makes its call of this number on this path before.
    pub(crate) is_shadowed: bool,
    /// As strace shows it.
    pub(crate) text: String,
}

/// What is done to a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Blow {
    Kill,
    Fail(&'static str),
}

/// What is done to calls.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Treatment<'a> {
    /// Those of these kinds are written down.
    Watch(&'a [&'static str]),
    Strike(Blow, &'a Event),
    Delay {
        kind: &'static str,
        us: u32,
    },
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

/// Which calls of these kinds the script makes in its folder, by kind. It runs to its end, once for all of them.
pub(crate) fn events(kinds: &[&'static str], scene: Scene<'_>, log: &Path) -> Vec<Event> {
    let status = run(Treatment::Watch(kinds), scene, log);
    assert!(status.success(), "`{}` fails without being struck: {status}", scene.script);
    let log = fs::read_to_string(log).unwrap();
    kinds.iter().flat_map(|kind| parse(&log, kind, scene.folder)).collect()
}

fn parse(log: &str, kind: &'static str, folder: &Path) -> Vec<Event> {
    let call = format!("{kind}(");
    let mut counts: HashMap<(&str, PathBuf), u32> = HashMap::new();
    // The thread that comes to a number on a path first.
    let mut first: HashMap<(PathBuf, u32), &str> = HashMap::new();
    let mut events = Vec::new();
    for line in log.lines() {
        let Some((thread, text)) = line.split_once(' ') else { continue };
        let text = text.trim_start();
        if !text.starts_with(&call) {
            continue;
        }
        let paths = paths_in(text, folder);
        let mut own = None;
        for path in &paths {
            let count = counts.entry((thread, path.clone())).or_default();
            *count = count.saturating_add(1);
            let is_shadowed = *first.entry((path.clone(), *count)).or_insert(thread) != thread;
            own.get_or_insert((path.clone(), *count, is_shadowed));
        }
        if let Some((path, number, is_shadowed)) = own
            && (kind != "openat" || text.contains("O_CREAT"))
        {
            events.push(Event { kind, path, number, is_shadowed, text: text.to_owned() });
        }
    }
    events
}

/// The paths below the folder, or the folder itself, that a line of strace names, each once: of open files in `<>`, else in quotes.
fn paths_in(text: &str, folder: &Path) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    for word in text.split(['<', '>', '"']) {
        let found = Path::new(word).strip_prefix(folder);
        if let Ok(path) = found
            && !paths.iter().any(|known| known == path)
        {
            paths.push(path.to_owned());
        }
    }
    paths
}

/// Runs the script, and does something to some of its calls.
pub(crate) fn run(treatment: Treatment<'_>, scene: Scene<'_>, log: &Path) -> ExitStatus {
    let mut arguments: Vec<OsString> =
        ["-f", "-qq", "-y", "-e", "signal=none", "-o"].map(OsString::from).into();
    arguments.push(log.into());
    let (kinds, injection) = match treatment {
        Treatment::Watch(kinds) => (kinds.join(",?"), None),
        Treatment::Strike(Blow::Kill, event) => {
            (event.kind.to_owned(), Some(format!("signal=SIGKILL:when={}", event.number)))
        }
        Treatment::Strike(Blow::Fail(error), event) => {
            (event.kind.to_owned(), Some(format!("error={error}:when={}", event.number)))
        }
        Treatment::Delay { kind, us } => (kind.to_owned(), Some(format!("delay_enter={us}"))),
    };
    arguments.extend(["-e".into(), format!("trace=?{kinds}").into()]);
    if let Some(injection) = injection {
        arguments.extend(["-e".into(), format!("inject=?{kinds}:{injection}").into()]);
    }
    if let Treatment::Strike(_, event) = treatment {
        let path = if event.path.as_os_str().is_empty() {
            scene.folder.to_owned()
        } else {
            scene.folder.join(&event.path)
        };
        arguments.extend(["-P".into(), path.into()]);
    }
    start(arguments, scene, log)
}

#[expect(clippy::disallowed_methods, reason = "the test kills a process of its own making")]
fn start(arguments: Vec<OsString>, scene: Scene<'_>, log: &Path) -> ExitStatus {
    let mut child = Command::new("strace")
        .args(arguments)
        .arg("--")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "the_process_that_is_hit", "--ignored", "--nocapture"])
        .env(FOLDER, scene.folder)
        .env(ACCOUNT, scene.account)
        .env(SCRIPT, scene.script)
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
            panic!("`{}` hangs after a blow to {struck}", scene.script);
        }
    }
}

/// Whether the blow was the end of the child: strace ends as its child ended.
pub(crate) fn was_killed(status: ExitStatus) -> bool {
    status.signal() == Some(9)
}
