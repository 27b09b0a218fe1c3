//! Durable writes beside the disk's own rate, and replays.
//!
//! Owns the rates of the engine alone. Every write here is a governed call with an effect record: durable before the tool is
//! called and again before the caller is answered.

use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use crate::{
    contract, disk,
    engine::{Call, Engine},
    load::{self, Plan},
    peer::{NOTE, Transport},
    progress,
    stats::{Numbers, Sample, rate},
};

const CONCURRENCIES: [usize; 3] = [1, 32, 256];
const REPLAY_CONCURRENCIES: [usize; 2] = [1, 32];
const BATCH_SUM: &str = "placet_journal_batch_size_sum";
const BATCH_COUNT: &str = "placet_journal_batch_size_count";

/// All write rates.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Writes {
    /// The disk before and after, without the engine.
    pub(crate) disk: Numbers,
    /// One for each concurrency.
    pub(crate) rates: Vec<WriteRate>,
}

/// Durable writes at one concurrency.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct WriteRate {
    /// Callers at the same time.
    pub(crate) concurrency: usize,
    /// The calls.
    pub(crate) counts: Numbers,
    /// Syncs of the journal in a second.
    pub(crate) syncs_per_second: f64,
    /// Entries that one sync made durable, on average; absent when nothing was synced.
    pub(crate) batch: Option<f64>,
}

/// Replays at one concurrency.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ReplayRate {
    /// Callers at the same time.
    pub(crate) concurrency: usize,
    /// The calls.
    pub(crate) counts: Numbers,
}

/// Measures the write rates.
pub(crate) async fn measure(plan: &Plan, engine: &Engine, folder: &Path) -> Result<Writes> {
    progress("the disk");
    let mut disk = disk::syncs(folder, plan.disk).await?;
    let mut rates = Vec::new();
    for concurrency in CONCURRENCIES {
        progress(&format!("durable writes, concurrency {concurrency}"));
        rates.push(write_rate(plan, engine, concurrency).await?);
    }
    progress("the disk again");
    disk.join(disk::syncs(folder, plan.disk).await?);
    Ok(Writes { disk: disk.counts().context("the disk synced nothing")?, rates })
}

async fn write_rate(plan: &Plan, engine: &Engine, concurrency: usize) -> Result<WriteRate> {
    let caller = engine.caller(Call::new(contract::tool(Transport::Stdio, NOTE), NOTE));
    let call = move || caller.clone().call();
    load::run(concurrency, plan.warm_up, call.clone()).await?;
    let before = Journal::read(engine).await?;
    let sample = load::run(concurrency, plan.rate, call).await?;
    let after = Journal::read(engine).await?;
    let (syncs, entries) = (after.syncs - before.syncs, after.entries - before.entries);
    Ok(WriteRate {
        concurrency,
        counts: counts(&sample)?,
        syncs_per_second: rate(1, sample.elapsed).context("no time passed")? * syncs,
        batch: (syncs > 0.0).then(|| entries / syncs),
    })
}

/// Measures how fast a recorded result is given again.
pub(crate) async fn replays(plan: &Plan, engine: &Engine) -> Result<Vec<ReplayRate>> {
    let mut rates = Vec::new();
    for concurrency in REPLAY_CONCURRENCIES {
        let caller = engine.caller(Call::repeated(contract::tool(Transport::Stdio, NOTE), NOTE));
        caller.clone().call().await?;
        let replay = move || caller.clone().replay();
        load::run(concurrency, plan.warm_up, replay.clone()).await?;
        let sample = load::run(concurrency, plan.rate, replay).await?;
        rates.push(ReplayRate { concurrency, counts: counts(&sample)? });
    }
    Ok(rates)
}

fn counts(sample: &Sample) -> Result<Numbers> {
    sample.counts().context("no call ended in time")
}

/// What the engine says about its journal.
#[derive(Debug, Clone, Copy)]
struct Journal {
    entries: f64,
    syncs: f64,
}

impl Journal {
    async fn read(engine: &Engine) -> Result<Self> {
        Ok(Self {
            entries: engine.metric(BATCH_SUM).await?,
            syncs: engine.metric(BATCH_COUNT).await?,
        })
    }
}
