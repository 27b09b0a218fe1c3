//! The final probes of a round: records and approvals from every node, the exported log, the program's own checks,
//! and the search for secrets.
//!
//! Owns the asking. Does not judge.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result};
use rustix::process::Signal;
use serde_json::Value;

use crate::{
    checker::secrets,
    cluster::Cluster,
    history::{
        What,
        journal::JournalEntry,
        node::NodeChange,
        probe::{ApprovalRow, Probe},
    },
    load::finale,
    node::Node,
    people::{APPROVERS, TENANTS},
    scene::Scene,
    schedule::Store,
    setup::SECRET,
};

const TOOL: Duration = Duration::from_secs(60);
/// What a node may need, with every queue full and results of megabytes: 1 GiB.
const MEMORY_KIB_MAX: u64 = 1_048_576;

/// Asks everything while the nodes run, then stops them and asks what can be asked of a stopped one.
pub(crate) async fn collect(cluster: &Cluster, store: Store) -> Result<()> {
    for node in &cluster.nodes {
        listed(cluster, node.number).await?;
        memory(&cluster.scene, node);
    }
    let first = cluster.nodes.first().context("there is no node")?;
    if store == Store::Postgres {
        logs(cluster, first).await?;
        fenced(cluster).await?;
        secrets_shared(cluster).await?;
    }
    cluster.release();
    for node in &cluster.nodes {
        cluster.scene.note(node.number, NodeChange::StopAsked);
        node.signal(Signal::TERM);
        let ended = node.gone_within(Duration::from_secs(20)).await;
        let code = ended.and_then(|status| status.code());
        cluster.scene.note(node.number, NodeChange::Stopped { code });
        if ended.is_none() {
            cluster.scene.find(format!("node {} did not stop at the end", node.number));
            node.kill().await;
        }
    }
    if store == Store::Embedded {
        logs(cluster, first).await?;
        verified(cluster, first, &["audit", "verify"]).await?;
        verified(cluster, first, &["ledger", "fsck"]).await?;
    }
    let secret = [("witness".to_owned(), SECRET.to_owned())];
    for node in &cluster.nodes {
        // The secret's own file is next to the data folder.
        for place in [node.data(), node.log()] {
            let found = secrets::scan(&place, &secret)?;
            cluster.scene.recorder.record(What::Probe(Box::new(found)));
        }
        for panic in node.panics() {
            cluster.scene.find(format!("node {} panicked: {panic}", node.number));
        }
    }
    Ok(())
}

/// Searches the database for rows that contain the secret, as text or as bytes.
async fn secrets_shared(cluster: &Cluster) -> Result<()> {
    const TABLES: &str = "SELECT tablename FROM pg_tables WHERE schemaname = 'placet'";
    let Some(postgres) = &cluster.postgres else { return Ok(()) };
    let postgres = postgres.lock().await;
    let bytes: String = SECRET.bytes().map(|byte| format!("{byte:02x}")).collect();
    let (mut files, mut hits) = (0_u64, Vec::new());
    for table in postgres.ask_data(TABLES).await?.lines() {
        let rows = format!(
            "SELECT count(*) FROM placet.{table} AS t WHERE t::text LIKE '%{SECRET}%' OR t::text LIKE '%{bytes}%'"
        );
        files = files.saturating_add(1);
        if postgres.ask_data(&rows).await? != "0" {
            hits.push(format!("witness in table {table}"));
        }
    }
    const SIZE: &str = "SELECT pg_database_size(current_database())";
    let bytes = postgres.ask_data(SIZE).await?.parse().unwrap_or_default();
    cluster.scene.recorder.record(What::Probe(Box::new(Probe::Secrets { files, bytes, hits })));
    Ok(())
}

async fn listed(cluster: &Cluster, node: usize) -> Result<()> {
    let number = u32::try_from(node).unwrap_or(u32::MAX);
    for tenant in TENANTS {
        let records = finale::records(&cluster.scene, tenant, node, None).await;
        let records = records.with_context(|| format!("node {node} does not list records"))?;
        let probe = Probe::Records { tenant: tenant.to_owned(), node: number, records };
        cluster.scene.recorder.record(What::Probe(Box::new(probe)));
        let approvals = approvals(cluster, tenant, node).await;
        let approvals =
            approvals.with_context(|| format!("node {node} does not list approvals"))?;
        let probe = Probe::Approvals { tenant: tenant.to_owned(), node: number, approvals };
        cluster.scene.recorder.record(What::Probe(Box::new(probe)));
    }
    Ok(())
}

