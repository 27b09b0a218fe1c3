//! A deployment under test: its nodes, kept running, and its database.
//!
//! Owns starting, restarting after an end of whatever kind, and readiness. Does not decide about faults. Invariant: a node that
//! ends is started again unless somebody holds its gate; every end and every start is in the history.

use std::{
    net::SocketAddr,
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

use anyhow::{Result, bail};
use placet_testkit::{machine::Machine, port::free_port, postgres::Postgres};
use rustix::process::Signal;
use tokio::{
    task::JoinHandle,
    time::{Instant, sleep},
};
use url::Url;

use crate::{
    history::{fault::FaultKind, file::Recorder, node::NodeChange},
    http::Api,
    node::{Node, Started},
    people::People,
    scene::Scene,
    schedule::{Schedule, Store},
    setup::{Setup, Workshop},
    world::World,
};

/// How long a node may take to be ready after a start.
pub(crate) const READY: Duration = Duration::from_secs(60);
/// How often in a row a start may fail before that is a finding.
const STARTS_MAX: u32 = 8;

#[derive(Debug)]
pub(crate) struct Cluster {
    /// What the load and the injectors use it through.
    pub(crate) scene: Arc<Scene>,
    pub(crate) nodes: Vec<Arc<Node>>,
    /// Their database, where they share one.
    pub(crate) postgres: Option<Arc<tokio::sync::Mutex<Postgres>>>,
    pub(crate) machine: Machine,
    pub(crate) folder: PathBuf,
    admin: Api,
    stopping: AtomicBool,
    /// Until when the ends of which nodes are explained by an injected fault; `None`: of all nodes.
    excused: Mutex<Vec<(Option<usize>, Instant)>>,
    keepers: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) const CLIENT_WAITS: Duration = Duration::from_secs(20);

impl Cluster {
    /// Writes the files below `folder` and starts every node of the schedule; `ledger` is the shared one.
    pub(crate) async fn start(
        shop: &Workshop,
        schedule: &Schedule,
        folder: &Path,
        world: World,
        ledger: Option<String>,
        recorder: Recorder,
    ) -> Result<Arc<Self>> {
        let keys = folder.join("keys");
        std::fs::create_dir_all(&keys)?;
        let people = People::mint(&keys)?;
        let setup = Setup {
            witness: world.url.clone(),
            ledger,
            short_retention: schedule.short_retention,
            policies: shop.policies.clone(),
        };
        let moves_clocks = schedule.steps.iter().any(|step| step.act.fault() == FaultKind::F10);
        let mut nodes = Vec::new();
        for number in 0..schedule.nodes {
            let folder = folder.join(format!("node-{number}"));
            setup.write(number, &folder, &keys.join("dev-key.jwk"))?;
            let (listen, admin) = (loopback(free_port()?), loopback(free_port()?));
            let node = Node::new(number, folder, listen, admin, &shop.placet, &shop.machine);
            let variables = shop.env.iter().map(|(name, value)| (name.clone(), value.into()));
            node.launched_with(|launch| launch.env.extend(variables));
            if let (true, Some(library)) = (moves_clocks, &shop.machine.faketime) {
                move_clock(&node, library)?;
            }
            nodes.push(Arc::new(node));
        }
        let api = Api::new(urls(&nodes, |node| node.listen)?, CLIENT_WAITS)?;
        let admin = Api::new(urls(&nodes, |node| node.admin)?, Duration::from_secs(5))?;
        let scene = Scene::new(api, people, world, recorder);
        let cluster = Arc::new(Self {
            scene: Arc::new(scene),
            nodes,
            postgres: shop.postgres.clone().filter(|_| schedule.store == Store::Postgres),
            machine: shop.machine.clone(),
            folder: folder.to_owned(),
            admin,
            stopping: AtomicBool::new(false),
            excused: Mutex::default(),
            keepers: Mutex::default(),
        });
        for node in &cluster.nodes {
            cluster.bring_up(node).await?;
        }
        for node in &cluster.nodes {
            let (keeping, node) = (Arc::clone(&cluster), Arc::clone(node));
            let keeper = tokio::spawn(async move { keeping.keep(&node).await });
            cluster.keepers.lock().push(keeper);
        }
        Ok(cluster)
    }

    /// Ends of a node's processes within `span` are explained by an injected fault; `None`: those of all nodes.
    pub(crate) fn excuse(&self, node: Option<usize>, span: Duration) {
        let mut excused = self.excused.lock();
        excused.push((node, Instant::now() + span));
    }

    fn is_excused(&self, node: usize) -> bool {
        let excused = self.excused.lock();
        let now = Instant::now();
        excused.iter().any(|(whose, until)| now < *until && whose.is_none_or(|whose| whose == node))
    }

    /// Reports a finding if a process has ended, or failed to start, without an injected cause.
    fn judge_end(&self, node: &Node, how: &str) -> String {
        let why = node.tail(4);
        if !self.is_excused(node.number) {
            self.scene.find(format!("node {} {how}: {why}", node.number));
        }
        why
    }

    /// Notes how a process ended that was not asked to.
    pub(crate) fn note_end(&self, node: &Node, status: ExitStatus) {
        if status.signal() == Some(Signal::KILL.as_raw()) {
            return self.scene.note(node.number, NodeChange::Killed);
        }
        let why = self.judge_end(node, &format!("ended by itself ({status})"));
        self.scene.note(node.number, NodeChange::Exited { code: status.code(), why });
    }

    /// Kills a node and notes how it ended; false when it was not running.
    pub(crate) async fn kill(&self, node: &Node) -> bool {
        let status = node.kill().await;
        if let Some(status) = status {
            self.note_end(node, status);
        }
        status.is_some()
    }

    /// Starts a node until it is up and ready. The caller holds its gate, or nobody else can.
    pub(crate) async fn bring_up(&self, node: &Node) -> Result<()> {
        for attempt in 1..=STARTS_MAX {
            let began = Instant::now();
            match node.start().await? {
                Started::Up => {
                    let pid = node.pid().unwrap_or_default();
                    self.scene.note(node.number, NodeChange::Started { pid });
                    if self.wait_ready(node, READY).await {
                        let after = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
                        self.scene.note(node.number, NodeChange::Ready { after_ms: after });
                        return Ok(());
                    }
                    if let Some(status) = node.ended().await {
                        self.note_end(node, status);
                    }
                }
                Started::Ended(status) if status.signal() == Some(Signal::KILL.as_raw()) => {
                    self.scene.note(node.number, NodeChange::Killed);
                }
                Started::Ended(status) => {
                    let why = self.judge_end(node, &format!("did not start ({status})"));
                    self.scene.note(node.number, NodeChange::Refused { why });
                }
            }
            sleep(Duration::from_millis(u64::from(attempt).saturating_mul(100))).await;
        }
        self.scene.find(format!("node {} does not start again: {}", node.number, node.tail(4)));
        bail!("node {} does not start again: {}", node.number, node.tail(4))
    }

    /// Waits until a node takes calls; false when it ended or did not within the limit.
    pub(crate) async fn wait_ready(&self, node: &Node, limit: Duration) -> bool {
        let until = Instant::now() + limit;
        while Instant::now() < until {
            if self.admin.is_well(node.number, "/readyz", Duration::from_secs(2)).await {
                return true;
            }
            if node.state().is_none() {
                return false;
            }
            sleep(Duration::from_millis(20)).await;
        }
        false
    }

    /// Starts a node again whenever it has ended.
    async fn keep(&self, node: &Node) {
        while !self.stopping.load(Ordering::SeqCst) {
            if let Ok(_gate) = node.gate.try_lock() {
                if let Some(status) = node.ended().await {
                    self.note_end(node, status);
                }
                if node.pid().is_none() && self.bring_up(node).await.is_err() {
                    return;
                }
            }
            sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn wait_all_ready(&self) -> Result<()> {
        let until = Instant::now() + READY;
        for node in &self.nodes {
            while !self.admin.is_well(node.number, "/readyz", Duration::from_secs(2)).await {
                if Instant::now() >= until || !self.scene.findings().is_empty() {
                    bail!("node {} is not ready: {}", node.number, node.tail(4));
                }
                sleep(Duration::from_millis(50)).await;
            }
        }
        Ok(())
    }

    /// Nodes that end are not started again from now on.
    pub(crate) fn release(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        let keepers = std::mem::take(&mut *self.keepers.lock());
        for keeper in keepers {
            keeper.abort();
        }
    }

    pub(crate) async fn stop(&self) {
        self.release();
        for node in &self.nodes {
            node.signal(Signal::CONT);
            node.kill().await;
        }
    }
}

/// Starts a node in a time of its own, which a file sets off against the machine's.
fn move_clock(node: &Node, library: &Path) -> Result<()> {
    let file = node.time_file();
    std::fs::write(&file, "+0\n")?;
    let set = |name: &str, value: &std::ffi::OsStr| (name.to_owned(), value.to_owned());
    node.launched_with(|launch| {
        launch.env.push(set("LD_PRELOAD", library.as_os_str()));
        launch.env.push(set("FAKETIME_TIMESTAMP_FILE", file.as_os_str()));
        launch.env.push(set("FAKETIME_NO_CACHE", "1".as_ref()));
        launch.env.push(set("FAKETIME_DONT_FAKE_MONOTONIC", "1".as_ref()));
        launch.env.push(set("DONT_FAKE_MONOTONIC", "1".as_ref()));
    });
    Ok(())
}

fn urls(nodes: &[Arc<Node>], of: fn(&Node) -> SocketAddr) -> Result<Vec<Url>> {
    nodes.iter().map(|node| Ok(Url::parse(&format!("http://{}", of(node)))?)).collect()
}

fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port))
}
