//! The rates of the stores alone: durable writes beside the disk's own syncs of batches of the same size, and replays.
//!
//! Owns what is counted as a write (claimed, dispatched, succeeded: two commits, each durable before the next step) and the
//! comparison with the disk. No engine, no policy, no transport is in between. Invariant: the disk is asked for what the store has
//! asked it for, in the same folder's file system, right before and right after.

use std::{
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context as _, Result};
use clap::Args;
use placet_ledger::store::Store;
use placet_store::{
    embedded::{EmbeddedConfig, EmbeddedStore, SyncObserver},
    postgres::{DatabaseUrl, PostgresConfig, PostgresStore},
};
use serde::Serialize;

use crate::{
    clock::Wall,
    disk,
    load::{self, Plan},
    machine::Machine,
    postgres::Postgres,
    progress,
    records::Caller,
    say,
    stats::{Numbers, Sample, rate},
    table::{exact, machine, table, whole},
};

const CONCURRENCIES: [usize; 3] = [1, 32, 256];
/// What a commit of one move takes in the journal, about; only the batches that the disk is asked for depend on it.
const ENTRY_BYTES: f64 = 1_024.0;

/// How the stores' rates are measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct RatesArgs {
    /// Print one JSON document instead of tables.
    #[arg(long)]
    json: bool,
    /// Measure for a shorter time.
    #[arg(long)]
    quick: bool,
    /// The folder in which the temporary store is made [default: the one this program is in].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// All rates.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    load_after: String,
    stores: Vec<StoreRates>,
}

/// One store.
#[derive(Debug, Serialize)]
struct StoreRates {
    store: String,
    writes: Vec<Write>,
    replays: Vec<Replay>,
}

/// Writes at one concurrency.
#[derive(Debug, Clone, Serialize)]
struct Write {
    concurrency: usize,
    counts: Numbers,
    /// Times a second that the store made commits durable.
    syncs: f64,
    /// Commits that one of them made durable, on average.
    batch: f64,
    /// What the disk alone does with batches of that size.
    disk: Numbers,
}

/// Replays at one concurrency.
#[derive(Debug, Clone, Serialize)]
struct Replay {
    concurrency: usize,
    counts: Numbers,
}

/// Counts what a store makes durable.
#[derive(Debug, Default)]
struct Counted {
    syncs: AtomicU64,
    commits: AtomicU64,
}

impl Counted {
    fn observer(self: &Arc<Self>) -> SyncObserver {
        let counted = Arc::clone(self);
        SyncObserver::new(move |commits, _took| {
            counted.syncs.fetch_add(1, Ordering::Relaxed);
            counted.commits.fetch_add(u64::from(commits), Ordering::Relaxed);
        })
    }

    /// What was counted since the last time.
    fn take(&self) -> (u64, u64) {
        (self.syncs.swap(0, Ordering::Relaxed), self.commits.swap(0, Ordering::Relaxed))
    }
}

/// Measures and prints.
pub(crate) async fn measure(args: &RatesArgs) -> Result<()> {
    let plan = if args.quick { Plan::QUICK } else { Plan::FULL };
    let own = std::env::current_exe().context("this program cannot find itself")?;
    let base =
        args.folder.as_deref().or_else(|| own.parent()).context("this program is in no folder")?;
    let folder = tempfile::Builder::new().prefix("placet-bench-").tempdir_in(base);
    let folder =
        folder.with_context(|| format!("no folder can be made in `{}`", base.display()))?;
    let machine = Machine::look(folder.path());
    let mut stores = vec![embedded(&plan, folder.path()).await?];
    match Postgres::start().await? {
        Some(server) => stores.push(postgres(&plan, server).await?),
        None => say(&mut io::stderr().lock(), "PostgreSQL is not installed, and left out"),
    }
    let load_after = Machine::look(folder.path()).load;
    let report = Report { machine, load_after, stores };
    let text = if args.json { serde_json::to_string_pretty(&report)? } else { render(&report) };
    say(&mut io::stdout().lock(), &text);
    Ok(())
}

async fn embedded(plan: &Plan, folder: &Path) -> Result<StoreRates> {
    let counted = Arc::new(Counted::default());
    let config = EmbeddedConfig::new(folder.join("store"));
    let config = EmbeddedConfig { on_sync: Some(counted.observer()), ..config };
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(config, Arc::new(Wall)));
    let (store, _) = opened.await.context("opening broke")??;
    rates(plan, ("embedded".to_owned(), store), &counted, folder).await
}

async fn postgres(plan: &Plan, server: Postgres) -> Result<StoreRates> {
    let counted = Arc::new(Counted::default());
    let config = PostgresConfig::new(DatabaseUrl::parse(&server.url())?, "bench");
    let config = PostgresConfig { on_sync: Some(counted.observer()), ..config };
    let (store, _) = PostgresStore::open(config).await?;
    let rates = rates(plan, (server.version().await?, store), &counted, server.folder()).await?;
    server.stop().await?;
    Ok(rates)
}

