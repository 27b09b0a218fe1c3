//! A ledger in PostgreSQL: writes of one node, and of three nodes that share it.
//!
//! Owns the nodes' start, their load, and whose CPU time is counted. Invariants: each node has a folder of its own and decides by the same
//! files; the callers use the nodes alternately; the CPU time of a database on another machine is absent, not zero.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use placet_types::contract::file::ContractFile;
use serde::Serialize;
use serde_json::json;

use crate::{
    engine::{Call, Engine},
    load::{self, Plan},
    process, progress,
    stats::{Numbers, Sample, number},
};

/// How many nodes share the ledger.
const NODES: [usize; 2] = [1, 3];
/// Concurrent callers.
const CALLERS: [usize; 2] = [32, 256];
/// The name of the database's processes.
const SERVER: &str = "postgres";

/// Durable writes of nodes that share a database.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Fleet {
    /// How many nodes.
    pub(crate) nodes: usize,
    /// Concurrent callers, of all nodes together.
    pub(crate) callers: usize,
    /// The calls.
    pub(crate) numbers: Numbers,
    /// Processor time of all nodes for one call, in microseconds.
    pub(crate) nodes_cpu_us: f64,
    /// Processor time of the database for one call, where it runs on this machine.
    pub(crate) database_cpu_us: Option<f64>,
}

/// Measures one node and then three at the ledger `url`, an empty database.
pub(crate) async fn measure(
    plan: &Plan,
    placet: &Path,
    folder: &Path,
    url: &str,
    contracts: &[ContractFile],
) -> Result<Vec<Fleet>> {
    let mut measured = Vec::new();
    for count in NODES {
        let mut nodes = Vec::new();
        for number in 1..=count {
            let name = format!("node-{number}");
            let own = folder.join(&name);
            let ledger = json!({ "store": url, "node": name });
            share_key(&folder.join("node-1"), &own)?;
            nodes.push(Engine::start(placet, &own, contracts, Some(ledger)).await?);
        }
        for callers in CALLERS {
            progress(&format!("writes to PostgreSQL, {count} nodes, {callers} callers"));
            measured.push(writes(plan, &nodes, callers).await?);
        }
        for node in nodes {
            node.stop().await?;
        }
    }
    Ok(measured)
}

/// Nodes decide by the same issuers, so they have one key for development tokens.
fn share_key(first: &Path, own: &Path) -> Result<()> {
    let key = |node: &Path| node.join("data/dev-key.jwk");
    if first == own || key(own).is_file() {
        return Ok(());
    }
    fs::create_dir_all(own.join("data")).context("a node's folder cannot be made")?;
    fs::copy(key(first), key(own)).context("the first node has no key to share")?;
    Ok(())
}

async fn writes(plan: &Plan, nodes: &[Engine], callers: usize) -> Result<Fleet> {
    let all: Arc<[_]> = nodes.iter().map(|node| node.caller(Call::write())).collect();
    let turn = Arc::new(AtomicUsize::new(0));
    let call = move || {
        let next = turn.fetch_add(1, Ordering::Relaxed).checked_rem(all.len());
        let caller = next.and_then(|next| all.get(next)).cloned();
        async move { caller.context("there is no node")?.succeed().await }
    };
    load::run(callers, plan.warm_up, call.clone()).await?;
    let nodes_cpu = || -> Result<Duration> {
        nodes.iter().try_fold(Duration::ZERO, |sum, node| Ok(sum.saturating_add(node.usage()?.cpu)))
    };
    let (nodes_before, database_before) = (nodes_cpu()?, process::cpu_of_all(SERVER)?);
    let mut sample = Sample::default();
    for _round in 0..plan.rounds {
        sample.join(load::run(callers, plan.round, call.clone()).await?);
    }
    let (nodes_after, database_after) = (nodes_cpu()?, process::cpu_of_all(SERVER)?);
    let numbers = sample.counts().context("no call ended in time")?;
    let calls = number(u64::try_from(numbers.calls).unwrap_or(u64::MAX));
    let each = |before: Duration, after: Duration| {
        after.saturating_sub(before).as_secs_f64() * 1_000_000.0 / calls
    };
    Ok(Fleet {
        nodes: nodes.len(),
        callers,
        numbers,
        nodes_cpu_us: each(nodes_before, nodes_after),
        database_cpu_us: database_before.zip(database_after).map(|(a, b)| each(a, b)),
    })
}
