//! Claims in a store of any size, alternately with the same claims in one of the smallest size.
//!
//! Owns which keys are claimed, and the machine's own reads beside them. Not here: filling the stores (`part`), the table (`sizes`).
//! Invariants: every key that is called known was written before; no two claims of one kind are of the same key where there
//! are enough; whatever else the machine does falls on both stores.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use placet_ledger::store::{ClaimAnswer, Store as _};
use placet_store::embedded::EmbeddedStore;
use rustix::fs::{Advice, fadvise};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::part::{Open, PartArgs, SERIES, Said, open};
use crate::{
    records::Caller,
    stats::{Numbers, Sample},
};

/// Claims of each kind that are measured, and that come before them without being counted.
pub(super) const CLAIMS: u64 = 5_000;
const WARM_UP: u64 = 500;
/// Durable claims that are measured.
pub(super) const DURABLE: u64 = 500;
/// Claims that are measured of keys of which nothing is in memory: before each of them all of it is given up.
const COLD: u64 = 300;
/// Of what was written last: a retry comes while its call is among them.
const RECENT: u64 = 10_000;
/// Steps through all numbers below a power of ten without coming to one twice: it has no factor in common with ten.
const STEP: u64 = 7_368_787;
/// What the machine itself reads, beside the claims.
const PAGE: usize = 4_096;

/// Latencies of claims by one caller; nothing: not measured in this part.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Of keys that nobody had claimed.
    pub(crate) new: Option<Numbers>,
    /// Of keys with a recorded result, among the last ones that were written.
    pub(crate) recent: Option<Numbers>,
    /// Of such keys, drawn from all.
    pub(crate) known: Option<Numbers>,
    /// Of new keys, with the dispatch made durable.
    pub(crate) durable: Option<Numbers>,
    /// Not claims: reads of 4 KiB at random places of the store's journal and tables.
    pub(crate) page: Option<Numbers>,
}

/// What is claimed, or read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    New,
    Recent,
    Known,
    Durable,
    Page,
}

/// One of the two stores.
struct Claimed {
    store: Arc<EmbeddedStore>,
    records: u64,
    known: Caller,
    fresh: Caller,
    files: Files,
}

impl Claimed {
    fn new(
        store: Arc<EmbeddedStore>,
        (folder, records): (&Path, u64),
        series: &str,
    ) -> Result<Self> {
        Ok(Self {
            known: Caller::new(Arc::<EmbeddedStore>::clone(&store), SERIES)?,
            fresh: Caller::new(Arc::<EmbeddedStore>::clone(&store), series)?,
            store,
            records,
            files: Files::of(folder)?,
        })
    }

    async fn step(&self, kind: Kind, step: u64) -> Result<Duration> {
        match kind {
            Kind::New => self.claim(self.fresh.claim(step)?, true).await,
            Kind::Recent => {
                let back = drawn(step, self.records.min(RECENT))?;
                let number = self.records.saturating_sub(1).saturating_sub(back);
                self.claim(self.known.claim(number)?, false).await
            }
            Kind::Known => self.claim(self.known.claim(drawn(step, self.records)?)?, false).await,
            Kind::Durable => {
                // Other keys than those that were claimed and given back; the call is ended outside of the measurement.
                let number = step.saturating_add(CLAIMS).saturating_add(WARM_UP);
                let began = Instant::now();
                let claimed = self.fresh.dispatch(number).await?;
                let took = began.elapsed();
                self.store.commit(self.fresh.end(number, claimed)).await?;
                Ok(took)
            }
            Kind::Page => self.files.read_page(step),
        }
    }

    /// How long a claim took, whose outcome is as expected. A key that was free is given back.
    async fn claim(
        &self,
        record: placet_ledger::record::EffectRecord,
        is_new: bool,
    ) -> Result<Duration> {
        let record_id = record.record_id;
        let began = Instant::now();
        let answer = self.store.claim(record).await?;
        let took = began.elapsed();
        match (answer, is_new) {
            (ClaimAnswer::Claimed, true) => self.store.release(record_id).await,
            (ClaimAnswer::Taken(_), false) => {}
            (ClaimAnswer::Claimed, false) => bail!("a known key was not known"),
            (ClaimAnswer::Taken(_), true) => bail!("a new key was taken"),
        }
        Ok(took)
    }
}

/// Numbers below `below`, as if drawn.
fn drawn(step: u64, below: u64) -> Result<u64> {
    step.wrapping_mul(STEP).checked_rem(below).context("there are no records")
}

/// The files that a known key is read from.
struct Files {
    /// Each with where it ends, were they one behind the other, in pages.
    files: Vec<(u64, File)>,
}

impl Files {
    fn of(folder: &Path) -> Result<Self> {
        let mut paths: Vec<PathBuf> = Vec::new();
        for part in ["journal", "checkpoints"] {
            for entry in fs::read_dir(folder.join(part))? {
                let path = entry?.path();
                let kind = path.extension().and_then(|kind| kind.to_str());
                paths.extend(matches!(kind, Some("segment" | "table")).then_some(path));
            }
        }
        paths.sort();
        let (mut files, mut end) = (Vec::new(), 0_u64);
        for path in paths {
            let file = File::open(&path)?;
            let pages = file.metadata()?.len().checked_div(u64::try_from(PAGE)?).unwrap_or(0);
            end = end.saturating_add(pages);
            files.push((end, file));
        }
        Ok(Self { files })
    }

