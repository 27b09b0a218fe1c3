//! The embedded store at a size: claims without the disk, a clean start, and a rebuild of its state, both by the program itself.
//!
//! Owns the records, the processes of the parts (so that each starts cold), and the claims. A store is filled by writing its journal, with
//! one entry for each record. Invariants: every record differs from every other, and so does its content; the folder is deleted at the end.

use std::{
    io,
    path::{Path, PathBuf},
    process::Stdio,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, ValueEnum};
use placet_ledger::{
    record::{EffectRecord, EffectState, RECORD_VERSION},
    store::{ClaimAnswer, EffectChange, Store as _},
};
use placet_store::{
    embedded::{ENTRY_VERSION, EmbeddedConfig, EmbeddedStore, Entry, StateFate},
    journal::{Content, Journal, JournalConfig},
};
use placet_types::{
    clock::{Clock, Timestamp},
    digest::Digest,
    ids::{CapabilityId, IdempotencyKey, PrincipalId, RecordId, RunId, TenantId, ToolCallId},
    principal::{KeyScope, PrincipalKind},
};
use serde::{Deserialize, Serialize};
use tokio::{process::Command, time::Instant};

use crate::{engine, progress, say, stats::Sample};

/// Measured claims of each kind, after a tenth as many that are not measured.
const CLAIMS: u64 = 5_000;
/// Steps through all numbers below a power of ten without coming to one twice: it has no factor in common with ten.
const STEP: u64 = 7_368_787;
/// The size of the arguments, and of the result.
const CONTENT_BYTES: usize = 200;
/// The journal's kind of an entry that changes records.
const KIND_CHANGE: u8 = 1;

/// A part of the measurement, in a process of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Fill a new store.
    Fill,
    /// Open it and claim keys.
    Claim,
}

/// Which part, of which store.
#[derive(Debug, Clone, Args)]
pub(crate) struct PartArgs {
    part: Part,
    folder: PathBuf,
    records: u64,
}

/// The results for one size.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Size {
    /// How many records.
    pub(crate) records: u64,
    /// Claims of keys that are new: the median, in microseconds.
    pub(crate) new_p50_us: f64,
    /// Claims of keys that have a record, drawn from all.
    pub(crate) known_p50_us: f64,
    /// The time from starting `placet serve` on it after it was closed until it listens, in seconds.
    pub(crate) start_s: f64,
    /// The time that `placet ledger fsck --rebuild` takes, in seconds.
    pub(crate) rebuild_s: f64,
}

/// Measures a store of this size below `base`.
pub(crate) async fn measure(own: &Path, placet: &Path, base: &Path, records: u64) -> Result<Size> {
    let folder = tempfile::Builder::new().prefix("store-").tempdir_in(base)?;
    let data = folder.path().join("data");
    let store = data.join("ledger");
    let told = |what: &str| progress(&format!("a ledger of {records} records: {what}"));
    told("fill");
    in_process(own, Part::Fill, &store, records).await?;
    told("claim");
    let claimed = in_process(own, Part::Claim, &store, records).await?;
    told("start");
    let start_s = engine::time_start(placet, folder.path(), &data).await?.as_secs_f64();
    told("rebuild");
    let rebuild_s = engine::time_rebuild(placet, folder.path(), &data).await?.as_secs_f64();
    Ok(Size { records, start_s, rebuild_s, ..claimed })
}

async fn in_process(own: &Path, part: Part, folder: &Path, records: u64) -> Result<Size> {
    let name = part.to_possible_value().context("a part has no name")?;
    let mut command = Command::new(own);
    command.args(["part", name.get_name()]).arg(folder).arg(records.to_string());
    command.env_clear().stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true);
    let output = command.output().await.context("this program does not start again")?;
    ensure!(output.status.success(), "the part `{}` failed", name.get_name());
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Runs one part and prints its results.
pub(crate) async fn part(args: &PartArgs) -> Result<()> {
    let size = match args.part {
        Part::Fill => fill(&args.folder, args.records).await?,
        Part::Claim => claim(&args.folder, args.records).await?,
    };
    say(&mut io::stdout().lock(), &serde_json::to_string(&size)?);
    Ok(())
}

/// Writes the journal of a store with this many calls, all ended, and has the store make its state.
async fn fill(folder: &Path, count: u64) -> Result<Size> {
    let config = EmbeddedConfig::new(folder);
    let filling = move || {
        let directory = config.directory.join("journal");
        ensure!(!directory.try_exists()?, "the store is there already");
        write_journal(
            JournalConfig {
                directory,
                segment_bytes: config.segment_bytes,
                free_space_watermark_bytes: config.free_space_watermark_bytes,
                archive: None,
                medium: Arc::clone(&config.medium),
            },
            count,
        )?;
        Ok(EmbeddedStore::open(config, Arc::new(Wall))?)
    };
    let filled = tokio::task::spawn_blocking(filling).await.context("the filling panicked")?;
    let (store, report) = filled?;
    ensure!(report.frames >= count, "the state has {} entries", report.frames);
    store.close().await?;
    Ok(Size::default())
}

fn write_journal(config: JournalConfig, count: u64) -> Result<()> {
    let records = Records::new()?;
    let mut journal = Journal::open(config)?.journal;
    for number in 0..count {
        let record = records.settled(number, journal.epoch(), Wall.now())?;
        let at_ms = record.updated_at.as_ms();
        let effects = vec![EffectChange::Put(Box::new(record))];
        let entry = Entry { version: ENTRY_VERSION, effects, ..Entry::default() };
        let contents = ["arguments", "result"].map(|kind| {
            let bytes = content(kind, number);
            Content { tenant: records.tenant.clone(), digest: Digest::of(&bytes), bytes }
        });
        journal.append_with(KIND_CHANGE, at_ms, serde_json::to_vec(&entry)?, &contents)?;
    }
    Ok(journal.close()?)
}