async fn approvals(cluster: &Cluster, tenant: &str, node: usize) -> Option<Vec<ApprovalRow>> {
    let [approver, ..] = APPROVERS;
    let bearer = cluster.scene.people.bearer(tenant, approver).ok()?;
    let path = "/v1/approvals?limit=200";
    cluster.scene.api.list(node, path, bearer, "approvals").await
}

/// The peak memory of a node, against the most that it may ever need.
pub(crate) fn memory(scene: &Scene, node: &Node) {
    let status = node.pid().map(|pid| std::fs::read_to_string(format!("/proc/{pid}/status")));
    let Some(Ok(status)) = status else { return };
    let high = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = high.and_then(|text| text.split_whitespace().next()?.parse().ok());
    if let Some(value) = kib {
        let node = u32::try_from(node.number).unwrap_or(u32::MAX);
        let name = "resident memory at its highest, KiB".to_owned();
        let probe = Probe::Gauge { node, name, value, cap: MEMORY_KIB_MAX };
        scene.recorder.record(What::Probe(Box::new(probe)));
    }
}

async fn logs(cluster: &Cluster, node: &Node) -> Result<()> {
    let (code, said) = node.run(&["ledger", "export", "-"], TOOL).await?;
    if code != Some(0) {
        cluster.scene.find(format!("the log cannot be exported: {}", last(&said)));
        return Ok(());
    }
    let mut log = String::new();
    let (mut entries, mut head) = (0_u64, String::new());
    let mut whole = Whole::default();
    for line in said.lines() {
        let Some((name, document)) = entry_of(line) else {
            whole.read(line);
            if let Some(charged) = charged(line) {
                cluster.scene.recorder.record(What::Probe(Box::new(charged)));
            }
            continue;
        };
        if name != log {
            end_log(cluster, &log, entries, &head);
            (log, entries, head) = (name, 0, String::new());
        }
        let entry = JournalEntry::read(&log, &document)
            .with_context(|| format!("an exported entry of `{log}` cannot be read: {line}"))?;
        entries = entries.saturating_add(1);
        head.clone_from(&entry.hash);
        whole.found.insert(log.clone(), (entries, head.clone()));
        cluster.scene.recorder.record(What::Probe(Box::new(Probe::Entry(Box::new(entry)))));
    }
    end_log(cluster, &log, entries, &head);
    let problem = whole.problem();
    let probe = Probe::Verified {
        check: "ledger export".to_owned(),
        node: u32::try_from(node.number).ok(),
        ok: problem.is_none(),
        entries: None,
        head: None,
        problem,
    };
    cluster.scene.recorder.record(What::Probe(Box::new(probe)));
    Ok(())
}

/// An export's own totals, and what was found in it.
#[derive(Debug, Default)]
struct Whole {
    said: BTreeMap<String, (u64, String)>,
    found: BTreeMap<String, (u64, String)>,
    ended: bool,
}

impl Whole {
    /// Reads a line that is not an entry.
    fn read(&mut self, line: &str) {
        let Ok(document) = serde_json::from_str::<Value>(line) else { return };
        self.ended |= document.get("end").is_some();
        let logs = document.pointer("/header/logs").and_then(Value::as_array);
        self.said.extend(logs.into_iter().flatten().filter_map(|log| {
            let size = log.get("size")?.as_u64()?;
            let head = log.get("head")?.as_str()?.to_owned();
            Some((log.get("log")?.as_str()?.to_owned(), (size, head)))
        }));
    }

    /// Why the export is incomplete by its own totals.
    fn problem(&self) -> Option<String> {
        if !self.ended || self.said.is_empty() {
            return Some("the export has no header or no end".to_owned());
        }
        let wrong = self.said.iter().find(|(log, said)| self.found.get(*log) != Some(said));
        wrong.map(|(log, said)| {
            format!("log `{log}` ends at {said:?}, in the export at {:?}", self.found.get(log))
        })
    }
}

