//! The ledger's size: what a claim, a start and a rebuild cost in an embedded store of ten thousand records, and of ten million.
//!
//! Owns the order of the parts, the processes they run in, and the look at the disk. Not here: what a part does (`part`), the
//! table (`sizes`). Invariants: one store grows through the sizes, call by
//! call, as long as that can be waited for; nothing is begun for which the disk has too little room;
//! the folder is gone in the end, and so is every process that was started.

mod claims;
pub(crate) mod part;
mod sizes;

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use serde::Serialize;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::Command,
    time::Instant,
};

use self::part::Said;
use crate::{machine::Machine, progress, say};

/// What a record takes on disk at most, with a second copy of the index beside the first: written by its call, or taken over.
const WRITTEN_BYTES: u64 = 3_600;
const TAKEN_OVER_BYTES: u64 = 2_400;
/// How many of the records of a store that was taken over are written by calls after that, before it is killed.
const WRITTEN_AFTER: u64 = 20_000;
/// What is left free in any case.
const FREE_BYTES: u64 = 2 << 30;
const GIB: u64 = 1 << 30;

/// How the ledger is measured.
#[derive(Debug, Clone, Args)]
pub(crate) struct LedgerArgs {
    /// Numbers of records, ascending; the first one is what the others are compared with.
    #[arg(
        long,
        value_name = "N,N,…",
        value_delimiter = ',',
        default_value = "10000,100000,1000000"
    )]
    records: Vec<u64>,
    /// Larger stores are taken over from an export, which has each record as it is after its call, instead of being written
    /// call by call.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    written_max: u64,
    /// The most that may be used of the disk, in GiB.
    #[arg(long, value_name = "GIB", default_value_t = 25)]
    disk_max: u64,
    /// Print one JSON document instead of a table.
    #[arg(long)]
    json: bool,
    /// The folder in which the temporary store is made [default: the one this program is in].
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// All sizes.
#[derive(Debug, Serialize)]
struct Report {
    machine: Machine,
    load_after: String,
    sizes: Vec<Size>,
}

/// One size.
#[derive(Debug, Clone, Serialize)]
struct Size {
    records: u64,
    /// How many records were taken over, and what of it was said.
    imported: u64,
    import: Option<Said>,
    /// How many records were written, and what of it was said.
    grown: u64,
    grow: Said,
    after_kill: Said,
    claims: Said,
    without_index: Said,
    rebuild: Said,
    cold: Said,
    bytes: Bytes,
}

/// What is on disk, by part.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
struct Bytes {
    journal: u64,
    index: u64,
    contents: u64,
    tree: u64,
}

/// Measures and prints.
pub(crate) async fn measure(args: &LedgerArgs) -> Result<()> {
    let own = std::env::current_exe().context("this program cannot find itself")?;
    let base =
        args.folder.as_deref().or_else(|| own.parent()).context("this program is in no folder")?;
    check_sizes(&args.records)?;
    check_room(base, args)?;
    let folder = tempfile::Builder::new().prefix("placet-bench-").tempdir_in(base);
    let folder =
        folder.with_context(|| format!("no folder can be made in `{}`", base.display()))?;
    let machine = Machine::look(folder.path());
    let first = args.records.first().copied().unwrap_or(0);
    let run = Run { own, base: folder.path().to_owned(), first, written_max: args.written_max };
    let sizes = run.sizes(&args.records).await?;
    let load_after = Machine::look(folder.path()).load;
    let report = Report { machine, load_after, sizes };
    let text =
        if args.json { serde_json::to_string_pretty(&report)? } else { sizes::render(&report) };
    say(&mut io::stdout().lock(), &text);
    Ok(())
}

fn check_sizes(records: &[u64]) -> Result<()> {
    let ascending = records.iter().zip(records.iter().skip(1)).all(|(one, next)| one < next);
    if !ascending || records.first().is_none_or(|first| *first == 0) {
        bail!("the numbers of records have to ascend, from 1 at least");
    }
    Ok(())
}

