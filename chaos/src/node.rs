//! One `placet serve` as a child: its folder, its start, its signals, its end.
//!
//! Owns the process and its output. Does not decide when it is started or killed. Invariants: every wait is
//! bounded; the process ends with us, even when we are killed; its environment contains only what is named here.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{ExitStatus, Stdio},
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::{Instant, sleep, timeout},
};

use placet_testkit::machine::Machine;

/// How long a start may take on a busy machine.
pub(crate) const START: Duration = Duration::from_secs(60);
/// How long a killed process may take to be gone.
const GONE: Duration = Duration::from_secs(20);

#[derive(Debug, Clone, Default)]
pub(crate) struct Launch {
    /// The program and arguments in front of it: strace with its injection.
    pub(crate) wrapper: Vec<OsString>,
    /// The environment variables; there are no others.
    pub(crate) env: Vec<(String, OsString)>,
    /// Arguments of `placet serve`.
    pub(crate) args: Vec<String>,
}

#[derive(Debug)]
pub(crate) enum Started {
    /// It reports that it listens.
    Up,
    /// It ended before that.
    Ended(ExitStatus),
}

#[derive(Debug)]
pub(crate) struct Node {
    /// From 0.
    pub(crate) number: usize,
    pub(crate) folder: PathBuf,
    /// The address for callers; the same over all its starts.
    pub(crate) listen: SocketAddr,
    /// The address of health and metrics.
    pub(crate) admin: SocketAddr,
    /// Held by the one who starts it or works on its files.
    pub(crate) gate: tokio::sync::Mutex<()>,
    placet: PathBuf,
    setpriv: Option<PathBuf>,
    launch: Mutex<Launch>,
    child: tokio::sync::Mutex<Option<Child>>,
    pid: AtomicU64,
    starts: AtomicU64,
}

impl Node {
    pub(crate) fn new(
        number: usize,
        folder: PathBuf,
        listen: SocketAddr,
        admin: SocketAddr,
        placet: &Path,
        machine: &Machine,
    ) -> Self {
        Self {
            number,
            folder,
            listen,
            admin,
            gate: tokio::sync::Mutex::default(),
            placet: placet.to_owned(),
            setpriv: machine.setpriv.clone(),
            launch: Mutex::default(),
            child: tokio::sync::Mutex::default(),
            pid: AtomicU64::new(0),
            starts: AtomicU64::new(0),
        }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.join("placet.yaml")
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.folder.join("node.log")
    }

    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    pub(crate) fn pid(&self) -> Option<u32> {
        u32::try_from(self.pid.load(Ordering::SeqCst)).ok().filter(|pid| *pid != 0)
    }

