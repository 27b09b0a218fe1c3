//! A running Placet: the child process, where it listens, and what it has logged.
//!
//! Owns start and end of the process. Invariant: it is killed when it is dropped, and a test that panics prints its log.

use std::{process::ExitStatus, sync::Arc};

use parking_lot::Mutex;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncRead, BufReader, Lines},
    process::{Child, ChildStdout, Command},
    task::JoinHandle,
};
use url::Url;

use super::{
    client::{Client, Reply},
    watcher, within,
};

/// A running program.
#[derive(Debug)]
pub(crate) struct Placet {
    child: Child,
    pub(crate) base: Url,
    pub(crate) admin: Url,
    log: Log,
    readers: Vec<JoinHandle<()>>,
}

/// A program that has ended.
#[derive(Debug)]
pub(crate) struct Gone {
    pub(crate) status: ExitStatus,
    /// Everything it printed, on both outputs.
    pub(crate) said: String,
}

impl Gone {
    /// Fails unless every one of `words` was printed.
    pub(crate) fn says(&self, words: &[&str]) {
        for word in words {
            assert!(self.said.contains(word), "`{word}` is not in:\n{}", self.said);
        }
    }
}

#[derive(Debug, Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Log {
    fn line(&self, line: &str) {
        let mut text = self.0.lock();
        text.push_str(line);
        text.push('\n');
    }

    fn text(&self) -> String {
        self.0.lock().clone()
    }

    fn drain(&self, reader: impl AsyncRead + Unpin + Send + 'static) -> JoinHandle<()> {
        let log = self.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(reader).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                log.line(&line);
            }
        })
    }
}

impl Placet {
    /// Starts it and waits until it says where it listens.
    pub(crate) async fn start(command: Command) -> Self {
        match Self::spawn(command).await {
            Ok(placet) => placet,
            Err(gone) => panic!("it does not start ({}):\n{}", gone.status, gone.said),
        }
    }

    /// Starts it and waits until it has ended; where it comes up it is killed.
    pub(crate) async fn start_without_success(command: Command) -> Gone {
        match Self::spawn(command).await {
            Ok(mut placet) => {
                placet.child.kill().await.unwrap();
                panic!("it came up, at {}", placet.base)
            }
            Err(gone) => gone,
        }
    }

    async fn spawn(mut command: Command) -> Result<Self, Gone> {
        let mut child = command.spawn().unwrap();
        watcher::watch(child.id());
        let log = Log::default();
        let mut readers = vec![log.drain(child.stderr.take().unwrap())];
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let addresses = within("it listens or ends", addresses(&mut lines, &log)).await;
        readers.push(log.drain(lines.into_inner().into_inner()));
        let Some((base, admin)) = addresses else {
            let status = within("it ends", child.wait()).await.unwrap();
            for reader in readers {
                within("its output ends", reader).await.unwrap();
            }
            return Err(Gone { status, said: log.text() });
        };
        Ok(Self { child, base, admin, log, readers })
    }

    /// The address of a route for callers.
    pub(crate) fn url(&self, path: &str) -> Url {
        self.base.join(path).unwrap()
    }

    /// A client with this bearer token.
    pub(crate) fn client(&self, token: Option<String>) -> Client {
        Client::new(self.base.clone(), token)
    }

    /// Asks the admin listener.
    pub(crate) async fn ask(&self, path: &str) -> Reply {
        Client::new(self.admin.clone(), None).get(path).await
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id().expect("it runs")
    }

    /// What it has logged so far.
    pub(crate) fn log(&self) -> String {
        self.log.text()
    }

    /// SIGKILL: nothing is flushed, nobody is told.
    pub(crate) async fn kill(mut self) {
        within("it is killed", self.child.kill()).await.unwrap();
    }

    /// SIGTERM, without waiting.
    pub(crate) fn ask_to_stop(&self) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        kill_process(pid, Signal::TERM).unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) async fn gone(mut self) -> Gone {
        let status = within("it ends", self.child.wait()).await.unwrap();
        for reader in self.readers.drain(..) {
            within("its output ends", reader).await.unwrap();
        }
        Gone { status, said: self.log() }
    }

    /// Asks it to stop and waits until it has, without an error.
    pub(crate) async fn stop(self) -> String {
        self.ask_to_stop();
        let gone = self.gone().await;
        assert!(gone.status.success(), "{}:\n{}", gone.status, gone.said);
        gone.said
    }
}

impl Drop for Placet {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- what Placet at {} said:\n{}---", self.base, self.log());
        }
    }
}

/// The addresses in the one line of JSON that says them; `None` when the output ends before.
async fn addresses(lines: &mut Lines<BufReader<ChildStdout>>, log: &Log) -> Option<(Url, Url)> {
    while let Some(line) = lines.next_line().await.unwrap() {
        log.line(&line);
        let Ok(document) = serde_json::from_str::<Value>(&line) else { continue };
        let url = |name: &str| Url::parse(document.get(name)?.as_str()?).ok();
        if let (Some(listen), Some(admin)) = (url("listen"), url("admin_listen")) {
            return Some((listen, admin));
        }
    }
    None
}
