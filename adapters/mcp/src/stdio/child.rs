//! The child process of a server: how it starts and that it ends.
//!
//! Owns the command, its environment, its process group and its end. Does not read or write its pipes. Invariants: no shell
//! sees anything; the environment contains only what the contract names; no argument comes from a call; dropping the handle
//! kills the whole process group; it can gain no privileges and stays within the limits of its contract.

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret, SecretString};
use tokio::{
    process::{Child, ChildStdin, ChildStdout, Command},
    sync::watch,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use placet_adapter::{outcome::AdapterError, scrub::Scrub};
use placet_types::{
    contract::{file::EnvValue, process::ProcessFile},
    ids::AdapterName,
};

use crate::{settings::McpSettings, text::printable};

use super::{
    confine,
    health::Health,
    sandbox::{self, Rules},
    stderr,
    tail::Tail,
};

/// Where a program is looked for when its environment has no `PATH`.
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// How long a server may take to end after its input was closed.
const LEAVE_WAIT: Duration = Duration::from_millis(1_000);
/// How long it may take after it was asked to terminate.
const TERM_WAIT: Duration = Duration::from_millis(1_000);
/// How long closing waits for all of that.
const CLOSE_WAIT: Duration = Duration::from_secs(5);

/// The contract's settings for starting a server.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// The program.
    pub(crate) command: &'a str,
    /// Its arguments.
    pub(crate) args: &'a [String],
    /// Its environment.
    pub(crate) env: &'a BTreeMap<String, EnvValue>,
    /// Its working directory.
    pub(crate) cwd: Option<&'a str>,
    /// Its limits.
    pub(crate) process: &'a ProcessFile,
}

/// The pipes that messages go through.
#[derive(Debug)]
pub(super) struct Pipes {
    pub(super) stdin: ChildStdin,
    pub(super) stdout: ChildStdout,
}

/// The process of one connection; dropping it kills the process group.
#[derive(Debug)]
pub(crate) struct ChildHandle {
    leave: CancellationToken,
    kill: CancellationToken,
    ended: watch::Receiver<bool>,
    health: Arc<Health>,
}

impl ChildHandle {
    /// What is known about the process.
    pub(crate) fn health(&self) -> Arc<Health> {
        Arc::clone(&self.health)
    }

    /// Ends the process: closes its input, then asks it to terminate, then kills it.
    pub(crate) async fn close(&self) {
        self.leave.cancel();
        let mut ended = self.ended.clone();
        if timeout(CLOSE_WAIT, ended.wait_for(|ended| *ended)).await.is_err() {
            self.kill.cancel();
        }
    }
}

impl Drop for ChildHandle {
    fn drop(&mut self) {
        self.kill.cancel();
    }
}

/// Starts the process.
pub(super) async fn spawn(
    adapter: &AdapterName,
    launch: &Launch<'_>,
    settings: &McpSettings,
    health: Arc<Health>,
    tail: &Tail,
) -> Result<(Pipes, ChildHandle), AdapterError> {
    let (env, secrets) = environment(launch.env, settings).await?;
    let program = program(launch.command, launch.env)?;
    let cwd = settings.data_dir.join(launch.cwd.unwrap_or_default());
    let mut command = Command::new(program);
    command
        .args(launch.args)
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value.expose_secret())))
        .current_dir(cwd)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true);
    let rules =
        Rules::of(launch.process, &settings.data_dir).map_err(AdapterError::Misconfigured)?;
    let mut child = confine::spawn(&mut command, launch.process, rules)
        .map_err(|error| not_started(launch, &error))?;
    let gaps = sandbox::gaps(launch.process);
    if !gaps.is_empty() {
        tracing::warn!(%adapter, unconfined = gaps.join(", "), "a child process was started that nothing confines as its contract asks");
    }
    let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
    let (Some(stdin), Some(stdout), Some(errors), Some(group)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take(), group)
    else {
        return Err(AdapterError::Unavailable("its process ended while it was started".to_owned()));
    };
    tokio::spawn(stderr::drain(errors, adapter.clone(), Scrub::of(secrets.iter()), tail.clone()));
    let (ended_tx, ended) = watch::channel(false);
    let handle = ChildHandle {
        leave: CancellationToken::new(),
        kill: CancellationToken::new(),
        ended,
        health,
    };
    let warden = Warden {
        adapter: adapter.clone(),
        group,
        leave: handle.leave.clone(),
        kill: handle.kill.clone(),
        health: handle.health(),
    };
    tokio::spawn(async move {
        warden.watch(child).await;
        ended_tx.send_replace(true);
    });
    Ok((Pipes { stdin, stdout }, handle))
}

