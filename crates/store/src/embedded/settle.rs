//! Index and journal brought together: the generation that goes on from the checkpoint kept, or rebuilt.
//!
//! Owns the judgement over what was found in the folder of the index. Not here: the order of start-up (`open`), the comparison itself
//! (`generation`, `delta`). Invariants: an index that does not agree with the journal is set aside, never deleted first; an index
//! that goes further than the journal says that the journal has forgotten, and nothing is served then; a checkpoint is in place only
//! when a generation that goes on from it is durable, so that a crash in between leaves the old checkpoint with its own.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::EmbeddedConfig;
use super::checkpoint::{Checkpoints, Draft, Loaded};
use super::codec::Meta;
use super::delta::{Delta, Ground, Spill};
use super::generation::{self, Generation, TreeError};
use super::index::{Applied, Index, IndexFault};
use super::keys;
use super::open::{INDEX, IndexFate, OpenError, Rest};
use crate::journal::medium::{Disk, Medium as _};
use crate::journal::{Begin, Journal, JournalError};
use crate::sorted::TableSet;

const DAMAGED: &str = "index.damaged-";
const DAMAGED_KEPT: usize = 2;

/// Where to begin, and with what.
pub(super) struct Ready {
    pub(super) begin: Begin,
    pub(super) delta: Delta,
    pub(super) bodies: TableSet,
    pub(super) covered_seq: u64,
}

/// Brings index and journal together.
pub(super) struct Settling<'a> {
    pub(super) config: &'a EmbeddedConfig,
    pub(super) checkpoints: Checkpoints,
    pub(super) index: PathBuf,
    /// The generation that goes on from the checkpoint, or why there is none.
    pub(super) found: Result<Generation, String>,
    /// Whether there was anything in its place.
    pub(super) was_there: bool,
    /// It must be rebuilt in any case.
    pub(super) is_asked_for: bool,
    /// There is a checkpoint that does not count any more.
    pub(super) replaces_checkpoint: bool,
    pub(super) next_table: u64,
    pub(super) next_generation: u64,
    /// The entries up to which the generations go: one that waited for its checkpoint goes further than the one that is gone on with.
    pub(super) watched: BTreeSet<u64>,
}

pub(super) struct Settled {
    pub(super) index: Index,
    pub(super) rest: Rest,
    pub(super) fate: IndexFate,
    pub(super) replayed: u64,
    pub(super) open: BTreeMap<&'static str, u64>,
}

impl<'a> Settling<'a> {
    pub(super) fn new(
        config: &'a EmbeddedConfig,
        checkpoints: Checkpoints,
        rebuild: Option<&str>,
    ) -> Self {
        let found = Err(rebuild.unwrap_or("there was none").to_owned());
        Self {
            config,
            checkpoints,
            index: config.directory.join(INDEX),
            found,
            was_there: false,
            is_asked_for: rebuild.is_some(),
            replaces_checkpoint: false,
            next_table: 1,
            next_generation: 1,
            watched: BTreeSet::new(),
        }
    }

    /// Looks for the generation that begins where the checkpoint ends.
    ///
    /// # Errors
    /// What the operating system answers: an index that cannot be read now may be sound, and may know that the journal has forgotten.
    pub(super) fn look_for_generation(&mut self, found: Option<&Loaded>) -> Result<(), OpenError> {
        self.was_there = !matches!(self.index.try_exists(), Ok(false));
        let generations =
            generation::find(&self.index).map_err(OpenError::io("list the folder", &self.index))?;
        let last = generations.keys().next_back().copied().unwrap_or(0);
        self.next_generation = last.saturating_add(1);
        if self.is_asked_for {
            return Ok(());
        }
        let base_seq = found.map_or(0, |found| found.checkpoint.seq);
        // All of them: a later one that waits for its checkpoint knows more entries than the one that is gone on with.
        for path in generations.values() {
            let opened = self.open_generation(path, base_seq)?;
            if self.found.is_ok() {
                continue;
            }
            match opened {
                Ok(Some(generation)) => self.found = Ok(generation),
                Ok(None) => self.found = Err("none goes on from the checkpoint".to_owned()),
                Err(why) => self.found = Err(why),
            }
        }
        if self.found.is_ok() {
            return Ok(());
        }
        // One that was not made in generations.
        if generations.is_empty() && matches!(self.index.join("db").try_exists(), Ok(true)) {
            self.found = Err("it is of an earlier form".to_owned());
        }
        Ok(())
    }

