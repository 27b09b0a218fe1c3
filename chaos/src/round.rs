//! One round: a fresh deployment, load, faults, quiet, and the final probes.
//!
//! Owns the order and the bounds. Invariant: whatever happens, everything that was started is ended.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use placet_testkit::postgres::Postgres;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep, timeout},
};

use crate::{
    cluster::Cluster,
    collect,
    fault::Injector,
    history::{Phase, RunInfo, What, fault::FaultKind, file::Recorder},
    load::{Load, finale},
    people::TENANTS,
    schedule::{Act, Schedule, Store},
    seeded::Chance,
    setup::{Workshop, put},
    verdict::{self, Judgement},
    witness::tools::{KEYED_WINDOW_MS, SETTLE_DELAY_MS},
    world::World,
};

/// How soon an approved call runs, on a slow machine after a restart.
const RUNS_ONCE_APPROVED: Duration = Duration::from_secs(3);
/// Within which time after the last fault everything has to be settled.
const SETTLE: Duration = Duration::from_secs(30);
/// How long clients may take to end after they were stopped.
const CLIENTS_END: Duration = Duration::from_secs(45);

#[derive(Debug)]
pub(crate) struct Round {
    /// Where its history is.
    pub(crate) folder: PathBuf,
    /// The faults that really happened.
    pub(crate) injected: BTreeMap<FaultKind, u64>,
    pub(crate) judgement: Judgement,
}

/// Plays a schedule. `number` tells the rounds of a run apart.
pub(crate) async fn play(shop: &mut Workshop, schedule: &Schedule, number: u64) -> Result<Round> {
    let folder = shop.folder.join(format!("round-{number}"));
    std::fs::create_dir_all(&folder)?;
    put(&folder.join("schedule.json"), &serde_json::to_vec_pretty(schedule)?)?;
    let recorder = Recorder::create(&folder.join("history.jsonl"))?;
    recorder.record(What::Run(Box::new(info(schedule))));
    let world = World::start(&folder.join("witness")).await?;
    let ledger = database(shop, schedule).await?;
    let log = world.log.clone();
    let cluster = Cluster::start(shop, schedule, &folder, world, ledger, recorder.clone()).await?;
    let played = fight(&cluster, schedule).await;
    cluster.stop().await;
    if let Err(error) = played {
        // A harness that cannot go on has found something or is broken: either way it is not silent.
        cluster.scene.find(format!("the round could not be ended: {error:#}"));
    }
    recorder.record(What::Phase(Phase::Ended));
    recorder.finish().context("the history cannot be written")?;
    let judgement = verdict::judge(&folder.join("history.jsonl"), &log, cluster.scene.findings())?;
    Ok(Round { folder, injected: cluster.scene.injections(), judgement })
}

fn info(schedule: &Schedule) -> RunInfo {
    RunInfo {
        seed: schedule.seed,
        store: schedule.store.name().to_owned(),
        nodes: u32::try_from(schedule.nodes).unwrap_or(u32::MAX),
        keyed_window_ms: KEYED_WINDOW_MS,
        settle_delay_ms: SETTLE_DELAY_MS,
    }
}

/// A fresh database, where the nodes share one, with a replica where the primary will die.
async fn database(shop: &mut Workshop, schedule: &Schedule) -> Result<Option<String>> {
    if schedule.store == Store::Embedded {
        return Ok(None);
    }
    if shop.postgres.is_none() {
        let server = Postgres::start(&shop.machine).await?;
        shop.postgres = Some(Arc::new(tokio::sync::Mutex::new(server)));
    }
    let postgres = shop.postgres.as_ref().context("there is no database")?;
    let mut postgres = postgres.lock().await;
    if schedule.steps.iter().any(|step| step.act == Act::FailOver) {
        postgres.with_replica().await?;
    } else {
        postgres.without_replica().await?;
    }
    postgres.fresh_database().await.map(Some)
}

async fn fight(cluster: &Arc<Cluster>, schedule: &Schedule) -> Result<()> {
    let chance = Chance::new(schedule.seed);
    let recorder = &cluster.scene.recorder;
    recorder.record(What::Phase(Phase::Load));
    let name = format!("{:x}", schedule.seed & 0xFFFF_FFFF);
    let load = Load::new(Arc::clone(&cluster.scene), schedule.load.clone(), name);
    let clients = load.begin(&chance.fork("clients"));
    sleep(Duration::from_millis(200)).await;
    recorder.record(What::Phase(Phase::Faults));
    let injector = Injector::new(Arc::clone(cluster), Arc::clone(&load));
    let carried_out = injector.carry_out(schedule, &chance.fork("injector")).await;
    load.stop();
    let ended = end(clients).await;
    recorder.record(What::Phase(Phase::Quiet));
    carried_out?;
    if !ended {
        cluster.scene.find(format!("clients were still waiting after {CLIENTS_END:?}"));
    }
    cluster.scene.world.disarm().await?;
    cluster.wait_all_ready().await?;
    settle(cluster).await;
    finale::agree(&load, &mut chance.fork("agreed")).await;
    finale::operate(&cluster.scene, &mut chance.fork("operator")).await;
    let open = finale::ask_all(&load, SETTLE).await;
    settle(cluster).await;
    if open > 0 {
        cluster.scene.find(format!("{open} calls had no definite answer within {SETTLE:?}"));
    }
    finale::count_not_found(&cluster.scene);
    recorder.record(What::Phase(Phase::Probing));
    collect::collect(cluster, schedule.store).await
}

/// Waits for the clients; false when some had to be ended.
async fn end(mut clients: JoinSet<()>) -> bool {
    let all = async { while clients.join_next().await.is_some() {} };
    let ended = timeout(CLIENTS_END, all).await.is_ok();
    clients.shutdown().await;
    ended
}

/// Waits until nothing is in flight, or the time is up: then the checker reports what is. An approved call is about to run, or
/// waits for a caller who will not return.
async fn settle(cluster: &Cluster) {
    let began = Instant::now();
    while began.elapsed() < SETTLE {
        let mut open = is_any(cluster, "dispatched").await;
        open |= began.elapsed() < RUNS_ONCE_APPROVED && is_any(cluster, "approved").await;
        if !open {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a record is in this state; also true if that cannot be determined.
async fn is_any(cluster: &Cluster, state: &str) -> bool {
    for tenant in TENANTS {
        let rows = finale::records(&cluster.scene, tenant, 0, Some(state)).await;
        if rows.is_none_or(|rows| !rows.is_empty()) {
            return true;
        }
    }
    false
}

/// Removes what a clean round leaves.
pub(crate) fn forget(folder: &Path) {
    // What cannot be removed now is removed with the whole folder.
    std::fs::remove_dir_all(folder).unwrap_or_default();
}