/// Refuses what the disk has no room for, before anything is written.
fn check_room(base: &Path, args: &LedgerArgs) -> Result<()> {
    let disk = rustix::fs::statvfs(base)
        .with_context(|| format!("the disk of `{}` cannot be looked at", base.display()))?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(FREE_BYTES);
    room(needed(args), free, args.disk_max.saturating_mul(GIB))
}

/// The most that any of the sizes takes: a store that is taken over begins once the one before it is gone.
fn needed(args: &LedgerArgs) -> u64 {
    let bytes = args.records.iter().map(|records| {
        let each = if *records > args.written_max { TAKEN_OVER_BYTES } else { WRITTEN_BYTES };
        records.saturating_mul(each)
    });
    bytes.max().unwrap_or(0)
}

fn room(needed: u64, free: u64, most: u64) -> Result<()> {
    let gib = |bytes: u64| bytes.div_ceil(GIB);
    if needed > most {
        bail!("about {} GiB are needed: allow them with `--disk-max {0}`", gib(needed));
    }
    if needed > free {
        bail!("about {} GiB are needed, and {} are free", gib(needed), free.div_euclid(GIB));
    }
    Ok(())
}

/// The stores under measurement, and the program that measures them.
struct Run {
    own: PathBuf,
    base: PathBuf,
    /// The smallest size, of which a store is kept that all others are compared with.
    first: u64,
    written_max: u64,
}

impl Run {
    async fn sizes(&self, records: &[u64]) -> Result<Vec<Size>> {
        progress(&format!("{} records: writing the store to compare with", self.first));
        self.part("grow", &self.reference(), (0, self.first)).await?;
        self.part("start", &self.reference(), (0, self.first)).await?;
        let (mut sizes, mut from): (Vec<Size>, u64) = (Vec::new(), 0);
        for to in records.iter().copied() {
            let size = self.size(from, to).await?;
            say(&mut io::stderr().lock(), &sizes::line(&size));
            sizes.push(size);
            from = to;
        }
        Ok(sizes)
    }

    async fn size(&self, from: u64, to: u64) -> Result<Size> {
        let (folder, mut from) = (self.store(), from);
        let (mut imported, mut import) = (0, None);
        if to > self.written_max {
            if matches!(folder.try_exists(), Ok(true)) {
                fs::remove_dir_all(&folder).context("the smaller store cannot be deleted")?;
            }
            imported = to.saturating_sub(WRITTEN_AFTER);
            progress(&format!("{to} records: taking {imported} over from an export"));
            import = Some(self.part("import", &folder, (0, imported)).await?);
            from = imported;
        }
        let grown = to.saturating_sub(from);
        progress(&format!("{to} records: writing {grown}"));
        let grow = self.part("grow", &folder, (from, to)).await?;
        progress(&format!("{to} records: start after a kill"));
        let after_kill = self.part("start", &folder, (from, to)).await?;
        progress(&format!("{to} records: start after an orderly stop, claims"));
        let claims = self.part("claims", &folder, (from, to)).await?;
        let bytes = Bytes::of(&folder)?;
        progress(&format!("{to} records: start without an index"));
        fs::remove_dir_all(folder.join("index")).context("the index cannot be deleted")?;
        let without_index = self.part("start", &folder, (from, to)).await?;
        progress(&format!("{to} records: rebuilding the index from the whole journal"));
        let rebuild = self.part("rebuild", &folder, (from, to)).await?;
        remove_damaged(&folder)?;
        progress(&format!("{to} records: claims of keys that are in no memory"));
        let cold = self.part("cold", &folder, (from, to)).await?;
        if !without_index.rebuilt || !rebuild.rebuilt || claims.rebuilt {
            bail!("an index was kept, or rebuilt, where it should not have been");
        }
        let records = to;
        Ok(Size {
            records,
            imported,
            import,
            grown,
            grow,
            after_kill,
            claims,
            without_index,
            rebuild,
            cold,
            bytes,
        })
    }

    fn store(&self) -> PathBuf {
        self.base.join("store")
    }

