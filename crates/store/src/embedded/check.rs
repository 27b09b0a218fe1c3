//! Offline work on a data folder that no process serves: verifying it, rebuilding the state.
//!
//! Owns the offline commands' work. Not here: how they are called and printed. Invariants: verifying changes nothing in the
//! journal, and nothing in the state but what sled does when it is opened; rebuilding sets the old state aside before it makes a new one.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use placet_ledger::proof::Frontier;
use placet_ledger::store::EffectChange;
use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use sled::IVec;

use super::EmbeddedConfig;
use super::codec::{decode_entry, decode_place};
use super::identity::check_finished;
use super::keys;
use super::open::{JOURNAL, OF_ANOTHER, OpenError, RecoveryReport, STATE, is_at_hand, open};
use super::read;
use super::replay::{Judge, Replay};
use super::snapshot::{SnapshotError, Snapshots};
use super::tree::{Tree, TreeFault};
use super::trust;
use crate::journal::lock::Lock;
use crate::journal::medium::{Disk, Medium as _};
use crate::journal::{
    Base, Frame, JournalError, SegmentFiles, VerifyReport as JournalReport, VisitError, verify_each,
};

/// Sets the state aside and rebuilds it. Begins a new epoch, like any opening.
///
/// # Errors
/// [`OpenError`], as opening the store; the folder must not be in use.
pub fn rebuild(config: &EmbeddedConfig) -> Result<RecoveryReport, OpenError> {
    // A mistyped name must not make a new store.
    let journal = config.directory.join(JOURNAL);
    std::fs::metadata(&journal).map_err(JournalError::io("find the journal", &journal))?;
    let opened = open(config, Some("asked for"))?;
    trust::close(&opened.tree, &config.directory)?;
    opened.journal.close()?;
    Ok(opened.report)
}

/// The tree over the entries that were archived, as the journal's folder has it; none where nothing was archived. Changes nothing, and may
/// be used while a store is running. It is not signed: compare its root.
pub fn archived_tree(directory: &Path) -> Option<Frontier> {
    let base = Base::read(&Disk, &directory.join(JOURNAL)).ok()?;
    Some(base.frontier).filter(|frontier| frontier.size() > 0)
}

/// What [`verify`] found. The journal itself is sound, or there is an error instead.
#[derive(Debug, Clone)]
pub struct VerifyReport {
    /// The journal.
    pub journal: JournalReport,
    /// The state.
    pub state: StateVerdict,
    /// The contents.
    pub content: ContentVerdict,
    /// Snapshots that cannot be used, by their entry, with the reason.
    pub damaged_snapshots: Vec<(u64, String)>,
    /// How many state transitions of records and approvals there were.
    pub moves: u64,
    /// Transitions that the state machines do not allow: the first hundred.
    pub illegal: Vec<String>,
}

impl VerifyReport {
    /// Whether nothing checked is wrong. What was deleted is told apart from what is lost; a damaged state or snapshot costs only a
    /// rebuild, but something has damaged it.
    pub fn is_sound(&self) -> bool {
        self.content.altered.is_empty()
            && self.content.missing.is_empty()
            && self.damaged_snapshots.is_empty()
            && self.illegal.is_empty()
            && !matches!(self.state, StateVerdict::Ahead { .. } | StateVerdict::Disagrees { .. })
    }

    /// Whether everything was checked: not where archived entries are not at hand, or the state could not be read.
    pub fn is_whole(&self) -> bool {
        self.journal.first_seq <= 1 && !matches!(self.state, StateVerdict::Unread { .. })
    }
}

/// How the state compares with the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateVerdict {
    /// It holds what the journal says.
    Agrees,
    /// It is behind, as after a crash; the next start lets it catch up.
    Behind {
        /// How many entries it lacks.
        entries: u64,
    },
    /// There is none; the next start builds it.
    Absent,
    /// It goes further than the journal, which is an older copy: a start is refused, and a rebuild would forget what had effects.
    Ahead {
        /// The last entry that it holds.
        state_seq: u64,
        /// The last entry of the journal.
        journal_seq: u64,
    },
    /// It does not hold what the journal says; the next start, or a rebuild, builds it again.
    Disagrees {
        /// The difference.
        why: String,
    },
    /// The operating system refused something, as on a full disk: the state may be sound.
    Unread {
        /// The system's error.
        why: String,
    },
}

