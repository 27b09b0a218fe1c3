//! The parts of the ledger's measurement, each in a process of its own, so that memory and start-up are those of that part alone.
//!
//! Owns what is done to the store in each part, and what is said of it: one line of JSON. Not here: the order of the parts.
//! Invariants: every key that is called known was written before; a measured claim is never made of a key twice.

use std::{
    fs,
    io::{self, BufReader},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clap::{Args, ValueEnum};
use placet_ledger::store::{ClaimAnswer, Store as _};
use placet_store::{
    embedded::{EmbeddedConfig, EmbeddedStore, IndexFate, RecoveryReport, import, rebuild},
    transfer::{ExportItem, ExportWriter},
};
use placet_types::{clock::Clock as _, digest::Digest};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::Instant};

use crate::{
    clock::Wall,
    records::{Caller, Records, Settled},
    say,
    stats::{Figures, Sample, milliseconds},
};

/// Calls under way at once while the store is filled.
const FILLERS: u64 = 1_024;
/// How often the progress of filling is said.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// Claims of each kind that are measured, and that come before them without being counted.
const CLAIMS: u64 = 5_000;
const WARM_UP: u64 = 500;
/// Durable claims that are measured.
const DURABLE: u64 = 500;
/// The series of the keys that are filled in.
const SERIES: &str = "k";
/// Steps through all numbers below a power of ten without coming to one twice: it has no factor in common with ten.
const STEP: u64 = 7_368_787;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Take records over from an export, as they are after their calls.
    Import,
    /// Write records, and wait to be killed.
    Grow,
    /// Open and close.
    Start,
    /// Claim known and new keys.
    Claims,
    /// Make the index anew from the whole journal.
    Rebuild,
}

/// A part of the measurement.
#[derive(Debug, Clone, Args)]
pub(crate) struct PartArgs {
    /// What is done.
    pub(crate) part: Part,
    /// The data folder.
    pub(crate) folder: PathBuf,
    /// How many records there are.
    #[arg(long, default_value_t = 0)]
    pub(crate) from: u64,
    /// How many there shall be.
    #[arg(long, default_value_t = 0)]
    pub(crate) to: u64,
    /// The store of the smallest size, which claims are made in by turns, and how many records it has.
    #[arg(long)]
    pub(crate) reference: Option<PathBuf>,
    /// How many records that one has.
    #[arg(long, default_value_t = 0)]
    pub(crate) reference_records: u64,
}

/// What a part says.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Said {
    /// How long opening took.
    pub(crate) open_ms: f64,
    /// How many entries opening had to read.
    pub(crate) read: u64,
    /// Effect records found.
    pub(crate) effects: u64,
    /// The index was made anew.
    pub(crate) rebuilt: bool,
    /// How long closing took.
    pub(crate) close_ms: f64,
    /// How long writing took.
    pub(crate) grow_s: f64,
    /// The most memory that was resident, and what of it was memory of the process's own.
    pub(crate) memory: Memory,
    /// Claims, where they were measured.
    pub(crate) claims: Option<Claims>,
    /// Claims in the store of the smallest size, made in turns with the others.
    pub(crate) reference: Option<Claims>,
}

/// Latencies of claims.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Of keys that nobody had claimed.
    pub(crate) new: Figures,
    /// Of keys with a recorded result.
    pub(crate) known: Figures,
    /// Of new keys, with the dispatch made durable.
    pub(crate) durable: Figures,
}

/// Resident memory, in MiB.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Memory {
    /// The most there was.
    pub(crate) peak_mib: u64,
    /// Once the store was open and had done its work.
    pub(crate) now_mib: u64,
}

