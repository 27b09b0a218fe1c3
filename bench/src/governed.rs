//! Governed calls: reads against the same call made directly, writes against the disk, replays, and held calls.
//!
//! Owns which calls are made and in which order. Invariants: a ratio is of neighbouring rounds, so that whatever slows the machine down
//! for a while affects both sides; CPU time is that of the rounds alone.

use std::{future::Future, path::Path, time::Duration};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use crate::{
    contract, disk,
    engine::{Call, Caller, Engine},
    load::{self, Plan},
    mcp_client::{McpCaller, McpClient},
    peer::LOOK,
    progress,
    stats::{Numbers, Sample, median, number},
};

/// The names of the calls in the tables.
pub(crate) const READ: &str = "read, MCP over HTTP";
pub(crate) const READ_MCP: &str = "read, MCP at both ends";
pub(crate) const READ_FILE: &str = "read, files";
pub(crate) const WRITE: &str = "write, MCP over HTTP";
pub(crate) const REPLAY: &str = "replay";

/// Concurrent readers.
const READERS: [usize; 2] = [1, 32];
/// Concurrent readers over MCP.
const MCP_READERS: [usize; 3] = [1, 32, 256];
/// Concurrent writers.
const WRITERS: [usize; 3] = [1, 32, 256];
/// Concurrent callers while calls are held.
const HOLDERS: usize = 64;
/// Calls that are held before memory is read for the first time, so that pools and caches are not counted.
const HELD_FIRST: u64 = 1_000;

/// Governed calls of one kind at one concurrency.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Governed {
    /// Which call.
    pub(crate) call: &'static str,
    /// Concurrent callers.
    pub(crate) callers: usize,
    /// The calls.
    pub(crate) numbers: Numbers,
    /// Processor time of the `placet` process for one call, in microseconds.
    pub(crate) cpu_us: f64,
    /// How often one of its threads waited, for one call.
    pub(crate) waits: f64,
    /// The same call made directly, where there is one.
    pub(crate) direct: Option<Numbers>,
    /// Calls per second relative to direct calls: the median of neighbouring rounds.
    pub(crate) ratio: Option<f64>,
}

/// Everything about governed calls.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct AllGoverned {
    /// All calls.
    pub(crate) calls: Vec<Governed>,
    /// 4 KiB appended and synced by the disk alone.
    pub(crate) disk: Numbers,
    /// The memory of held calls, if any were held.
    pub(crate) held: Option<Held>,
}

/// The memory of held calls.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Held {
    /// How many were held.
    pub(crate) calls: u64,
    /// Resident memory of the process for each of them.
    pub(crate) bytes_each: f64,
}

/// MCP clients of the server itself, and of Placet in front of it.
#[derive(Debug)]
pub(crate) struct Clients {
    pub(crate) direct: McpClient,
    pub(crate) governed: McpClient,
}

/// A process under measurement, and the same server without it.
#[derive(Debug)]
struct Bench<'a> {
    plan: &'a Plan,
    engine: &'a Engine,
    clients: &'a Clients,
}

/// Measures everything, or the calls whose name contains `only`.
pub(crate) async fn measure(
    plan: &Plan,
    engine: &Engine,
    clients: &Clients,
    folder: &Path,
    only: &str,
) -> Result<AllGoverned> {
    let bench = Bench { plan, engine, clients };
    let mut calls = Vec::new();
    let wanted = |name: &str, callers: &'static [usize]| {
        let is_wanted = name.contains(only);
        callers.iter().copied().filter(move |_| is_wanted)
    };
    for callers in wanted(READ, &READERS) {
        calls.push(bench.read(callers).await?);
    }
    for callers in wanted(READ_MCP, &MCP_READERS) {
        calls.push(bench.read_over_mcp(callers).await?);
    }
    for callers in wanted(READ_FILE, &READERS) {
        let caller = engine.caller(Call::file());
        calls.push(bench.alone(READ_FILE, callers, move || caller.clone().succeed()).await?);
    }
    let mut synced = disk::syncs(folder, plan.disk).await?;
    for callers in wanted(WRITE, &WRITERS) {
        calls.push(bench.write(callers).await?);
    }
    synced.join(disk::syncs(folder, plan.disk).await?);
    for callers in wanted(REPLAY, &READERS) {
        let caller = engine.caller(Call::repeated());
        caller.clone().succeed().await?;
        calls.push(bench.alone(REPLAY, callers, move || caller.clone().replay()).await?);
    }
    ensure!(
        !calls.is_empty(),
        "no call has `{only}` in its name: {READ}; {READ_MCP}; {READ_FILE}; {WRITE}; {REPLAY}"
    );
    Ok(AllGoverned { calls, disk: synced.counts().context("the disk synced nothing")?, held: None })
}