    /// Opens a generation; nothing where it does not begin where the checkpoint ends, or why it is not believed.
    fn open_generation(
        &mut self,
        path: &Path,
        base_seq: u64,
    ) -> Result<Result<Option<Generation>, String>, OpenError> {
        let (generation, base, meta) = match open_with_range(path, self.config.index_cache_bytes)? {
            Ok(opened) => opened,
            Err(why) => return Ok(Err(why)),
        };
        self.watched.insert(meta.applied_seq);
        Ok(Ok((base.applied_seq == base_seq).then_some(generation)))
    }

    pub(super) fn ready(&self, found: Option<Loaded>) -> Ready {
        let Some(found) = found else {
            let delta = Delta::new(Ground::empty(), self.spill(), &self.watched);
            let (begin, bodies) = (Begin::First, TableSet::default());
            return Ready { begin, delta, bodies, covered_seq: 0 };
        };
        let begin = Begin::After(found.checkpoint.start());
        let (bodies, covered_seq) = (found.bodies.clone(), found.checkpoint.seq);
        let delta = Delta::new(Ground::of(found), self.spill(), &self.watched);
        Ready { begin, delta, bodies, covered_seq }
    }

    fn spill(&self) -> Spill {
        let directory = self.checkpoints.directory.clone();
        let spill = Spill::new(Arc::clone(&self.config.medium), directory, self.next_table);
        Spill { bytes_max: self.config.recovery_bytes_max, ..spill }
    }

    pub(super) fn settle(
        mut self,
        journal: &Journal,
        mut delta: Delta,
        (applied, mut rest): (Applied, Rest),
    ) -> Result<Settled, OpenError> {
        self.refuse_a_forgetful_journal(&delta)?;
        let found = std::mem::replace(&mut self.found, Err(String::new()));
        let (generation, fate, replayed) = if delta.has_spilled() || self.replaces_checkpoint {
            delta.end_in_tables().map_err(|error| OpenError::Index(error.to_string()))?;
            rest.next_table = delta.next_table();
            let made = match found {
                // It goes on from the old checkpoint, and stays for it until the new one is in place.
                Ok(_) => self.make_beside(&delta, "there was too much to catch up with".to_owned()),
                Err(why) => self.make(&delta, why, journal.epoch()),
            }?;
            self.checkpoint(journal, &delta, (&applied, &rest))?;
            rest.covered_seq = applied.meta.applied_seq;
            made
        } else {
            let kept = found.and_then(|generation| {
                let replayed = generation.catch_up(&delta)?;
                Ok((generation, replayed))
            });
            match kept {
                Ok((generation, replayed)) => (generation, IndexFate::Kept, replayed),
                Err(why) => self.make(&delta, why, journal.epoch())?,
            }
        };
        self.remove_others(generation.directory())?;
        rest.next_generation = self.next_generation;
        let open = count_open(&delta);
        let held = (applied, delta.open().clone());
        let index = Index::new(generation, delta.tables().clone(), held);
        Ok(Settled { index, rest, fate, replayed, open })
    }

    /// An index follows durable entries only: one that goes further proves that an older copy of the journal was put in place, and
    /// what is missing may have had its effect. Only an explicit rebuild goes on from there.
    fn refuse_a_forgetful_journal(&self, delta: &Delta) -> Result<(), OpenError> {
        let witness_seq = self.watched.last().copied().unwrap_or(0);
        let found_seq = delta.last().applied_seq;
        if self.is_asked_for || witness_seq <= found_seq {
            return Ok(());
        }
        Err(JournalError::Forgotten { witness_seq, found_seq }.into())
    }

    /// Makes the generation anew in the place of what is not believed.
    fn make(
        &mut self,
        delta: &Delta,
        why: String,
        epoch: u64,
    ) -> Result<(Generation, IndexFate, u64), OpenError> {
        if self.was_there {
            tracing::warn!(why, "the index is set aside and rebuilt from the journal");
            self.set_aside(epoch)?;
        }
        self.make_beside(delta, why)
    }