/// Does one part.
pub(crate) async fn run(args: &PartArgs) -> Result<()> {
    let said = match args.part {
        Part::Import => imported(args).await?,
        Part::Grow => grow(args).await?,
        Part::Start => start(args).await?,
        Part::Claims => claims(args).await?,
        Part::Rebuild => rebuilt(args).await?,
    };
    say(&mut io::stdout().lock(), &serde_json::to_string(&said)?);
    if args.part == Part::Grow {
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// A store that is open, and what its opening said.
struct Open {
    store: Arc<EmbeddedStore>,
    said: Said,
}

async fn open(folder: &Path) -> Result<Open> {
    let config = EmbeddedConfig::new(folder);
    let began = Instant::now();
    let opened = tokio::task::spawn_blocking(move || EmbeddedStore::open(config, Arc::new(Wall)));
    let (store, report) = opened.await.context("opening broke")??;
    Ok(Open { store, said: said_of(&report, began.elapsed()) })
}

fn said_of(report: &RecoveryReport, took: Duration) -> Said {
    Said {
        open_ms: milliseconds(took),
        read: report.frames.saturating_sub(report.checkpoint_seq),
        effects: report.effects,
        rebuilt: matches!(report.index, IndexFate::Rebuilt { .. }),
        ..Said::default()
    }
}

impl Open {
    async fn close(mut self) -> Result<Said> {
        self.said.memory = memory();
        let began = Instant::now();
        self.store.close().await?;
        self.said.close_ms = milliseconds(began.elapsed());
        Ok(self.said)
    }
}

async fn start(args: &PartArgs) -> Result<Said> {
    open(&args.folder).await?.close().await
}

async fn rebuilt(args: &PartArgs) -> Result<Said> {
    let folder = args.folder.clone();
    let began = Instant::now();
    let report = tokio::task::spawn_blocking(move || rebuild(&folder)).await;
    let report = report.context("rebuilding broke")??;
    Ok(Said { memory: memory(), ..said_of(&report, began.elapsed()) })
}

async fn imported(args: &PartArgs) -> Result<Said> {
    let (folder, records) = (args.folder.clone(), args.to);
    let began = Instant::now();
    let work = move || {
        let (reading, writing) = io::pipe()?;
        let exporting = std::thread::spawn(move || export(writing, records));
        let taken = import(&EmbeddedConfig::new(folder), BufReader::with_capacity(PIPE, reading));
        exporting.join().map_err(|_panic| anyhow!("the export broke"))??;
        anyhow::Ok(taken?)
    };
    let summary = tokio::task::spawn_blocking(work).await.context("taking over broke")??;
    let grow_s = began.elapsed().as_secs_f64();
    Ok(Said { grow_s, effects: summary.records, memory: memory(), ..Said::default() })
}

/// What is read from the export at once.
const PIPE: usize = 256 << 10;
/// How often the progress of an import is said.
const SAY_RECORDS: u64 = 500_000;

/// The export of a store that held so many calls, all ended.
fn export(to: impl io::Write, count: u64) -> Result<()> {
    let records = Records::of(SERIES)?;
    let out = io::BufWriter::with_capacity(PIPE, to);
    let mut writer = ExportWriter::new(out, "ledger_bench", Vec::new())?;
    for number in 0..count {
        let Settled { record, tenant, contents } = records.settled(number, Wall.now())?;
        writer.put(&ExportItem::Record(Box::new(record)))?;
        for bytes in contents {
            let (tenant, digest) = (tenant.clone(), Digest::of(&bytes));
            let base64 = STANDARD.encode(bytes);
            writer.put(&ExportItem::Content { tenant, digest, base64 })?;
        }
        if number.is_multiple_of(SAY_RECORDS) && number > 0 {
            progress(number, count);
        }
    }
    writer.finish()?;
    Ok(())
}

async fn grow(args: &PartArgs) -> Result<Said> {
    let Open { store, mut said } = open(&args.folder).await?;
    if said.effects < args.from {
        bail!("there are {} records instead of {}", said.effects, args.from);
    }
    let caller = Caller::new(store, SERIES)?;
    let next = Arc::new(AtomicU64::new(args.from));
    let began = Instant::now();
    let mut fillers = JoinSet::new();
    for _filler in 0..FILLERS {
        let (caller, next, end) = (caller.clone(), Arc::clone(&next), args.to);
        fillers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= end {
                    return anyhow::Ok(());
                }
                caller.write(number).await?;
            }
        });
    }
    let mut ticks = tokio::time::interval_at(began + SAY_EVERY, SAY_EVERY);
    loop {
        tokio::select! {
            ended = fillers.join_next() => match ended {
                Some(ended) => ended.context("a call broke")??,
                None => break,
            },
            _ = ticks.tick() => progress(next.load(Ordering::Relaxed), args.to),
        }
    }
    said.grow_s = began.elapsed().as_secs_f64();
    said.memory = memory();
    Ok(said)
}

