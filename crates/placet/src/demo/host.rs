//! The engine of the demo: this very program as a server in a child process, on a temporary data folder.
//!
//! Owns the children: each is started here and ended here, by its own handle, never by name. Their environment is empty, so that
//! nothing of the person's set-up plays into the demo.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Output, Stdio},
    time::Duration,
};

use placet_identity::{DevKey, MintRequest};
use placet_types::{
    ids::{PrincipalId, TenantId},
    principal::PrincipalKind,
};
use rustix::process::{Pid, Signal, kill_process};
use secrecy::SecretString;
use serde::Deserialize;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
    time::timeout,
};
use url::Url;

use crate::{
    client::Client,
    clock::SystemClock,
    config::file::ConfigFile,
    development::DEV_TENANT,
    failure::{Attempted as _, Failure},
};

/// How long a start may take: a cold disk, a busy machine.
const START: Duration = Duration::from_secs(60);
/// How long a stop may take.
const STOP: Duration = Duration::from_secs(30);
/// How long the injected fault holds an answer back: longer than the demo needs to kill the process.
const FAULT_INJECTION_MS: &str = "120000";

/// A child process and where it listens.
#[derive(Debug)]
pub(crate) struct Host {
    executable: PathBuf,
    folder: PathBuf,
    child: Option<Child>,
    url: Option<Url>,
}

/// The output of `serve --json` once it listens.
#[derive(Deserialize)]
struct Greeting {
    listen: Url,
}

impl Host {
    /// Starts the first child.
    pub(crate) async fn start(executable: PathBuf, folder: PathBuf) -> Result<Self, Failure> {
        let mut host = Self { executable, folder, child: None, url: None };
        host.begin(false).await.map_err(|why| {
            host.log_tail().into_iter().fold(
                Failure::new("the engine of the demo does not start").because(why),
                Failure::because,
            )
        })?;
        Ok(host)
    }

    /// Starts a child on the same data folder, with or without the fault injection.
    pub(crate) async fn begin(&mut self, fault_injection: bool) -> Result<(), String> {
        let log = File::options().create(true).append(true).open(self.folder.join("engine.log"));
        let log = log.map_err(|error| format!("its log cannot be written: {error}"))?;
        let serve = "serve --listen 127.0.0.1:0 --admin-listen 127.0.0.1:0 --log people --json";
        let words: Vec<&str> = serve.split(' ').collect();
        let mut command = self.command(&words, &self.data());
        if fault_injection {
            command.args(["--inject-pause-after-effect-ms", FAULT_INJECTION_MS]);
        }
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::from(log))
            .spawn()
            .map_err(|error| format!("it cannot be started: {error}"))?;
        let out = child.stdout.take().ok_or("its output cannot be read")?;
        self.child = Some(child);
        let mut line = String::new();
        let mut out = BufReader::new(out);
        let late = |_elapsed| format!("it did not come up within {} s", START.as_secs());
        let read = timeout(START, out.read_line(&mut line)).await.map_err(late)?;
        read.map_err(|error| format!("its output cannot be read: {error}"))?;
        let greeting: Greeting = serde_json::from_str(&line)
            .map_err(|_no_greeting| "it ended instead of coming up".to_owned())?;
        self.url = Some(greeting.listen);
        Ok(())
    }

    /// Asks the child to stop, and waits until it has.
    pub(crate) async fn stop(&mut self) -> Result<(), String> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw)
        {
            kill_process(pid, Signal::TERM)
                .map_err(|error| format!("it cannot be asked to stop: {error}"))?;
        }
        match timeout(STOP, child.wait()).await {
            Ok(Ok(status)) if status.success() => Ok(()),
            Ok(Ok(status)) => Err(format!("it ended with {status}")),
            Ok(Err(error)) => Err(error.to_string()),
            // Dropping the handle kills it.
            Err(_elapsed) => Err(format!("it did not stop within {} s", STOP.as_secs())),
        }
    }

    /// Kills the child with SIGKILL, and waits until it is gone.
    pub(crate) async fn kill(&mut self) -> Result<(), String> {
        let mut child = self.child.take().ok_or("there is nothing to kill")?;
        child.kill().await.map_err(|error| error.to_string())
    }

    /// Runs another command of this program to its end.
    pub(crate) async fn run(&self, words: &[&str], data: &Path) -> Result<Output, String> {
        let mut command = self.command(words, data);
        let output = command.stdin(Stdio::null()).output();
        match timeout(START, output).await {
            Ok(output) => output.map_err(|error| error.to_string()),
            Err(_elapsed) => Err(format!("`placet {}` did not end", words.join(" "))),
        }
    }

    /// A client that calls as a person or as the agent.
    pub(crate) fn client(&self, kind: PrincipalKind, name: &str) -> Result<Client, Failure> {
        let what = "the demo's tokens cannot be made";
        let url = self.url.clone().ok_or_else(|| Failure::new("the engine is not running"))?;
        let key = DevKey::load_or_create(&self.data()).attempted(what)?;
        let tenant = TenantId::new(DEV_TENANT).attempted(what)?;
        let id = PrincipalId::new(name).attempted(what)?;
        let request = MintRequest::new(tenant, kind, id, ConfigFile::default().audience);
        let token = key.mint(&request, &SystemClock).attempted(what)?;
        Client::new(url, Some(SecretString::from(token)), None)
    }

    /// The data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// A file of the `files` adapter.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.data().join("files").join(DEV_TENANT).join(name)
    }

    /// The demo's own folder, next to the data.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The last lines of the children's log.
    pub(crate) fn log_tail(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("engine.log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.iter().skip(lines.len().saturating_sub(12)).map(|line| (*line).to_owned()).collect()
    }

    fn command(&self, words: &[&str], data: &Path) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .args(words)
            .arg("--data")
            .arg(data)
            .env_clear()
            .current_dir(&self.folder)
            .kill_on_drop(true);
        command
    }
}
