//! Somebody's own deployment: the faults that need no hold of its processes.
//!
//! Owns such a run: load, duplicates, changed arguments, other principals, clients that leave, an upstream that misbehaves, votes,
//! overload. Everything else is reported as not applicable. Invariant: nothing of the deployment is touched but through its listeners.

use std::{collections::BTreeSet, fs, io, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use placet_chaos::history::{Phase, RunInfo, What, fault::FaultKind, file::Recorder, probe::Probe};
use placet_testkit::moment::Moment;
use tokio::time::{Instant, sleep, timeout};

use crate::{
    Cli,
    cluster::CLIENT_WAITS,
    http::Api,
    load::{Load, finale},
    people::{People, TENANTS},
    say,
    scene::Scene,
    schedule::{self, Frame, Store},
    seeded::Chance,
    setup::{ADAPTER, KEYED_WINDOW_MS, SETTLE_DELAY_MS},
    verdict,
    world::World,
};

/// The faults that clients and the upstream can cause.
const APPLICABLE: [FaultKind; 10] = [
    FaultKind::F1,
    FaultKind::F2,
    FaultKind::F3,
    FaultKind::F6,
    FaultKind::F7,
    FaultKind::F8,
    FaultKind::F14,
    FaultKind::F16,
    FaultKind::F19,
    FaultKind::F24,
];
/// Within which time everything has to be settled.
const SETTLE: Duration = Duration::from_secs(60);

/// Runs against the deployment at `--target`; true when all is well.
pub(crate) async fn run(cli: &Cli) -> Result<bool> {
    let tokens = cli.tokens.as_deref().context("--target needs --tokens")?;
    let seed = cli.seed.unwrap_or_else(|| Moment::now().us);
    let folder = cli
        .folder
        .clone()
        .unwrap_or_else(std::env::temp_dir)
        .join(format!("placet-chaos-target-{seed}"));
    fs::create_dir_all(&folder).with_context(|| format!("`{}`", folder.display()))?;
    let recorder = Recorder::create(&folder.join("history.jsonl"))?;
    let faults: BTreeSet<FaultKind> = APPLICABLE
        .into_iter()
        .filter(|fault| cli.faults.is_empty() || cli.faults.contains(fault))
        .collect();
    recorder.record(What::Run(Box::new(RunInfo {
        seed,
        commit: "the deployment's own".to_owned(),
        machine: std::env::consts::ARCH.to_owned(),
        store: "unknown".to_owned(),
        nodes: u32::try_from(cli.target.len()).unwrap_or(u32::MAX),
        applicable: faults.iter().copied().collect(),
        keyed_window_ms: KEYED_WINDOW_MS,
        settle_delay_ms: SETTLE_DELAY_MS,
        settle_within_ms: u64::try_from(SETTLE.as_millis()).unwrap_or(u64::MAX),
    })));
    let world = World::start(&folder.join("witness"), Some(cli.witness_port)).await?;
    let witness = world.log.clone();
    let api = Api::new(cli.target.clone(), CLIENT_WAITS)?;
    let scene = Arc::new(Scene::new(
        api,
        People::read(tokens)?,
        world,
        recorder.clone(),
        ADAPTER.to_owned(),
    ));
    let frame = Frame { store: Store::Embedded, nodes: cli.target.len(), length_ms: 0, faults };
    play(cli, &scene, seed, &frame).await?;
    recorder.record(What::Phase(Phase::Ended));
    recorder.finish().context("the history cannot be written")?;
    let judgement = verdict::judge(&folder.join("history.jsonl"), &witness, scene.findings())?;
    let report = judgement.report;
    if let Some(path) = &cli.json {
        fs::write(path, report.json()?).with_context(|| format!("`{}`", path.display()))?;
    }
    let mut out = io::stdout().lock();
    say(&mut out, &report.text());
    say(
        &mut out,
        "What only the deployment's own log can show was not checked: see `placet audit verify` there.",
    );
    // What needs the log cannot be held against a deployment that is seen from outside only.
    Ok(judgement.wrong.is_empty())
}

async fn play(cli: &Cli, scene: &Arc<Scene>, seed: u64, frame: &Frame) -> Result<()> {
    let chance = Chance::new(seed);
    let mut plan = schedule::draw(seed, frame).load;
    plan.calls_max = u64::MAX;
    let load = Load::new(Arc::clone(scene), plan, format!("{seed:x}"));
    scene.recorder.record(What::Phase(Phase::Load));
    let mut clients = load.begin(&chance.fork("clients"));
    scene.recorder.record(What::Phase(Phase::Faults));
    let until = Instant::now() + Duration::try_from_secs_f64(cli.minutes * 60.0)?;
    while Instant::now() < until {
        sleep(Duration::from_secs(5).min(until.saturating_duration_since(Instant::now()))).await;
        let (requests, replies, _) = scene.counts();
        let faults: u64 = scene.injections().values().sum();
        say(
            &mut io::stderr().lock(),
            &format!("{requests} requests, {replies} answers, {faults} faults"),
        );
    }
    load.stop();
    let ended = timeout(SETTLE, async { while clients.join_next().await.is_some() {} }).await;
    if ended.is_err() {
        scene.find("clients were still waiting at the end".to_owned());
    }
    clients.shutdown().await;
    scene.world.disarm().await?;
    scene.recorder.record(What::Phase(Phase::Quiet));
    let open = finale::ask_all(&load, SETTLE).await;
    if open > 0 {
        scene.find(format!("{open} calls had no definite answer within {SETTLE:?}"));
    }
    finale::count_not_found(scene);
    scene.recorder.record(What::Phase(Phase::Probing));
    for node in 0..scene.api.len() {
        for tenant in TENANTS {
            if let Some(records) = finale::records(scene, tenant, node, None).await {
                let node = u32::try_from(node).unwrap_or(u32::MAX);
                let probe = Probe::Records { tenant: tenant.to_owned(), node, records };
                scene.recorder.record(What::Probe(Box::new(probe)));
            }
        }
    }
    Ok(())
}