fn progress(done: u64, all: u64) {
    let memory = memory();
    say(&mut io::stderr().lock(), &format!("  {done} of {all} records, {} MiB", memory.now_mib));
}

/// One of the two stores that claims are made in by turns.
struct Claimed {
    store: Arc<EmbeddedStore>,
    records: u64,
    known: Caller,
    fresh: Caller,
    new_took: Sample,
    known_took: Sample,
    durable_took: Sample,
}

impl Claimed {
    fn new(store: Arc<EmbeddedStore>, records: u64, series: &str) -> Result<Self> {
        Ok(Self {
            known: Caller::new(Arc::<EmbeddedStore>::clone(&store), SERIES)?,
            fresh: Caller::new(Arc::<EmbeddedStore>::clone(&store), series)?,
            store,
            records,
            new_took: Sample::default(),
            known_took: Sample::default(),
            durable_took: Sample::default(),
        })
    }

    async fn step(&mut self, step: u64) -> Result<()> {
        let number = step.wrapping_mul(STEP).checked_rem(self.records);
        let number = number.context("there are no records")?;
        let known = claim(&self.store, self.known.claim(number)?, false).await?;
        let new = claim(&self.store, self.fresh.claim(step)?, true).await?;
        if step >= WARM_UP {
            self.known_took.add(known);
            self.new_took.add(new);
        }
        Ok(())
    }

    /// A claim of a new key with its dispatch made durable; the call is ended outside of the measurement.
    async fn durable_step(&mut self, number: u64) -> Result<()> {
        let began = Instant::now();
        let claimed = self.fresh.dispatch(number).await?;
        self.durable_took.add(began.elapsed());
        self.store.commit(self.fresh.end(number, claimed)).await?;
        Ok(())
    }

    fn said(&self) -> Result<Claims> {
        Ok(Claims {
            new: self.new_took.figures().context("nothing was claimed")?,
            known: self.known_took.figures().context("nothing was claimed")?,
            durable: self.durable_took.figures().context("nothing was dispatched")?,
        })
    }
}

/// Claims in both stores by turns, so that whatever else the machine does falls on both.
async fn claims(args: &PartArgs) -> Result<Said> {
    let reference = args.reference.as_deref().context("there is no store to compare with")?;
    let reference = open(reference).await?;
    let Open { store, mut said } = open(&args.folder).await?;
    let series = format!("new-{}", args.to);
    let large = Claimed::new(Arc::<EmbeddedStore>::clone(&store), args.to, &series)?;
    let small = Arc::<EmbeddedStore>::clone(&reference.store);
    let small = Claimed::new(small, args.reference_records, &series)?;
    let mut both = [large, small];
    for step in 0..CLAIMS.saturating_add(WARM_UP) {
        for one in &mut both {
            one.step(step).await?;
        }
    }
    let first = CLAIMS.saturating_add(WARM_UP);
    for number in first..first.saturating_add(DURABLE) {
        for one in &mut both {
            one.durable_step(number).await?;
        }
    }
    let [large, small] = &both;
    (said.claims, said.reference) = (Some(large.said()?), Some(small.said()?));
    drop(both);
    reference.close().await?;
    Open { store, said }.close().await
}