async fn rates(
    plan: &Plan,
    (name, store): (String, Arc<dyn Store>),
    counted: &Counted,
    folder: &Path,
) -> Result<StoreRates> {
    let caller = Caller::new(Arc::clone(&store), "k")?;
    let next = Arc::new(AtomicU64::new(0));
    let mut writes = Vec::new();
    for concurrency in CONCURRENCIES {
        progress(&format!("{name}: writes, concurrency {concurrency}"));
        writes.push(write(plan, concurrency, (&caller, &next), (counted, folder)).await?);
    }
    let known = next.load(Ordering::Relaxed);
    let mut replays = Vec::new();
    for concurrency in CONCURRENCIES {
        progress(&format!("{name}: replays, concurrency {concurrency}"));
        let (next, caller) = (Arc::new(AtomicU64::new(0)), caller.clone());
        let replay = move || {
            let (next, caller) = (Arc::clone(&next), caller.clone());
            async move {
                let step = next.fetch_add(1, Ordering::Relaxed).wrapping_mul(SCATTER);
                caller.replay(step.checked_rem(known).context("nothing was written")?).await
            }
        };
        let counts = counts(&load::run(concurrency, plan.rate, replay).await?)?;
        replays.push(Replay { concurrency, counts });
    }
    store.close().await?;
    Ok(StoreRates { store: name, writes, replays })
}

/// A prime, so that replays are of keys from everywhere.
const SCATTER: u64 = 1_000_003;

async fn write(
    plan: &Plan,
    concurrency: usize,
    (caller, next): (&Caller, &Arc<AtomicU64>),
    (counted, folder): (&Counted, &Path),
) -> Result<Write> {
    let (caller, next) = (caller.clone(), Arc::clone(next));
    let call = move || {
        let (caller, number) = (caller.clone(), next.fetch_add(1, Ordering::Relaxed));
        async move { caller.write(number).await }
    };
    counted.take();
    load::run(concurrency, plan.warm_up, call.clone()).await?;
    let batch = batch_of(counted.take());
    let mut disk = disk::syncs_of(folder, plan.disk, bytes_of(batch)).await?;
    let sample = load::run(concurrency, plan.rate, call).await?;
    let (syncs, commits) = counted.take();
    let batch = batch_of((syncs, commits));
    disk.join(disk::syncs_of(folder, plan.disk, bytes_of(batch)).await?);
    Ok(Write {
        concurrency,
        counts: counts(&sample)?,
        syncs: float(syncs) * rate(1, sample.elapsed).context("no time passed")?,
        batch,
        disk: counts(&disk)?,
    })
}

fn batch_of((syncs, commits): (u64, u64)) -> f64 {
    float(commits) / float(syncs)
}

fn float(count: u64) -> f64 {
    u32::try_from(count).map_or(f64::INFINITY, f64::from)
}

/// The bytes of a batch of commits, in whole blocks of the disk.
fn bytes_of(batch: f64) -> usize {
    const BLOCK: usize = 4_096;
    let mut bytes = BLOCK;
    let mut room = 4_096.0;
    while room < batch * ENTRY_BYTES && bytes < (8 << 20) {
        bytes = bytes.saturating_add(BLOCK);
        room += 4_096.0;
    }
    bytes
}

fn counts(sample: &Sample) -> Result<Numbers> {
    sample.counts().context("no call ended in time")
}

fn render(report: &Report) -> String {
    let head = format!("{}\n- load after the run: {}", machine(&report.machine), report.load_after);
    let mut parts = vec![head];
    for store in &report.stores {
        parts.push(format!("Durable writes, {}:\n\n{}", store.store, writes(store)));
        parts.push(format!("Replays of a recorded result, {}:\n\n{}", store.store, replays(store)));
    }
    parts.join("\n\n")
}

fn writes(store: &StoreRates) -> String {
    let header = [
        "callers",
        "writes /s",
        "p50 ms",
        "p99 ms",
        "syncs /s",
        "commits a sync",
        "disk alone: syncs /s",
        "p50 ms",
        "store by disk syncs",
    ];
    let rows = store.writes.iter().map(|one| {
        [
            one.concurrency.to_string(),
            whole(one.counts.per_second),
            exact(one.counts.p50_ms),
            exact(one.counts.p99_ms),
            whole(one.syncs),
            format!("{:.1}", one.batch),
            whole(one.disk.per_second),
            exact(one.disk.p50_ms),
            format!("{:.2}", one.syncs / one.disk.per_second),
        ]
    });
    table(header, 0, rows)
}

fn replays(store: &StoreRates) -> String {
    let rows = store.replays.iter().map(|one| {
        let counts = &one.counts;
        [
            one.concurrency.to_string(),
            whole(counts.per_second),
            exact(counts.p50_ms),
            exact(counts.p99_ms),
        ]
    });
    table(["callers", "replays /s", "p50 ms", "p99 ms"], 0, rows)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Report, bytes_of, embedded, postgres, render};
    use crate::{load::Plan, machine::Machine, postgres::Postgres};

    const SHORT: Plan = Plan {
        warm_up: Duration::from_millis(5),
        rate: Duration::from_millis(80),
        disk: Duration::from_millis(10),
        ..Plan::QUICK
    };

    #[test]
    fn the_disk_is_asked_for_what_the_store_asks_it_for() {
        assert_eq!(bytes_of(1.0), 4_096);
        assert_eq!(bytes_of(4.1), 8_192);
        assert_eq!(bytes_of(f64::INFINITY), 8 << 20);
        assert_eq!(bytes_of(f64::NAN), 4_096);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn both_stores_are_measured_in_the_same_way() {
        let folder = tempfile::tempdir().unwrap();
        let mut stores = vec![embedded(&SHORT, folder.path()).await.unwrap()];
        if let Some(server) = Postgres::start().await.unwrap() {
            stores.push(postgres(&SHORT, server).await.unwrap());
        }
        for store in &stores {
            assert_eq!((store.writes.len(), store.replays.len()), (3, 3));
            assert!(store.writes.iter().all(|one| one.syncs > 0.0 && one.batch >= 1.0));
        }
        let machine = Machine::look(folder.path());
        let text = render(&Report { machine, load_after: "0.12".to_owned(), stores });
        assert!(text.contains("embedded") && text.contains("0.12"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
