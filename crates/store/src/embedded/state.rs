//! What the writer's thread and the readers share.
//!
//! Owns the handle of the tree, the claims, the prepared runs, the clock and the health of the store. Not here: the trait (`mod`), the
//! machine (`machine`). Invariant: after the first fault the only answer is that fault.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::watch;

use placet_ledger::policies::PolicyState;
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::StoreError;
use placet_types::clock::{Clock, Timestamp};
use placet_types::digest::Digest;
use placet_types::ids::TenantId;
use serde::de::DeserializeOwned;

use super::tree::{Tree, TreeFault};
use super::{keys, read};
use crate::claims::Claims;
use crate::journal::{Journal, JournalReader};
use crate::present::Present;
use crate::rules::{Op, directives_rev_after};

/// Holds the text of the first fault; [`super::EmbeddedStore::died`] listens to it.
pub(super) type Health = watch::Sender<Option<String>>;

/// The versions of runs that are prepared and not in the state, each with its entry, oldest first.
type RidingRuns = HashMap<RunKey, VecDeque<(u64, Arc<RunRecord>)>>;

/// Shared between the writer's thread and all readers.
#[derive(Debug)]
pub(super) struct State {
    tree: RwLock<Option<Arc<Tree>>>,
    pub(super) journal: JournalReader,
    pub(super) erasing: Erasing,
    pub(super) claims: Claims,
    runs: Mutex<RidingRuns>,
    /// The last entry known to be written to the operating system.
    written_seq: AtomicU64,
    policy: Mutex<Option<PolicyState>>,
    /// How often what is in force has become stricter, by the entries in the state. Only for this process: no permit outlives it.
    restriction_version: AtomicU64,
    /// The writer stamps entries with it too: an entry is never dated before a time that was measured for it.
    pub(super) present: Arc<Present>,
    pub(super) epoch: u64,
    pub(super) health: Health,
}

/// Whether contents may be erased, or the segments they are in are being copied.
#[derive(Debug, Default)]
pub(super) struct Erasing(AtomicBool);