/// Holds this many calls and measures their memory.
pub(crate) async fn hold(plan: &Plan, engine: &Engine, calls: u64) -> Result<Held> {
    progress(&format!("{calls} held calls"));
    let caller = engine.caller(Call::held());
    hold_some(&caller, HELD_FIRST).await?;
    tokio::time::sleep(plan.settle).await;
    let before = engine.usage()?.resident;
    hold_some(&caller, calls).await?;
    tokio::time::sleep(plan.settle).await;
    let grown = engine.usage()?.resident.saturating_sub(before);
    Ok(Held { calls, bytes_each: number(grown) / number(calls) })
}

async fn hold_some(caller: &Caller, calls: u64) -> Result<()> {
    use futures::{StreamExt as _, TryStreamExt as _, stream};
    let holding = stream::iter(0..calls).map(|_number| caller.clone().hold());
    holding.buffer_unordered(HOLDERS).try_collect::<Vec<()>>().await.map(drop)
}

/// The results and costs of one side's rounds.
#[derive(Debug, Default)]
struct Rounds {
    sample: Sample,
    cpu: Duration,
    waits: u64,
}

impl Bench<'_> {
    async fn read(&self, callers: usize) -> Result<Governed> {
        let caller = self.engine.caller(Call::read());
        let direct = self.clients.direct.caller(LOOK);
        self.against(READ, callers, direct, move || caller.clone().succeed()).await
    }

    async fn read_over_mcp(&self, callers: usize) -> Result<Governed> {
        let caller = self.clients.governed.governed_caller(contract::WEB, LOOK);
        let direct = self.clients.direct.caller(LOOK);
        self.against(READ_MCP, callers, direct, move || caller.clone().call()).await
    }

    async fn write(&self, callers: usize) -> Result<Governed> {
        let caller = self.engine.caller(Call::write());
        self.alone(WRITE, callers, move || caller.clone().succeed()).await
    }

    async fn alone<C, F>(&self, name: &'static str, callers: usize, call: C) -> Result<Governed>
    where
        C: Fn() -> F + Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send,
    {
        progress(&format!("{name}, {callers} callers"));
        load::run(callers, self.plan.warm_up, call.clone()).await?;
        let mut rounds = Rounds::default();
        for _round in 0..self.plan.rounds {
            self.round(callers, call.clone(), &mut rounds).await?;
        }
        rounds.governed(name, callers)
    }

    async fn against<C, F>(
        &self,
        name: &'static str,
        callers: usize,
        direct: McpCaller,
        call: C,
    ) -> Result<Governed>
    where
        C: Fn() -> F + Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send,
    {
        progress(&format!("{name}, {callers} callers"));
        let plain = move || direct.clone().call();
        load::run(callers, self.plan.warm_up, plain.clone()).await?;
        load::run(callers, self.plan.warm_up, call.clone()).await?;
        let (mut directly, mut rounds, mut ratios) =
            (Sample::default(), Rounds::default(), Vec::new());
        for _round in 0..self.plan.rounds {
            let a = load::run(callers, self.plan.round, plain.clone()).await?;
            let b = self.round(callers, call.clone(), &mut rounds).await?;
            if let (Some(a), Some(b)) = (a.counts(), b) {
                ratios.push(b.per_second / a.per_second);
            }
            directly.join(a);
        }
        let governed = rounds.governed(name, callers)?;
        Ok(Governed { direct: directly.counts(), ratio: median(&ratios), ..governed })
    }

    async fn round<C, F>(
        &self,
        callers: usize,
        call: C,
        rounds: &mut Rounds,
    ) -> Result<Option<Numbers>>
    where
        C: Fn() -> F + Clone + Send + 'static,
        F: Future<Output = Result<()>> + Send,
    {
        let before = self.engine.usage()?;
        let sample = load::run(callers, self.plan.round, call).await?;
        let after = self.engine.usage()?;
        rounds.cpu = rounds.cpu.saturating_add(after.cpu.saturating_sub(before.cpu));
        rounds.waits = rounds.waits.saturating_add(after.waits.saturating_sub(before.waits));
        let numbers = sample.counts();
        rounds.sample.join(sample);
        Ok(numbers)
    }
}

impl Rounds {
    fn governed(self, call: &'static str, callers: usize) -> Result<Governed> {
        let numbers = self.sample.counts().context("no call ended in time")?;
        let calls = number(u64::try_from(numbers.calls).unwrap_or(u64::MAX));
        Ok(Governed {
            call,
            callers,
            cpu_us: self.cpu.as_secs_f64() * 1_000_000.0 / calls,
            waits: number(self.waits) / calls,
            numbers,
            direct: None,
            ratio: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Rounds;
    use crate::stats::Sample;

    #[test]
    fn processor_time_is_shared_by_the_calls_of_the_rounds() {
        let sample = Sample {
            latencies: vec![Duration::from_millis(2); 4],
            elapsed: Duration::from_secs(1),
        };
        let rounds = Rounds { sample, cpu: Duration::from_micros(800), waits: 6 };
        let governed = rounds.governed("read", 2).unwrap();
        assert!((governed.cpu_us - 200.0).abs() < 1e-9 && (governed.waits - 1.5).abs() < 1e-9);
        assert!(Rounds::default().governed("read", 2).is_err(), "nothing was called");
    }
}