    fn read_page(&self, step: u64) -> Result<Duration> {
        let pages = self.files.last().map_or(0, |(end, _)| *end);
        let page = drawn(step, pages)?;
        let at = self.files.partition_point(|(end, _)| *end <= page);
        let start = at.checked_sub(1).and_then(|at| self.files.get(at)).map_or(0, |(end, _)| *end);
        let (_, file) = self.files.get(at).context("there is no such page")?;
        let offset = page.saturating_sub(start).saturating_mul(u64::try_from(PAGE)?);
        let mut bytes = vec![0; PAGE];
        let began = Instant::now();
        file.read_exact_at(&mut bytes, offset)?;
        Ok(began.elapsed())
    }

    /// Has the operating system give up what it holds of them in memory.
    fn forget(&self) -> Result<()> {
        for (_, file) in &self.files {
            fadvise(file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    }
}

/// Does something of one kind in both stores alternately; answers the numbers of each.
async fn alternately(
    both: &[Claimed; 2],
    kind: Kind,
    (count, warm_up, is_cold): (u64, u64, bool),
) -> Result<[Option<Numbers>; 2]> {
    let mut samples = [Sample::default(), Sample::default()];
    for step in 0..count.saturating_add(warm_up) {
        for (one, sample) in both.iter().zip(&mut samples) {
            if is_cold {
                one.files.forget()?;
            }
            let took = one.step(kind, step).await?;
            if step >= warm_up {
                sample.add(took);
            }
        }
    }
    Ok(samples.map(|sample| sample.counts()))
}

struct Both {
    reference: Open,
    large: Open,
    claimed: [Claimed; 2],
}

impl Both {
    async fn open(args: &PartArgs) -> Result<Self> {
        let folder = args.reference.as_deref().context("there is no store to compare with")?;
        let reference = open(folder).await?;
        let large = open(&args.folder).await?;
        let series = format!("new-{}", args.to);
        let one = |open: &Open, folder: &Path, records| {
            let store = Arc::<EmbeddedStore>::clone(&open.store);
            Claimed::new(store, (folder, records), &series)
        };
        let claimed =
            [one(&large, &args.folder, args.to)?, one(&reference, folder, args.reference_records)?];
        Ok(Self { reference, large, claimed })
    }

    async fn close(self, [large, small]: [Claims; 2]) -> Result<Said> {
        let Self { reference, large: mut open, claimed } = self;
        drop(claimed);
        (open.said.claims, open.said.reference) = (Some(large), Some(small));
        reference.close().await?;
        open.close().await
    }
}

/// Claims of every kind, of what is in memory and what is not as it happens to be.
pub(super) async fn measured(args: &PartArgs) -> Result<Said> {
    let both = Both::open(args).await?;
    let each = (CLAIMS, WARM_UP, false);
    let [new, small_new] = alternately(&both.claimed, Kind::New, each).await?;
    let [recent, small_recent] = alternately(&both.claimed, Kind::Recent, each).await?;
    let [known, small_known] = alternately(&both.claimed, Kind::Known, each).await?;
    let [page, small_page] = alternately(&both.claimed, Kind::Page, each).await?;
    let [durable, small_durable] =
        alternately(&both.claimed, Kind::Durable, (DURABLE, 0, false)).await?;
    let large = Claims { new, recent, known, durable, page };
    let small = Claims {
        new: small_new,
        recent: small_recent,
        known: small_known,
        durable: small_durable,
        page: small_page,
    };
    both.close([large, small]).await
}

/// Claims of known keys, and reads, with nothing of journal and tables in the operating system's memory.
pub(super) async fn cold(args: &PartArgs) -> Result<Said> {
    let both = Both::open(args).await?;
    let [known, small_known] = alternately(&both.claimed, Kind::Known, (COLD, 0, true)).await?;
    let [page, small_page] = alternately(&both.claimed, Kind::Page, (COLD, 0, true)).await?;
    let large = Claims { known, page, ..Claims::default() };
    let small = Claims { known: small_known, page: small_page, ..Claims::default() };
    both.close([large, small]).await
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{CLAIMS, Files, PAGE, WARM_UP, drawn};

    #[test]
    fn no_known_key_is_claimed_twice() {
        for records in [10_000, 1_000_000, 10_000_000] {
            let numbers = (0..CLAIMS + WARM_UP).map(|step| drawn(step, records).unwrap());
            let (count, different) = (numbers.clone().count(), numbers.collect::<BTreeSet<u64>>());
            assert_eq!(different.len(), count, "{records}");
        }
        assert!(drawn(1, 0).is_err());
    }

    #[test]
    fn pages_are_read_from_journal_and_tables_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        for part in ["journal", "checkpoints"] {
            std::fs::create_dir(folder.path().join(part)).unwrap();
        }
        let write = |name: &str, bytes: usize| {
            std::fs::write(folder.path().join(name), vec![1; bytes]).unwrap();
        };
        write("journal/1.marks", 9 * PAGE);
        let files = Files::of(folder.path()).unwrap();
        assert!(files.read_page(1).is_err(), "there is nothing to read");
        write("journal/1.segment", 3 * PAGE);
        write("checkpoints/1.table", PAGE + 7);
        let files = Files::of(folder.path()).unwrap();
        let mut ends: Vec<u64> = files.files.iter().map(|(end, _)| *end).collect();
        ends.sort_unstable();
        assert_eq!(ends, [1, 4]);
        for step in 0..8 {
            files.forget().unwrap();
            files.read_page(step).unwrap();
        }
    }
}