async fn claim(folder: &Path, records: u64) -> Result<Size> {
    let config = EmbeddedConfig::new(folder);
    let opening = tokio::task::spawn_blocking(move || EmbeddedStore::open(config, Arc::new(Wall)));
    let (store, report) = opening.await.context("opening panicked")??;
    ensure!(matches!(report.state, StateFate::Kept), "the state was rebuilt at a clean start");
    let known = |step: u64| step.wrapping_mul(STEP).checked_rem(records);
    let known_p50_us = claims(&store, known, false).await?;
    let new_p50_us = claims(&store, |step| records.checked_add(step), true).await?;
    store.close().await?;
    Ok(Size { known_p50_us, new_p50_us, ..Size::default() })
}

/// The median time of claims with the expected outcome. A new key is released again.
async fn claims(
    store: &EmbeddedStore,
    number: impl Fn(u64) -> Option<u64>,
    is_new: bool,
) -> Result<f64> {
    let records = Records::new()?;
    let warm_up = CLAIMS.div_euclid(10);
    let mut sample = Sample::default();
    for step in 0..CLAIMS.saturating_add(warm_up) {
        let number = number(step).context("there are no records")?;
        let record = records.claim(number, store.epoch(), store.now())?;
        let record_id = record.record_id;
        let began = Instant::now();
        let answer = store.claim(record).await?;
        let took = began.elapsed();
        match (answer, is_new) {
            (ClaimAnswer::Claimed, true) => store.release(record_id).await,
            (ClaimAnswer::Taken(_), false) => {}
            (ClaimAnswer::Claimed, false) => bail!("a known key was not found"),
            (ClaimAnswer::Taken(_), true) => bail!("a new key was taken"),
        }
        if step >= warm_up {
            sample.add(took);
        }
    }
    Ok(sample.counts().context("nothing was claimed")?.p50_ms * 1_000.0)
}

/// Makes records.
#[derive(Debug)]
struct Records {
    tenant: TenantId,
    agent: PrincipalId,
    user: PrincipalId,
    capability: CapabilityId,
}

impl Records {
    fn new() -> Result<Self> {
        Ok(Self {
            tenant: TenantId::new("acme")?,
            agent: PrincipalId::new("scribe")?,
            user: PrincipalId::new("ada@acme.example")?,
            capability: "tickets/create_ticket".parse().context("no capability")?,
        })
    }

    /// The claim of the key with this number.
    fn claim(&self, number: u64, epoch: u64, now: Timestamp) -> Result<EffectRecord> {
        let scope = KeyScope {
            tenant: self.tenant.clone(),
            kind: PrincipalKind::Agent,
            agent: self.agent.clone(),
            on_behalf_of: Some(self.user.clone()),
            capability: self.capability.clone(),
        };
        let key = IdempotencyKey::new(format!("k-{number:020}"))?;
        Ok(EffectRecord {
            version: RECORD_VERSION,
            record_id: RecordId::derive(&scope, &key),
            call_id: ToolCallId::new(format!("call_{number:020}"))?,
            scope,
            key,
            run_id: RunId::new(format!("run_{:026}", number.div_euclid(32)))?,
            requested_digest: Digest::of(&number.to_le_bytes()),
            parked: Digest::of(&content("arguments", number)),
            created_at: now,
            updated_at: now,
            rev: 0,
            arm: 1,
            attempts: 0,
            unknown: None,
            state: EffectState::Claimed { epoch },
        })
    }

    /// The record after its call, as an entry of its own.
    fn settled(&self, number: u64, epoch: u64, now: Timestamp) -> Result<EffectRecord> {
        let result = Digest::of(&content("result", number));
        let state = EffectState::Succeeded { result, resolved_by: None };
        Ok(EffectRecord { state, attempts: 1, rev: 1, ..self.claim(number, epoch, now)? })
    }
}

fn content(kind: &str, number: u64) -> Vec<u8> {
    let mut bytes = format!(r#"{{"{kind}":"{number}","text":""#).into_bytes();
    bytes.resize(CONTENT_BYTES.saturating_sub(2), b'.');
    bytes.extend_from_slice(b"\"}");
    bytes
}

/// The time of the operating system.
#[derive(Debug, Clone, Copy, Default)]
struct Wall;

impl Clock for Wall {
    #[expect(clippy::disallowed_methods, reason = "this is the one clock of the program")]
    fn now(&self) -> Timestamp {
        let since: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Timestamp::from_ms(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::{claim, content, fill};

    #[tokio::test]
    async fn a_store_is_filled_and_claimed_from() {
        let base = tempfile::tempdir().unwrap();
        let store = base.path().join("store");
        fill(&store, 300).await.unwrap();
        let size = claim(&store, 300).await.unwrap();
        assert!(size.known_p50_us > 0.0 && size.new_p50_us > 0.0);
        assert!(fill(&store, 300).await.is_err(), "the store is there already");
    }

    #[test]
    fn no_two_contents_are_the_same() {
        let all = [content("result", 1), content("result", 2), content("arguments", 1)];
        assert!(all[0] != all[1] && all[0] != all[2] && all[1] != all[2]);
    }
}
