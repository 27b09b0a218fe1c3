//! The parts of the ledger's measurement, each in a process of its own, so that memory and start-up are those of that part alone.
//!
//! Owns what is done to the store in each part, and what is said of it: one line of JSON. Not here: the order of the parts.
//! Claims are made in `claims`.

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
use placet_ledger::store::Store as _;
use placet_store::{
    embedded::{EmbeddedConfig, EmbeddedStore, IndexFate, RecoveryReport, import, rebuild},
    transfer::{ExportItem, ExportWriter},
};
use placet_types::{clock::Clock as _, digest::Digest};
use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::Instant};

use super::claims::{self, Claims};
use crate::{
    clock::Wall,
    records::{Caller, Records, Settled},
    say,
    stats::milliseconds,
};

/// Calls under way at once while the store is filled.
const FILLERS: u64 = 1_024;
/// How often the progress of filling is said.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// The series of the keys that are filled in.
pub(super) const SERIES: &str = "k";

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
    /// Claim known keys of which nothing is in the operating system's memory.
    Cold,
    /// Rebuild the index from the whole journal.
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
    /// The store of the smallest size, which claims are made in alternately, and how many records it has.
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
    /// The index was rebuilt.
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
        Part::Claims => claims::measured(args).await?,
        Part::Cold => claims::cold(args).await?,
        Part::Rebuild => rebuilt(args).await?,
    };
    say(&mut io::stdout().lock(), &serde_json::to_string(&said)?);
    if args.part == Part::Grow {
        std::future::pending::<()>().await;
    }
    Ok(())
}

/// A store that is open, and what its opening said.
pub(super) struct Open {
    pub(super) store: Arc<EmbeddedStore>,
    pub(super) said: Said,
}

pub(super) async fn open(folder: &Path) -> Result<Open> {
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
    pub(super) async fn close(mut self) -> Result<Said> {
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
    use std::sync::Arc;

    use placet_store::embedded::EmbeddedStore;

    use super::{Part, PartArgs, imported, mib, rebuilt, start};
    use crate::ledger::claims::{self, CLAIMS, DURABLE};
    use crate::records::Caller;

    #[test]
    fn memory_is_read_in_mebibytes() {
        let status = "Name:\tx\nVmHWM:\t  409600 kB\nVmRSS:\t 1024 kB\n";
        assert_eq!((mib(status, "VmHWM:"), mib(status, "VmRSS:")), (400, 1));
        assert_eq!(mib(status, "VmSwap:"), 0);
        assert!(super::memory().peak_mib > 0);
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
        assert!(claims::measured(&both).await.is_err(), "there was nothing to compare with");
        (both.reference, both.reference_records) = (Some(small), 10);
        let said = claims::measured(&both).await.unwrap();
        assert_eq!((said.effects, said.rebuilt), (310, false));
        for claims in [said.claims.unwrap(), said.reference.unwrap()] {
            let of_each = [claims.new, claims.recent, claims.known].map(|counts| counts.unwrap());
            assert!(of_each.iter().all(|counts| u64::try_from(counts.calls).unwrap() == CLAIMS));
            assert!(claims.durable.is_some() && claims.page.is_some());
        }
        let said = claims::cold(&both).await.unwrap();
        for claims in [said.claims.unwrap(), said.reference.unwrap()] {
            assert!(claims.known.is_some() && claims.page.is_some() && claims.new.is_none());
        }
        let said = rebuilt(&args(Part::Rebuild, &large, (0, 310))).await.unwrap();
        assert!(said.rebuilt && said.effects == 310 + DURABLE, "{said:?}");
        assert!(!start(&args(Part::Start, &large, (0, 310))).await.unwrap().rebuilt);
        let too_many = args(Part::Grow, &large, (1_000_000, 1_000_001));
        assert!(super::grow(&too_many).await.is_err());
    }
}
