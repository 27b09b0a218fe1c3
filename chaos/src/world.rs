//! The witness as a child: the upstream that effects happen in.
//!
//! Owns its process, which is started again when a manner makes it exit, and the arming of manners. The witness itself is the
//! judging half's.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, ChildStdin, Command},
    task::JoinHandle,
    time::{sleep, timeout},
};

use placet_testkit::port::free_port;

use crate::witness::{
    control::{self, Command as Order, Manner},
    tools::KEYED_WINDOW_MS,
};

const START: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(crate) struct World {
    /// The URL for the nodes.
    pub(crate) url: String,
    pub(crate) log: PathBuf,
    control: SocketAddr,
    restarts: Arc<AtomicU64>,
    keeper: JoinHandle<()>,
}

impl World {
    /// Starts it in `folder`, and keeps it running.
    pub(crate) async fn start(folder: &Path) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let own = std::env::current_exe().context("this program cannot find itself")?;
        let (port, control_port) = (free_port()?, free_port()?);
        let log = folder.join("witness.jsonl");
        let control = SocketAddr::from(([127, 0, 0, 1], control_port));
        let start = Start { own, port, control_port, log: log.clone(), folder: folder.to_owned() };
        let (mut child, mut lifeline) = start.start().await?;
        let restarts = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&restarts);
        let keeper = tokio::spawn(async move {
            loop {
                // However it ended, it is needed again.
                drop(child.wait().await);
                counted.fetch_add(1, Ordering::SeqCst);
                drop(lifeline);
                (child, lifeline) = loop {
                    match start.start().await {
                        Ok(started) => break started,
                        Err(_) => sleep(Duration::from_millis(50)).await,
                    }
                };
            }
        });
        Ok(Self { url: format!("http://127.0.0.1:{port}/mcp"), log, control, restarts, keeper })
    }

    /// How often it had to be started again.
    pub(crate) fn restarts(&self) -> u64 {
        self.restarts.load(Ordering::SeqCst)
    }

    /// Arms a manner, once, for calls about this item.
    pub(crate) async fn arm(&self, item: &str, manner: Manner) -> Result<()> {
        self.tell(&Order::Arm { item: item.to_owned(), manner }).await.map(drop)
    }

    /// Makes it behave normally from now on.
    pub(crate) async fn disarm(&self) -> Result<()> {
        self.tell(&Order::Disarm).await.map(drop)
    }

    /// Whether it has misbehaved for a call about this item; forgotten when it restarts.
    pub(crate) async fn has_fired(&self, item: &str) -> Result<bool> {
        self.tell(&Order::Fired { item: item.to_owned() }).await
    }

    /// It may be restarting: tries a few times.
    async fn tell(&self, order: &Order) -> Result<bool> {
        let mut tries = 0_u32;
        loop {
            let answer = timeout(Duration::from_secs(3), control::send(self.control, order)).await;
            match answer {
                Ok(Ok(answer)) => return Ok(answer),
                _ if tries >= 20 => bail!("the witness does not answer"),
                _ => sleep(Duration::from_millis(50)).await,
            }
            tries = tries.saturating_add(1);
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        // The child is dropped with the task, and killed with it.
        self.keeper.abort();
    }
}

#[derive(Debug)]
struct Start {
    own: PathBuf,
    port: u16,
    control_port: u16,
    log: PathBuf,
    folder: PathBuf,
}

impl Start {
    /// The process, and the input whose closing ends it: waiting for a child would close it.
    async fn start(&self) -> Result<(Child, Option<ChildStdin>)> {
        let errors = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join("witness.stderr"))?;
        let mut command = Command::new(&self.own);
        command
            .arg("witness")
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .args(["--control", &format!("127.0.0.1:{}", self.control_port)])
            .arg("--log")
            .arg(&self.log)
            .args(["--window-ms", &KEYED_WINDOW_MS.to_string()])
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .kill_on_drop(true);
        let mut child = command.spawn().context("the witness does not start")?;
        let output = child.stdout.take().context("the witness has no output")?;
        let mut lines = BufReader::new(output).lines();
        let line =
            timeout(START, lines.next_line()).await.context("the witness says nothing")??;
        line.context("the witness ended")?;
        let lifeline = child.stdin.take();
        Ok((child, lifeline))
    }
}