/// How the contents compare with the entries that name them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContentVerdict {
    /// How often entries name a content.
    pub named: u64,
    /// How many contents were deleted for retention, as entries say.
    pub deleted: u64,
    /// Contents that are missing, though no entry says that they were deleted: [`CONTENTS_LISTED_MAX`] at most.
    pub missing: Vec<(TenantId, Digest)>,
    /// Contents that do not match their digest, and that no entry says were deleted: as many at most.
    pub altered: Vec<(TenantId, Digest)>,
}

/// How many missing contents are listed at most, and how many altered ones.
pub const CONTENTS_LISTED_MAX: usize = 1_000;

/// Verifies everything in a folder that is not in use. It reads the chain, checks every transition again, and builds the state in a scratch
/// folder to compare it with the existing one: it takes as long as a rebuild.
///
/// # Errors
/// [`OpenError`]: the folder is in use, or the journal is damaged (the first thing that is wrong, with its place).
pub fn verify(config: &EmbeddedConfig) -> Result<VerifyReport, OpenError> {
    let directory = &config.directory;
    check_finished(directory)?;
    let journal_directory = directory.join(JOURNAL);
    let _lock = Lock::take(&journal_directory)?;
    let scratch = Scratch::new(directory)?;
    let snapshots = Snapshots::new(Arc::new(Disk), directory);
    let found = found_state(config);
    let mut damaged_snapshots = Vec::new();
    let mut heads = BTreeMap::new();
    let (tree, from) = ground(config, &scratch, &snapshots, &mut damaged_snapshots, &mut heads)?;
    let mut judge = Judge::default();
    let mut contents = Contents::default();
    let mut verdict = None;
    let mut refused = None;
    let journal = {
        let mut replay = Replay::new(&tree, Some(&mut judge));
        let mut comes_to = |at: u64, replay: &mut Replay<'_>| -> Result<(), VisitError> {
            if let Ok(Some(state)) = &found
                && state.meta().applied_seq == at
            {
                replay.finish()?;
                verdict = Some(compare(&tree, state)?);
            }
            Ok(())
        };
        comes_to(from, &mut replay).map_err(|error| OpenError::State(error.to_string()))?;
        let journal = verify_each(&journal_directory, config.archive.as_deref(), &mut |frame| {
            if heads.get(&frame.seq).is_some_and(|head| *head != frame.hash) {
                damaged_snapshots.push((frame.seq, OF_ANOTHER.to_owned()));
            }
            if frame.seq <= from {
                return Ok(());
            }
            replay.take(frame).inspect_err(|error| {
                if let Some(TreeFault::Refused(error)) = error.downcast_ref::<TreeFault>() {
                    refused = Some(Arc::clone(error));
                }
            })?;
            config.progress.at(frame.seq);
            contents.take(frame, &replay)?;
            comes_to(frame.seq, &mut replay)
        });
        let journal = journal.map_err(|error| match refused {
            Some(error) => OpenError::Refused(error),
            None => error.into(),
        })?;
        replay.finish()?;
        journal
    };
    if from > 0 {
        // Which of these were deleted before that entry cannot be known here.
        contents.awaited.clear();
    }
    let content = contents.verdict(config, &tree)?;
    let state = match found {
        Err(verdict) => verdict,
        Ok(None) => StateVerdict::Absent,
        Ok(Some(state)) => verdict_of(&state, verdict, journal.last_seq, from),
    };
    let Judge { moves, illegal } = judge;
    Ok(VerifyReport { journal, state, content, damaged_snapshots, moves, illegal })
}

