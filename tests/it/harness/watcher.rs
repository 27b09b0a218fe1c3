//! What ends the programs that a test has started where the test itself was ended: killed, aborted, out of memory.
//!
//! Owns one shell for each test process, whose input ends with that process, however it ends. Invariant: only a process that was named to it,
//! and that began when it was named, is ended: a number that was given again meanwhile is somebody else's.

use std::{
    fs,
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::{Child, ChildStdin, Command, Stdio},
    sync::OnceLock,
};

use parking_lot::Mutex;

/// Reads a number and a start in each line until its input ends; then asks those that are still there to end, and makes them.
const SCRIPT: &str = r#"
all=
while read -r pid start; do all="$all $pid:$start"; done
left() {
  for one in $all; do
    now=$(sed 's/.*) //' "/proc/${one%:*}/stat" 2>/dev/null | cut -d' ' -f20)
    [ "$now" = "${one#*:}" ] && echo "${one%:*}"
  done
}
pids=$(left)
[ -z "$pids" ] && exit
kill -QUIT $pids
sleep 2
pids=$(left)
[ -z "$pids" ] || kill -KILL $pids
"#;

/// Sees to it that a program ends with this process.
pub(crate) fn watch(pid: Option<u32>) {
    static WATCHER: OnceLock<Watcher> = OnceLock::new();
    let pid = pid.expect("it was started a moment ago");
    // One that has ended already needs nobody to end it.
    if let Some(start) = start_of(pid) {
        WATCHER.get_or_init(Watcher::start).name(pid, &start);
    }
}

/// Starts a program that ends with this process.
pub(crate) fn started(command: &mut tokio::process::Command) -> tokio::process::Child {
    let child = command.spawn().unwrap();
    watch(child.id());
    child
}

#[derive(Debug)]
struct Watcher {
    input: Mutex<ChildStdin>,
    _shell: Child,
}

impl Watcher {
    #[expect(clippy::disallowed_methods, reason = "a program that outlives this one has to be one")]
    fn start() -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::null());
        // Anyone who ends the whole group of a test does not end this.
        let mut shell = command.stderr(Stdio::null()).process_group(0).spawn().unwrap();
        Self { input: Mutex::new(shell.stdin.take().unwrap()), _shell: shell }
    }

    fn name(&self, pid: u32, start: &str) {
        writeln!(self.input.lock(), "{pid} {start}").unwrap();
    }
}

/// When a process began, as the kernel counts.
fn start_of(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name may have any characters in it.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(19).map(str::to_owned)
}

#[tokio::test]
async fn a_program_ends_when_anyone_who_watched_it_is_gone_and_one_that_began_later_does_not() {
    let sleep = || {
        let mut command = tokio::process::Command::new("/bin/sleep");
        command.arg("600").stdin(Stdio::null()).kill_on_drop(true).spawn().unwrap()
    };
    let (mut ours, mut other) = (sleep(), sleep());
    let watcher = Watcher::start();
    watcher.name(ours.id().unwrap(), &start_of(ours.id().unwrap()).unwrap());
    // Its number was somebody else's when it was named.
    watcher.name(other.id().unwrap(), "1");
    assert!(ours.try_wait().unwrap().is_none());
    drop(watcher);
    super::within("it ends", ours.wait()).await.unwrap();
    assert!(other.try_wait().unwrap().is_none(), "it was never ours");
}