    /// Makes the generation anew, and durable, beside what is there.
    fn make_beside(
        &mut self,
        delta: &Delta,
        why: String,
    ) -> Result<(Generation, IndexFate, u64), OpenError> {
        let path = generation::folder(&self.index, self.next_generation);
        self.next_generation = self.next_generation.saturating_add(1);
        let failed = |error: &dyn std::fmt::Display| OpenError::Index(error.to_string());
        let generation = Generation::open(&path, self.config.index_cache_bytes)
            .map_err(|error| failed(&error))?;
        let base = if delta.has_spilled() { delta.last() } else { delta.first() };
        generation.begin(&base).map_err(|fault| failed(&fault))?;
        generation.fill(delta, base.applied_seq).map_err(|fault| failed(&fault))?;
        generation.close().map_err(|fault| failed(&fault))?;
        let replayed = delta.last().applied_seq.saturating_sub(delta.first().applied_seq);
        // A new store has no index to be missed.
        let is_new = replayed == 0 && !self.was_there && !self.is_asked_for;
        let fate = if is_new { IndexFate::Kept } else { IndexFate::Rebuilt { why } };
        Ok((generation, fate, replayed))
    }

    fn checkpoint(
        &self,
        journal: &Journal,
        delta: &Delta,
        (applied, rest): (&Applied, &Rest),
    ) -> Result<(), OpenError> {
        let (base, frontier) = rest.footing.named()?;
        let draft = Draft {
            store_id: rest.store_id.clone(),
            meta: applied.meta,
            epoch: applied.epoch,
            at_ms: applied.at_ms,
            start: journal.reader().start_after(applied.meta.applied_seq)?,
            counts: applied.counts,
            open: delta.open().clone(),
            frontier,
            tables: delta.tables().clone(),
            bodies: rest.bodies.clone(),
            base,
            next_table: rest.next_table,
        };
        self.checkpoints.write(draft).map(drop)
    }

    /// Generations that are in a checkpoint already, or that one was to be made of.
    fn remove_others(&self, kept: &Path) -> Result<(), OpenError> {
        let generations =
            generation::find(&self.index).map_err(OpenError::io("list the folder", &self.index))?;
        for path in generations.values().filter(|path| *path != kept) {
            std::fs::remove_dir_all(path).map_err(OpenError::io("remove", path))?;
        }
        Ok(())
    }

    fn set_aside(&self, epoch: u64) -> Result<(), OpenError> {
        let directory = &self.config.directory;
        let aside = directory.join(format!("{DAMAGED}{epoch}"));
        Disk.rename(&self.index, &aside).map_err(OpenError::io("set aside", &self.index))?;
        Disk.sync_dir(directory).map_err(OpenError::io("sync the folder", directory))?;
        let names = Disk.list(directory).map_err(OpenError::io("list the folder", directory))?;
        let mut epochs: Vec<u64> =
            names.iter().filter_map(|name| name.strip_prefix(DAMAGED)?.parse().ok()).collect();
        epochs.sort_unstable_by(|a, b| b.cmp(a));
        for epoch in epochs.into_iter().skip(DAMAGED_KEPT) {
            let old = directory.join(format!("{DAMAGED}{epoch}"));
            std::fs::remove_dir_all(&old).map_err(OpenError::io("remove", &old))?;
        }
        Ok(())
    }
}

/// A generation with the entries after which it begins and up to which it goes; or why it is not believed.
///
/// # Errors
/// What the operating system answers: it may be sound.
pub(super) fn open_with_range(
    path: &Path,
    cache_bytes: u64,
) -> Result<Result<(Generation, Meta, Meta), String>, OpenError> {
    let generation = match Generation::open(path, cache_bytes) {
        Ok(generation) => generation,
        Err(TreeError::Refused(error)) => return Err(OpenError::io("open the index", path)(error)),
        Err(error @ (TreeError::Busy | TreeError::Panicked | TreeError::Failed(_))) => {
            return Ok(Err(error.to_string()));
        }
    };
    let range = generation.base().and_then(|base| Ok((base, generation.meta()?)));
    Ok(match range {
        Ok((Some(base), Some(meta))) => Ok((generation, base, meta)),
        Ok(_) => Err("it does not say how far it goes".to_owned()),
        Err(IndexFault::Refused(error)) => {
            let error = std::io::Error::new(error.kind(), error);
            return Err(OpenError::io("read the index", path)(error));
        }
        Err(fault) => Err(fault.to_string()),
    })
}

fn count_open(delta: &Delta) -> BTreeMap<&'static str, u64> {
    let mut counts: BTreeMap<&'static str, u64> = BTreeMap::new();
    for name in delta.open().values().filter_map(|code| keys::open_name(*code)) {
        let count = counts.entry(name).or_default();
        *count = count.saturating_add(1);
    }
    counts
}