/// Sees to it that the process ends, and that nothing it started outlives it.
#[derive(Debug)]
struct Warden {
    adapter: AdapterName,
    group: Pid,
    leave: CancellationToken,
    kill: CancellationToken,
    health: Arc<Health>,
}

impl Warden {
    async fn watch(self, mut child: Child) {
        tokio::select! {
            biased;
            () = self.kill.cancelled() => self.signal(Signal::KILL),
            () = self.leave.cancelled() => self.escort(&mut child).await,
            _ended = child.wait() => {}
        }
        self.health.close();
        // Whatever the process has started belongs to its group and ends with it.
        self.signal(Signal::KILL);
        match child.wait().await {
            Ok(status) => tracing::debug!(adapter = %self.adapter, %status, "the server has ended"),
            Err(error) => {
                tracing::warn!(adapter = %self.adapter, %error, "the end of the server is not known")
            }
        }
    }

    /// Lets the process end by itself, then asks it; the caller kills it.
    async fn escort(&self, child: &mut Child) {
        for (wait, then) in [(LEAVE_WAIT, Some(Signal::TERM)), (TERM_WAIT, None)] {
            let ended = tokio::select! {
                biased;
                () = self.kill.cancelled() => true,
                ended = timeout(wait, child.wait()) => ended.is_ok(),
            };
            if ended {
                return;
            }
            if let Some(signal) = then {
                self.signal(signal);
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // An error means that the group no longer exists.
        let _gone = kill_process_group(self.group, signal).is_err();
    }
}

type Environment = (Vec<(String, SecretString)>, Vec<SecretString>);

/// The values of the environment, and those of them that are secrets.
async fn environment(
    env: &BTreeMap<String, EnvValue>,
    settings: &McpSettings,
) -> Result<Environment, AdapterError> {
    let mut values = Vec::new();
    let mut secrets = Vec::new();
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) {
            let name = printable(name, 64);
            return Err(AdapterError::Misconfigured(format!(
                "`{name}` is no name of an environment variable"
            )));
        }
        let value = match value {
            EnvValue::Literal(value) => SecretString::from(value.clone()),
            EnvValue::Secret { secret } => {
                let found = settings.secrets.secret(secret).await.map_err(|why| {
                    AdapterError::Misconfigured(format!(
                        "the secret `{secret}` for its environment: {why}"
                    ))
                })?;
                secrets.push(found.newest.clone());
                found.newest
            }
        };
        values.push((name.clone(), value));
    }
    Ok((values, secrets))
}

/// The program's path: absolute as written, or found on the `PATH` that the contract gives it.
pub(crate) fn program(
    command: &str,
    env: &BTreeMap<String, EnvValue>,
) -> Result<PathBuf, AdapterError> {
    if Path::new(command).is_absolute() {
        return Ok(PathBuf::from(command));
    }
    let shown = printable(command, 200);
    if command.is_empty() || command.contains(['/', '\0']) {
        return Err(AdapterError::Misconfigured(format!(
            "the command `{shown}` must be an absolute path or a plain name"
        )));
    }
    let path = match env.get("PATH") {
        Some(EnvValue::Literal(path)) => path.as_str(),
        Some(EnvValue::Secret { .. }) | None => PATH_DEFAULT,
    };
    path.split(':')
        .map(Path::new)
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(command))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            AdapterError::Misconfigured(format!(
                "the command `{shown}` is not on `{}`",
                printable(path, 500)
            ))
        })
}

fn not_started(launch: &Launch<'_>, error: &io::Error) -> AdapterError {
    let is_refused =
        error.kind() == io::ErrorKind::PermissionDenied && launch.process.files.is_some();
    let why = if error.kind() == io::ErrorKind::NotFound {
        "there is no such file".to_owned()
    } else if is_refused {
        "permission denied: `process.files` must name the program, its interpreter and its libraries".to_owned()
    } else if error.kind() == io::ErrorKind::Other {
        // Our own words.
        error.to_string()
    } else {
        error.kind().to_string()
    };
    let message =
        format!("the command `{}` cannot be started: {why}", printable(launch.command, 200));
    let transient = matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory | io::ErrorKind::Interrupted
    );
    if transient {
        AdapterError::Unavailable(message)
    } else {
        AdapterError::Misconfigured(message)
    }
}