    fn reference(&self) -> PathBuf {
        self.base.join("reference")
    }

    /// Does a part in a process of its own. The one that grows the store is killed as soon as its last call was answered.
    async fn part(&self, part: &str, folder: &Path, (from, to): (u64, u64)) -> Result<Said> {
        let mut command = Command::new(&self.own);
        command.args(["part", part]).arg(folder);
        command.arg("--reference").arg(self.reference());
        command.args(["--reference-records", &self.first.to_string()]);
        command.args(["--from", &from.to_string(), "--to", &to.to_string()]);
        command.env_clear().stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        let began = Instant::now();
        let mut child = command.spawn().context("this program does not start again")?;
        let stdout = child.stdout.take().context("a part has no output")?;
        let line = BufReader::new(stdout).lines().next_line().await?;
        if part == "grow" {
            child.kill().await.context("a part cannot be killed")?;
        }
        child.wait().await?;
        let line = line.with_context(|| format!("the part `{part}` failed"))?;
        took(part, began.elapsed(), &line);
        Ok(serde_json::from_str(&line)?)
    }
}

/// Indexes that were set aside are no part of the store that grows on.
fn remove_damaged(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("index.damaged-") {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// Says at once what a part has said: a run that is stopped has not measured without success.
fn took(part: &str, took: Duration, said: &str) {
    say(&mut io::stderr().lock(), &format!("  {part}: {:.1} s, {said}", took.as_secs_f64()));
}

impl Bytes {
    /// Looks at the folder of a store that is closed.
    fn of(folder: &Path) -> Result<Self> {
        let part = |name: &str| size_of(&folder.join(name));
        Ok(Self {
            journal: part("journal")?,
            index: part("index")?.saturating_add(part("checkpoints")?),
            contents: part("content")?,
            tree: part("tree")?,
        })
    }

    fn all(self) -> u64 {
        [self.index, self.contents, self.tree].into_iter().fold(self.journal, u64::saturating_add)
    }
}

/// How many bytes the files in a folder have.
fn size_of(folder: &Path) -> Result<u64> {
    let mut bytes: u64 = 0;
    let entries =
        fs::read_dir(folder).with_context(|| format!("`{}` is not there", folder.display()))?;
    for entry in entries {
        let entry = entry?;
        let size = if entry.file_type()?.is_dir() {
            size_of(&entry.path())?
        } else {
            entry.metadata()?.len()
        };
        bytes = bytes.saturating_add(size);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::{Bytes, GIB, check_sizes, room};

    #[test]
    fn sizes_ascend() {
        check_sizes(&[10]).unwrap();
        check_sizes(&[10, 100, 1_000]).unwrap();
        for wrong in [&[][..], &[0], &[10, 10], &[100, 10]] {
            assert!(check_sizes(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn what_the_disk_has_no_room_for_is_refused() {
        room(5 * GIB, 6 * GIB, 5 * GIB).unwrap();
        let error = room(7 * GIB, 6 * GIB, 9 * GIB).unwrap_err().to_string();
        assert!(error.contains("6 are free"), "{error}");
        let error = room(7 * GIB, 60 * GIB, 5 * GIB).unwrap_err().to_string();
        assert!(error.contains("--disk-max 7"), "{error}");
    }

    #[test]
    fn every_part_of_a_store_is_weighed() {
        let folder = tempfile::tempdir().unwrap();
        assert!(Bytes::of(folder.path()).is_err());
        for (name, bytes) in
            [("journal", 1), ("index/1", 2), ("checkpoints", 4), ("content/a/b", 8), ("tree", 16)]
        {
            let inner = folder.path().join(name);
            std::fs::create_dir_all(&inner).unwrap();
            std::fs::write(inner.join("file"), vec![0; bytes]).unwrap();
        }
        let bytes = Bytes::of(folder.path()).unwrap();
        assert_eq!(bytes, Bytes { journal: 1, index: 6, contents: 8, tree: 16 });
        assert_eq!(bytes.all(), 31);
    }
}