/// The log and the entry of a line of an export; other lines are of records, contents and the export itself.
fn entry_of(line: &str) -> Option<(String, Value)> {
    let mut document: Value = serde_json::from_str(line).ok()?;
    let carried = document.get_mut("entry")?;
    let log = carried.get("log")?.as_str()?.to_owned();
    let mut entry = carried.get_mut("entry")?.take();
    let payload = entry.get("payload")?.as_str()?;
    let payload: Value = serde_json::from_str(payload).ok()?;
    entry.as_object_mut()?.insert("payload".to_owned(), payload);
    Some((log, entry))
}

/// A run's charges, if a line of an export is about a run.
fn charged(line: &str) -> Option<Probe> {
    let document: Value = serde_json::from_str(line).ok()?;
    let run = document.get("run")?;
    let text = |name: &str| run.pointer(name)?.as_str().map(str::to_owned);
    Some(Probe::Budget {
        tenant: text("/key/tenant")?,
        agent: text("/key/agent")?,
        user: text("/key/on_behalf_of"),
        run_id: text("/key/run_id")?,
        used: run.get("calls_used")?.as_u64()?,
        limit: run.pointer("/budget/calls_max")?.as_u64()?,
    })
}

fn end_log(cluster: &Cluster, log: &str, entries: u64, head: &str) {
    if entries > 0 {
        let probe = Probe::LogEnd { log: log.to_owned(), entries, head: head.to_owned() };
        cluster.scene.recorder.record(What::Probe(Box::new(probe)));
    }
}

/// The ended starts, according to the database: shut out, or stopped in order.
async fn fenced(cluster: &Cluster) -> Result<()> {
    const FENCED: &str = "SELECT epoch, least(fenced_ms, closed_ms), fenced_by FROM placet.epochs \
        WHERE fenced_by IS NOT NULL OR closed_ms IS NOT NULL";
    let Some(postgres) = &cluster.postgres else { return Ok(()) };
    const EPOCHS: &str = "SELECT epoch, node FROM placet.epochs";
    let postgres = postgres.lock().await;
    for row in postgres.ask_data(EPOCHS).await?.lines() {
        let (epoch, node) = row.split_once("|node-").context("no row of a start")?;
        let probe = Probe::Epoch { epoch: epoch.parse()?, node: node.parse()? };
        cluster.scene.recorder.record(What::Probe(Box::new(probe)));
    }
    let rows = postgres.ask_data(FENCED).await?;
    for row in rows.lines().filter(|row| !row.is_empty()) {
        let mut fields = row.split('|');
        let mut field = || fields.next().context("no row of a fenced start");
        let (epoch, at_ms, by) = (field()?.parse()?, field()?.parse()?, field()?.parse().ok());
        let probe = Probe::Fenced { epoch, at_ms, by };
        cluster.scene.recorder.record(What::Probe(Box::new(probe)));
    }
    Ok(())
}

/// The result of one of the program's checks.
async fn verified(cluster: &Cluster, node: &Node, command: &[&str]) -> Result<()> {
    let (code, said) = node.run(&[command, &["--json"]].concat(), TOOL).await?;
    let document: Value = serde_json::from_str(said.trim()).unwrap_or(Value::Null);
    let ok = code == Some(0);
    let probe = Probe::Verified {
        check: command.join(" "),
        node: u32::try_from(node.number).ok(),
        ok,
        entries: document.get("entries").and_then(Value::as_u64),
        head: document.get("head").and_then(Value::as_str).map(str::to_owned),
        problem: (!ok).then(|| last(&said)),
    };
    cluster.scene.recorder.record(What::Probe(Box::new(probe)));
    Ok(())
}

/// The end of a program's output.
fn last(said: &str) -> String {
    let lines: Vec<&str> = said.lines().filter(|line| !line.trim().is_empty()).collect();
    lines.iter().skip(lines.len().saturating_sub(4)).copied().collect::<Vec<_>>().join(" / ")
}