/// The existing state, or a verdict that does not need the journal.
fn found_state(config: &EmbeddedConfig) -> Result<Option<Tree>, StateVerdict> {
    let folder = config.directory.join(STATE);
    let unread = |why: String| StateVerdict::Unread { why };
    if !folder.try_exists().map_err(|error| unread(error.to_string()))? {
        return Ok(None);
    }
    let of_fault = |fault: TreeFault| match fault {
        TreeFault::Refused(error) => StateVerdict::Unread { why: error.to_string() },
        fault @ (TreeFault::Sled(_)
        | TreeFault::Panicked
        | TreeFault::Altered
        | TreeFault::Busy) => StateVerdict::Disagrees { why: fault.to_string() },
    };
    let tree = Tree::open(&folder, config.state_cache_bytes).map_err(of_fault)?;
    match tree.check().map_err(of_fault)? {
        Some(why) => Err(StateVerdict::Disagrees { why }),
        None => Ok(Some(tree)),
    }
}

fn verdict_of(
    state: &Tree,
    difference: Option<Option<String>>,
    last_seq: u64,
    from: u64,
) -> StateVerdict {
    let applied_seq = state.meta().applied_seq;
    match difference {
        Some(Some(why)) => StateVerdict::Disagrees { why },
        Some(None) => match last_seq.saturating_sub(applied_seq) {
            0 => StateVerdict::Agrees,
            entries => StateVerdict::Behind { entries },
        },
        None if applied_seq > last_seq => {
            StateVerdict::Ahead { state_seq: applied_seq, journal_seq: last_seq }
        }
        // It is older than the snapshot from which everything was rebuilt.
        None => StateVerdict::Behind { entries: last_seq.saturating_sub(applied_seq.min(from)) },
    }
}

/// Where the scratch state begins: before the first entry where that is at hand, otherwise with a snapshot. All snapshots are tried; the
/// hashes of their last entries are left in `heads`.
fn ground(
    config: &EmbeddedConfig,
    scratch: &Scratch,
    snapshots: &Snapshots,
    damaged: &mut Vec<(u64, String)>,
    heads: &mut BTreeMap<u64, [u8; 32]>,
) -> Result<(Tree, u64), OpenError> {
    let fresh = |name: &str| Tree::open(&scratch.path.join(name), config.state_cache_bytes);
    let files = segments(config);
    let base = Base::read(&Disk, &files.directory)?;
    let is_complete = is_at_hand(&files, &base);
    let archived = base.first_seq.saturating_sub(1);
    let mut usable = Vec::new();
    for seq in snapshots.list()? {
        let tree = fresh(&format!("snapshot-{seq}"))?;
        match snapshots.fill(seq, &tree).map(|()| tree.check()) {
            Ok(Ok(None)) => {
                heads.insert(seq, tree.meta().head);
                usable.extend((seq >= archived).then_some((seq, tree)));
            }
            Ok(Ok(Some(why))) => damaged.push((seq, why)),
            Ok(Err(fault)) => return Err(fault.into()),
            Err(error @ SnapshotError::Journal(_)) => return Err(error.into()),
            Err(error) => damaged.push((seq, error.to_string())),
        }
    }
    if is_complete {
        return Ok((fresh("state")?, 0));
    }
    for (seq, tree) in usable {
        let mut head = (seq == archived).then_some(base.prev);
        verify_each(&files.directory, config.archive.as_deref(), &mut |frame| {
            head = if frame.seq == seq { Some(frame.hash) } else { head };
            Ok(())
        })?;
        if head == Some(tree.meta().head) {
            return Ok((tree, seq));
        }
        heads.remove(&seq);
        damaged.push((seq, OF_ANOTHER.to_owned()));
    }
    Err(OpenError::NoGround {
        why: "no snapshot can be used".to_owned(),
        first_seq: base.first_seq,
    })
}

fn segments(config: &EmbeddedConfig) -> SegmentFiles {
    let journal = config.directory.join(JOURNAL);
    SegmentFiles::new(Arc::new(Disk), &journal, config.archive.as_deref())
}