    /// The state of its process, as the kernel names it; `None` when there is none, or only its remains.
    pub(crate) fn state(&self) -> Option<String> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid()?)).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let state = rest.split_whitespace().next().filter(|state| !matches!(*state, "Z" | "X"));
        state.map(str::to_owned)
    }

    /// Changes the launch of its next starts.
    pub(crate) fn launched_with(&self, change: impl FnOnce(&mut Launch)) {
        change(&mut self.launch.lock());
    }

    pub(crate) fn launch(&self) -> Launch {
        self.launch.lock().clone()
    }

    /// The file with the offset of its clock, if it has one.
    pub(crate) fn time_file(&self) -> PathBuf {
        self.folder.join("time")
    }

    /// Starts it and waits until it listens or has ended.
    pub(crate) async fn start(&self) -> Result<Started> {
        self.start_with(&self.launch()).await
    }

    /// Like [`Node::start`], but with this launch once.
    pub(crate) async fn start_with(&self, launch: &Launch) -> Result<Started> {
        let mut slot = self.child.lock().await;
        let mut child =
            self.command(launch)?.spawn().context("`placet serve` cannot be started")?;
        self.pid.store(child.id().map_or(0, u64::from), Ordering::SeqCst);
        self.starts.fetch_add(1, Ordering::Relaxed);
        let output = child.stdout.take().context("`placet serve` has no output")?;
        let mut lines = BufReader::new(output).lines();
        let listening = timeout(START, async {
            while let Some(line) = lines.next_line().await? {
                if line.contains("\"listen\"") {
                    return Ok::<_, std::io::Error>(true);
                }
            }
            Ok(false)
        })
        .await;
        match listening {
            Ok(Ok(true)) => {
                *slot = Some(child);
                Ok(Started::Up)
            }
            Ok(_) => {
                let status = timeout(GONE, child.wait()).await;
                self.pid.store(0, Ordering::SeqCst);
                Ok(Started::Ended(status.context("it closed its output and did not end")??))
            }
            Err(_elapsed) => {
                child.start_kill().context("it cannot be killed")?;
                self.pid.store(0, Ordering::SeqCst);
                bail!("node {} did not listen within {START:?}", self.number)
            }
        }
    }

    fn command(&self, launch: &Launch) -> Result<Command> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.log())
            .with_context(|| format!("`{}` cannot be written", self.log().display()))?;
        let mut words: Vec<OsString> = Vec::new();
        if let Some(setpriv) = &self.setpriv {
            words.extend([setpriv.into(), "--pdeathsig".into(), "KILL".into()]);
        }
        words.extend(launch.wrapper.iter().cloned());
        words.push(self.placet.clone().into_os_string());
        let (program, rest) = words.split_first().context("there is no program")?;
        let mut command = Command::new(program);
        command
            .args(rest)
            .args(["serve", "--json", "--log", "json", "-f"])
            .arg(self.config())
            .args(["--listen", &self.listen.to_string()])
            .args(["--admin-listen", &self.admin.to_string()])
            .args(&launch.args)
            .env_clear()
            .envs(launch.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true);
        Ok(command)
    }

    /// Sends a signal; false when there is no process.
    pub(crate) fn signal(&self, signal: Signal) -> bool {
        let pid = self.pid().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
        pid.is_some_and(|pid| kill_process(pid, signal).is_ok())
    }

    /// How it ended, if it has.
    pub(crate) async fn ended(&self) -> Option<ExitStatus> {
        let mut slot = self.child.lock().await;
        let status = slot.as_mut()?.try_wait().ok().flatten()?;
        self.pid.store(0, Ordering::SeqCst);
        *slot = None;
        Some(status)
    }

    /// Waits for its end, at most `limit`.
    pub(crate) async fn gone_within(&self, limit: Duration) -> Option<ExitStatus> {
        let until = Instant::now() + limit;
        loop {
            if let Some(status) = self.ended().await {
                return Some(status);
            }
            if self.pid().is_none() || Instant::now() >= until {
                return None;
            }
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// SIGKILL, and waits until it is gone. How it ended, if it was running.
    pub(crate) async fn kill(&self) -> Option<ExitStatus> {
        self.signal(Signal::KILL);
        self.gone_within(GONE).await
    }

    /// Runs a command of the program with this configuration; returns its exit code and its output.
    pub(crate) async fn run(
        &self,
        arguments: &[&str],
        limit: Duration,
    ) -> Result<(Option<i32>, String)> {
        let mut command = Command::new(&self.placet);
        command
            .args(arguments)
            .arg("-f")
            .arg(self.config())
            .env_clear()
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let output = timeout(limit, command.output()).await.with_context(|| {
            format!("`placet {}` took longer than {limit:?}", arguments.join(" "))
        })??;
        let said = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8_lossy(&said).into_owned()))
    }

    pub(crate) fn panics(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        text.lines().filter(|line| line.contains("panicked at")).map(str::to_owned).collect()
    }

    pub(crate) fn tail(&self, lines: usize) -> String {
        let text = std::fs::read_to_string(self.log()).unwrap_or_default();
        let all: Vec<&str> = text.lines().collect();
        all.iter().skip(all.len().saturating_sub(lines)).copied().collect::<Vec<_>>().join("\n")
    }
}
