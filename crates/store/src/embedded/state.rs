//! What the writer's thread and the readers share.
//!
//! Owns the index handle, the claims, the runs on their way, the clock and the health of the store. Not here: the trait
//! (`mod`), the machine (`machine`). Invariant: after the first fault nothing is answered any more but that fault.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use tokio::sync::watch;

use placet_ledger::approval::ApprovalRecord;
use placet_ledger::directive::Directive;
use placet_ledger::policies::PolicyState;
use placet_ledger::record::EffectRecord;
use placet_ledger::run::{RunKey, RunRecord};
use placet_ledger::store::StoreError;
use placet_types::clock::{Clock, Timestamp};
use placet_types::ids::{ApprovalId, DirectiveId, RecordId};

use super::claims::Claims;
use super::codec::Stored;
use super::index::{Index, IndexFault};
use super::keeper::Bodies;
use super::keys;
use super::records::{Records, decode_directives, decode_run};
use crate::journal::JournalReader;
use crate::present::Present;
use crate::rules::{Op, directives_rev_after};
use crate::sorted::TableError;

/// Where the text of a fault goes once, and where [`super::EmbeddedStore::died`] listens.
pub(super) type Health = watch::Sender<Option<String>>;

/// The forms of runs that are prepared and not in the index, each with the entry that makes it, oldest first.
type RidingRuns = HashMap<RunKey, VecDeque<(u64, Arc<RunRecord>)>>;

/// Shared between the writer's thread and all readers.
#[derive(Debug)]
pub(super) struct State {
    index: RwLock<Option<Arc<Index>>>,
    pub(super) records: Records,
    pub(super) claims: Claims,
    runs: Mutex<RidingRuns>,
    /// The last entry that the operating system has, as far as answers have told.
    written_seq: AtomicU64,
    policy: Mutex<Option<PolicyState>>,
    /// How often what is in force has become stricter in entries that the index has. Of this process: no permit outlives it.
    restriction_version: AtomicU64,
    /// The writer stamps entries by it too: an entry is never before what was measured when it was made.
    pub(super) present: Arc<Present>,
    pub(super) epoch: u64,
    pub(super) health: Health,
}

impl State {
    pub(super) fn new(
        index: Arc<Index>,
        (journal, bodies): (JournalReader, Bodies),
        clock: Arc<dyn Clock>,
        (epoch, last_at_ms): (u64, Option<i64>),
    ) -> Self {
        Self {
            index: RwLock::new(Some(index)),
            records: Records::new(journal, bodies),
            claims: Claims::default(),
            runs: Mutex::default(),
            written_seq: AtomicU64::new(0),
            policy: Mutex::new(None),
            restriction_version: AtomicU64::new(0),
            present: Arc::new(Present::after(last_at_ms, clock)),
            epoch,
            health: watch::Sender::new(None),
        }
    }