impl Erasing {
    /// Nothing is erased until [`Self::release`] is called.
    pub(super) fn hold(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Contents may be erased again.
    pub(super) fn release(&self) {
        self.0.store(false, Ordering::Release);
    }

    /// Whether nothing may be erased.
    pub(super) fn is_held(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

impl State {
    pub(super) fn new(tree: Arc<Tree>, journal: &Journal, clock: Arc<dyn Clock>) -> Self {
        Self {
            tree: RwLock::new(Some(tree)),
            journal: journal.reader(),
            erasing: Erasing::default(),
            claims: Claims::default(),
            runs: Mutex::default(),
            written_seq: AtomicU64::new(0),
            policy: Mutex::new(None),
            restriction_version: AtomicU64::new(0),
            present: Arc::new(Present::after(journal.last_at_ms(), clock)),
            epoch: journal.epoch(),
            health: watch::Sender::new(None),
        }
    }

    /// The policies that decide. They are of this process: each start activates its own.
    pub(super) fn policy(&self) -> Option<PolicyState> {
        *self.policy.lock()
    }

    /// Replaces the active policies.
    pub(super) fn set_policy(&self, policy: Option<PolicyState>) {
        *self.policy.lock() = policy;
    }

    /// How often what is in force has become stricter, as far as readers see.
    pub(super) fn restriction_version(&self) -> u64 {
        self.restriction_version.load(Ordering::Acquire)
    }

    /// The state now contains these changes.
    pub(super) fn note_directives(&self, ops: &[Op]) {
        let rev = directives_rev_after(self.restriction_version(), ops);
        self.restriction_version.fetch_max(rev, Ordering::AcqRel);
    }

    /// The tree, while the store is open and sound.
    pub(super) fn tree(&self) -> Result<Arc<Tree>, StoreError> {
        if let Some(reason) = self.health.borrow().as_ref() {
            return Err(StoreError::Stopped(reason.clone()));
        }
        let tree = self.tree.read();
        tree.clone().ok_or_else(|| StoreError::Stopped("it was closed".to_owned()))
    }

    /// Takes the tree out: the store is being closed.
    pub(super) fn take_tree(&self) -> Option<Arc<Tree>> {
        self.tree.write().take()
    }

    /// A fault: the store answers nothing from here on, and the process is told to end.
    pub(super) fn fail(&self, reason: &str) -> StoreError {
        self.health.send_if_modified(|health| {
            let first = health.is_none();
            if first {
                tracing::error!(reason, "the store stops; the process has to end and recover");
                *health = Some(reason.to_owned());
            }
            first
        });
        StoreError::Stopped(reason.to_owned())
    }

    /// The current time: the clock's, but never before the last entry.
    pub(super) fn now(&self) -> Timestamp {
        self.present.now()
    }

    /// How long ago `at` was, where it can be known.
    pub(super) fn age_ms(&self, at: Timestamp) -> Option<i64> {
        self.present.age_ms(at)
    }

    /// Notes the time of an entry.
    pub(super) fn note_time(&self, at: Timestamp) {
        self.present.note(at);
    }

    /// The operating system has all entries up to this one.
    pub(super) fn note_written(&self, seq: u64) {
        self.written_seq.fetch_max(seq, Ordering::AcqRel);
    }

    /// The stored record of a key.
    pub(super) fn record<T: DeserializeOwned>(
        &self,
        tree: &Tree,
        key: &[u8],
    ) -> Result<Option<T>, StoreError> {
        read::record(tree, key).map_err(|fault| self.fail_tree(&fault))
    }

    /// A run, as of the written entries.
    pub(super) fn run(&self, tree: &Tree, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        let written = self.written_seq.load(Ordering::Acquire);
        let riding = self.runs().get(key).and_then(|forms| {
            forms.iter().rev().find(|(seq, _)| *seq <= written).map(|(_, run)| Arc::clone(run))
        });
        match riding {
            Some(run) => Ok(Some(RunRecord::clone(&run))),
            None => self.record(tree, &keys::run(key)),
        }
    }

    /// A content, verified by its digest.
    pub(super) fn content(
        &self,
        tree: &Tree,
        tenant: &TenantId,
        digest: Digest,
    ) -> Result<Vec<u8>, StoreError> {
        let place = || read::place(tree, tenant, digest).map_err(|fault| self.fail_tree(&fault));
        let at = place()?.ok_or(StoreError::ContentMissing(digest))?;
        let bytes = self.journal.content(&at);
        let bytes = bytes.map_err(|error| StoreError::Damaged(error.to_string()))?;
        if Digest::of(&bytes) == digest {
            return Ok(bytes);
        }
        // It may have been erased during the read.
        Err(match place()? {
            Some(_) => StoreError::ContentAltered(digest),
            None => StoreError::ContentMissing(digest),
        })
    }

    /// A fault of the tree.
    pub(super) fn fail_tree(&self, fault: &TreeFault) -> StoreError {
        self.fail(&fault.to_string())
    }

    /// Notes the version of a run that this entry makes, for when it is written.
    pub(super) fn board_run(&self, seq: u64, run: &Arc<RunRecord>) {
        self.runs().entry(run.key.clone()).or_default().push_back((seq, Arc::clone(run)));
    }

    /// The latest version of a run that is prepared and not in the state.
    pub(super) fn riding_run(&self, key: &RunKey) -> Option<Arc<RunRecord>> {
        self.runs().get(key)?.back().map(|(_, run)| Arc::clone(run))
    }

    /// The state now has the run as of this entry.
    pub(super) fn run_arrived(&self, seq: u64, key: &RunKey) {
        let mut runs = self.runs();
        if let Some(forms) = runs.get_mut(key) {
            while forms.front().is_some_and(|(riding, _)| *riding <= seq) {
                forms.pop_front();
            }
            if forms.is_empty() {
                runs.remove(key);
            }
        }
    }

    fn runs(&self) -> MutexGuard<'_, RidingRuns> {
        self.runs.lock()
    }
}