/// How long a claim took, whose outcome is as expected. A key that was free is given back.
async fn claim(
    store: &EmbeddedStore,
    record: placet_ledger::record::EffectRecord,
    is_new: bool,
) -> Result<Duration> {
    let record_id = record.record_id;
    let began = Instant::now();
    let answer = store.claim(record).await?;
    let took = began.elapsed();
    match (answer, is_new) {
        (ClaimAnswer::Claimed, true) => store.release(record_id).await,
        (ClaimAnswer::Taken(_), false) => {}
        (ClaimAnswer::Claimed, false) => bail!("a known key was not known"),
        (ClaimAnswer::Taken(_), true) => bail!("a new key was taken"),
    }
    Ok(took)
}

/// What the operating system says about this process's memory.
pub(crate) fn memory() -> Memory {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    Memory { peak_mib: mib(&status, "VmHWM:"), now_mib: mib(&status, "VmRSS:") }
}

fn mib(status: &str, field: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    let kib = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kib.unwrap_or(0).div_euclid(1_024)
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, sync::Arc};

    use placet_store::embedded::EmbeddedStore;

    use super::{CLAIMS, Part, PartArgs, STEP, WARM_UP, claims, imported, mib, rebuilt, start};
    use crate::records::Caller;

    #[test]
    fn memory_is_read_in_mebibytes() {
        let status = "Name:\tx\nVmHWM:\t  409600 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!((mib(status, "VmHWM:"), mib(status, "VmRSS:")), (400, 1));
        assert_eq!(mib(status, "VmSwap:"), 0);
        assert!(super::memory().peak_mib > 0);
    }

    #[test]
    fn no_known_key_is_claimed_twice() {
        for records in [10_000, 1_000_000, 10_000_000] {
            let numbers = (0..CLAIMS + WARM_UP).map(|step| step.wrapping_mul(STEP) % records);
            let (count, different) = (numbers.clone().count(), numbers.collect::<BTreeSet<u64>>());
            assert_eq!(different.len(), count, "{records}");
        }
    }

    fn args(part: Part, folder: &std::path::Path, (from, to): (u64, u64)) -> PartArgs {
        let folder = folder.to_owned();
        PartArgs { part, folder, from, to, reference: None, reference_records: 0 }
    }

    async fn write(folder: &std::path::Path, numbers: std::ops::Range<u64>) {
        let open = super::open(folder).await.unwrap();
        let caller = Caller::new(Arc::<EmbeddedStore>::clone(&open.store), super::SERIES).unwrap();
        for number in numbers {
            caller.write(number).await.unwrap();
        }
        drop(caller);
        open.close().await.unwrap();
    }

    #[tokio::test]
    async fn a_store_is_taken_over_grown_claimed_from_and_rebuilt() {
        let base = tempfile::tempdir().unwrap();
        let (large, small) = (base.path().join("large"), base.path().join("small"));
        let said = imported(&args(Part::Import, &large, (0, 300))).await.unwrap();
        assert_eq!(said.effects, 300);
        write(&large, 300..310).await;
        write(&small, 0..10).await;
        let mut both = args(Part::Claims, &large, (0, 310));
        assert!(claims(&both).await.is_err(), "there was nothing to compare with");
        (both.reference, both.reference_records) = (Some(small), 10);
        let said = claims(&both).await.unwrap();
        assert_eq!((said.effects, said.rebuilt), (310, false));
        for claims in [said.claims.unwrap(), said.reference.unwrap()] {
            assert_eq!(u64::try_from(claims.known.calls).unwrap(), CLAIMS);
        }
        let said = rebuilt(&args(Part::Rebuild, &large, (0, 310))).await.unwrap();
        assert!(said.rebuilt && said.effects == 310 + super::DURABLE, "{said:?}");
        assert!(!start(&args(Part::Start, &large, (0, 310))).await.unwrap().rebuilt);
        let too_many = args(Part::Grow, &large, (1_000_000, 1_000_001));
        assert!(super::grow(&too_many).await.is_err());
    }
}