    /// The policies that decide. They are of this process: each start activates its own.
    pub(super) fn policy(&self) -> Option<PolicyState> {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Other policies decide from here on.
    pub(super) fn set_policy(&self, policy: Option<PolicyState>) {
        *self.policy.lock().unwrap_or_else(PoisonError::into_inner) = policy;
    }

    /// How often what is in force has become stricter, as far as it can be read.
    pub(super) fn restriction_version(&self) -> u64 {
        self.restriction_version.load(Ordering::Acquire)
    }

    /// The index has what these changes made.
    pub(super) fn note_directives(&self, ops: &[Op]) {
        let rev = directives_rev_after(self.restriction_version(), ops);
        self.restriction_version.fetch_max(rev, Ordering::AcqRel);
    }

    /// The index, while the store is open and sound.
    pub(super) fn index(&self) -> Result<Arc<Index>, StoreError> {
        if let Some(reason) = self.health.borrow().as_ref() {
            return Err(StoreError::Stopped(reason.clone()));
        }
        // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
        let index = self.index.read().unwrap_or_else(PoisonError::into_inner);
        index.clone().ok_or_else(|| StoreError::Stopped("it was closed".to_owned()))
    }

    /// Takes the index out: the store is closed.
    pub(super) fn take_index(&self) -> Option<Arc<Index>> {
        self.index.write().unwrap_or_else(PoisonError::into_inner).take()
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

    /// The present: the clock's, but never before the last entry.
    pub(super) fn now(&self) -> Timestamp {
        self.present.now()
    }

    /// How long ago that was, where it can be known.
    pub(super) fn age_ms(&self, at: Timestamp) -> Option<i64> {
        self.present.age_ms(at)
    }

    /// An entry carries this time.
    pub(super) fn note_time(&self, at: Timestamp) {
        self.present.note(at);
    }

    /// The operating system has all entries up to this one.
    pub(super) fn note_written(&self, seq: u64) {
        self.written_seq.fetch_max(seq, Ordering::AcqRel);
    }

    /// A stored effect record.
    pub(super) fn effect(
        &self,
        index: &Index,
        record_id: &RecordId,
    ) -> Result<Option<Arc<EffectRecord>>, StoreError> {
        let stored = self.stored(index, &keys::effect(record_id))?;
        let record = stored.map(|stored| self.records.effect(record_id, stored.seq));
        record.transpose().map_err(|reason| self.fail(&reason))
    }

    /// A stored approval.
    pub(super) fn approval(
        &self,
        index: &Index,
        approval_id: &ApprovalId,
    ) -> Result<Option<Arc<ApprovalRecord>>, StoreError> {
        let stored = self.stored(index, &keys::approval(approval_id))?;
        let record = stored.map(|stored| self.records.approval(approval_id, stored.seq));
        record.transpose().map_err(|reason| self.fail(&reason))
    }

    /// A stored entry of the approval service.
    pub(super) fn directive(
        &self,
        index: &Index,
        directive_id: &DirectiveId,
    ) -> Result<Option<Directive>, StoreError> {
        let entry = self
            .stored(index, &keys::directives(directive_id))?
            .map(|stored| decode_directives(&stored));
        entry.transpose().map_err(|reason| self.fail(&reason))
    }

    /// A run as entries that are written have made it.
    pub(super) fn run(&self, index: &Index, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        let written = self.written_seq.load(Ordering::Acquire);
        let riding = self.runs().get(key).and_then(|forms| {
            forms.iter().rev().find(|(seq, _)| *seq <= written).map(|(_, run)| Arc::clone(run))
        });
        if let Some(run) = riding {
            return Ok(Some(RunRecord::clone(&run)));
        }
        let run = self.stored(index, &keys::run(key))?.map(|stored| decode_run(&stored));
        run.transpose().map_err(|reason| self.fail(&reason))
    }

    fn stored(&self, index: &Index, key: &[u8]) -> Result<Option<Stored>, StoreError> {
        index.read(key).map_err(|fault| self.fail_index(&fault))
    }

    /// A fault of the index. A damaged table is set aside, so that the next start does not take it for sound.
    pub(super) fn fail_index(&self, fault: &IndexFault) -> StoreError {
        if let IndexFault::Table(TableError::Damaged { path, .. }) = fault
            && let Err(error) = std::fs::rename(path, path.with_extension("damaged"))
        {
            tracing::warn!(%error, "a damaged table could not be set aside");
        }
        self.fail(&fault.to_string())
    }

    /// A run is as this entry makes it, once that is written.
    pub(super) fn board_run(&self, seq: u64, run: &Arc<RunRecord>) {
        self.runs().entry(run.key.clone()).or_default().push_back((seq, Arc::clone(run)));
    }

    /// The latest form of a run that is prepared and not in the index.
    pub(super) fn riding_run(&self, key: &RunKey) -> Option<Arc<RunRecord>> {
        self.runs().get(key)?.back().map(|(_, run)| Arc::clone(run))
    }

    /// The index has the run as of this entry.
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
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