/// A folder for what is too large for memory; removed on drop.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(directory: &Path) -> Result<Self, OpenError> {
        let path = directory.join("verify.tmp");
        if matches!(path.try_exists(), Ok(true)) {
            std::fs::remove_dir_all(&path).map_err(JournalError::io("remove", &path))?;
        }
        Disk.create_dir(&path).map_err(JournalError::io("make the folder", &path))?;
        Ok(Self { path })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.path) {
            tracing::warn!(%error, "the scratch folder could not be removed");
        }
    }
}

/// How two states differ, if they do. Contents to be erased are not compared: an entry says so, and it may have been done.
fn compare(expected: &Tree, found: &Tree) -> Result<Option<String>, TreeFault> {
    let is_compared = |pair: &Result<(IVec, IVec), TreeFault>| {
        pair.as_ref().map_or(true, |(key, _)| key.first() != Some(&keys::TO_ERASE))
    };
    let mut expected = expected.walk(&[]).filter(is_compared);
    let mut found = found.walk(&[]).filter(is_compared);
    loop {
        let (what, key) = match (expected.next().transpose()?, found.next().transpose()?) {
            (None, None) => return Ok(None),
            (Some(wanted), Some(held)) if wanted == held => continue,
            (Some((wanted, _)), Some((held, _))) if wanted == held => {
                ("it holds something else", wanted)
            }
            (Some((wanted, _)), Some((held, _))) if held < wanted => ("no entry says so", held),
            (None, Some((held, _))) => ("no entry says so", held),
            (Some((wanted, _)), _) => ("it has forgotten it", wanted),
        };
        return Ok(Some(format!("{what}: key {}", hex::encode(key))));
    }
}

/// Checks the contents that entries name.
#[derive(Default)]
struct Contents {
    verdict: ContentVerdict,
    /// What was deleted.
    deleted: HashSet<(TenantId, Digest)>,
    /// Contents named before they were written.
    awaited: BTreeSet<(TenantId, Digest)>,
}

impl Contents {
    /// Checks what an entry names, once it was applied.
    fn take(&mut self, frame: &Frame, replay: &Replay<'_>) -> Result<(), VisitError> {
        let entry = decode_entry(frame.kind, &frame.payload)?;
        let mut named: Vec<(TenantId, Digest)> = Vec::new();
        for effect in &entry.effects {
            if let EffectChange::Put(record) = effect {
                let tenant = &record.scope.tenant;
                named.extend(record.contents().map(|digest| (tenant.clone(), digest)));
            }
        }
        let approvals = entry.approvals.iter();
        named.extend(approvals.map(|it| (it.chain.tenant().clone(), it.proposal)));
        for name in named {
            self.verdict.named = self.verdict.named.saturating_add(1);
            let is_deleted = self.deleted.contains(&name) || entry.forget_content.contains(&name);
            if !is_deleted && !replay.has_content(&name.0, name.1)? {
                // It may come with a later entry.
                self.awaited.insert(name);
            }
        }
        for name in entry.forget_content {
            self.verdict.deleted = self.verdict.deleted.saturating_add(1);
            self.deleted.insert(name);
        }
        Ok(())
    }

    /// Reads every content that is there.
    fn verdict(
        mut self,
        config: &EmbeddedConfig,
        tree: &Tree,
    ) -> Result<ContentVerdict, OpenError> {
        let files = segments(config);
        for name in std::mem::take(&mut self.awaited) {
            let place = read::place(tree, &name.0, name.1)?;
            let is_lost = place.is_none() && !self.deleted.contains(&name);
            if is_lost && self.verdict.missing.len() < CONTENTS_LISTED_MAX {
                self.verdict.missing.push(name);
            }
        }
        for pair in tree.walk(&[keys::CONTENT]) {
            let (key, value) = pair?;
            let Some((tenant, digest)) = keys::content_of(&key) else { break };
            let place = decode_place(&value).ok_or(TreeFault::Altered)?;
            let is_sound = Digest::of(&files.content(&place)?) == digest;
            if !is_sound && self.verdict.altered.len() < CONTENTS_LISTED_MAX {
                self.verdict.altered.push((tenant, digest));
            }
        }
        Ok(self.verdict)
    }
}
