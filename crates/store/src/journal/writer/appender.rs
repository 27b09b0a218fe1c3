//! The appender: writes entries and syncs them, on the writer's thread or on a caller's.
//!
//! Owns: the order journal → sync → state → erasing within one batch, and when something is due. Not here: who is answered, and stopping
//! (`batch`). Invariant: only one thread at a time uses it; after a failure nothing more is written.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{MappedMutexGuard, Mutex, MutexGuard};
use placet_ledger::store::{Admission, Committed, Durability};
use placet_types::clock::{Clock, Timestamp};
use tokio::time::Instant;

use super::{AppliedFrame, Apply, BATCH_BYTES_MAX, Later, SYNC_WITHIN, Staged, WITNESS_AFTER};
use crate::journal::medium::to_u64;
use crate::journal::{Journal, JournalError};

/// The state needed to write entries.
pub(super) struct Appender<A: Apply> {
    journal: Journal,
    apply: A,
    /// The clock that entries take their time from.
    clock: Arc<dyn Clock>,
    later: Arc<Mutex<Later<A>>>,
    /// Until when free space counts as ample without a check.
    space_until: Option<Instant>,
    /// Entries written but not yet durable, hence not yet in the state.
    unapplied: Vec<AppliedFrame>,
    /// Whether other threads run while one waits for the disk.
    has_others: bool,
    /// How many requests the last batch answered.
    crowd: usize,
    /// How long the last sync took.
    sync_took: Duration,
    sync_due: Option<Instant>,
    /// Whether the witness names an older entry than the last durable one.
    is_witness_behind: bool,
    witness_due: Option<Instant>,
    /// When to retry erasing contents that could not be erased yet.
    erase_due: Option<Instant>,
    state: AppenderState,
}

/// Whether it can be used.
enum AppenderState {
    Sound,
    /// Something failed: the writer ends with that.
    Failed(JournalError),
    /// The thread that had it panicked.
    Broken,
}

/// The appender while one thread holds it.
pub(super) struct AppenderGuard<'a, A: Apply>(MappedMutexGuard<'a, Appender<A>>);

impl<'a, A: Apply> AppenderGuard<'a, A> {
    /// The appender, unless it is broken or the writer has ended.
    pub(super) fn of(shared: MutexGuard<'a, Option<Appender<A>>>) -> Option<Self> {
        let held = MutexGuard::try_map(shared, Option::as_mut).ok().map(Self);
        held.filter(|held| !matches!(held.state, AppenderState::Broken))
    }
}

impl<A: Apply> Deref for AppenderGuard<'_, A> {
    type Target = Appender<A>;

    fn deref(&self) -> &Appender<A> {
        &self.0
    }
}

impl<A: Apply> DerefMut for AppenderGuard<'_, A> {
    fn deref_mut(&mut self) -> &mut Appender<A> {
        &mut self.0
    }
}

impl<A: Apply> Drop for AppenderGuard<'_, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.state = AppenderState::Broken;
        }
    }
}

/// How often to check whether postponed contents may be erased.
const ERASE_AGAIN: Duration = Duration::from_millis(200);

/// For how long ample free space is not checked again.
const SPACE_KNOWN_FOR: Duration = Duration::from_millis(100);

/// The room a segment must have left for a caller to write to it: beginning the next one needs syncs, which callers should not wait for.
const ROOM_BYTES_MIN: u64 = 256 << 10;

/// A caller waits for a sync on its own thread, which others may need, only where syncs take less.
const SYNC_HERE_WITHIN: Duration = Duration::from_millis(1);

/// One batch.
pub(super) struct Batch {
    /// Its entries, each with its time.
    entries: Vec<(Timestamp, Staged)>,
    bytes: usize,
    durability: Durability,
    /// The time of its last entry, or of the last one before it.
    last_at: Timestamp,
}

impl Batch {
    /// Whether it accepts no further request.
    pub(super) const fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES_MAX
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<A: Apply> Appender<A> {
    pub(super) fn new(
        journal: Journal,
        apply: A,
        clock: Arc<dyn Clock>,
        later: Arc<Mutex<Later<A>>>,
    ) -> Self {
        Self {
            journal,
            apply,
            clock,
            later,
            space_until: None,
            unapplied: Vec::new(),
            has_others: thread::available_parallelism().is_ok_and(|many| many.get() > 1),
            crowd: 0,
            sync_took: Duration::ZERO,
            sync_due: None,
            is_witness_behind: false,
            witness_due: None,
            erase_due: None,
            state: AppenderState::Sound,
        }
    }

    /// When the writer's thread is next due to act unasked.
    pub(super) fn due(&self) -> Option<Instant> {
        [self.sync_due, self.witness_due, self.erase_due].into_iter().flatten().min()
    }

    /// Whether the thread will sync soon, and then take what is left for later.
    pub(super) const fn will_sync(&self) -> bool {
        self.sync_due.is_some()
    }

    /// Whether there is work that the thread does not know of.
    pub(super) fn wants_the_thread(&self) -> bool {
        let wants_sync = self.sync_due.is_none() && !self.unapplied.is_empty();
        let wants_witness = self.witness_due.is_none() && self.is_witness_behind;
        !self.is_sound() || wants_sync || wants_witness
    }

    /// Whether a caller may write without having to wait.
    pub(super) fn may_write_here(&self) -> bool {
        self.is_sound() && self.journal.room_bytes() >= ROOM_BYTES_MIN
    }

    /// Whether a caller may also sync: one at a time writes here, the disk is quick, and if it stalls all the same, another processor goes
    /// on. Many share a sync better on the writer's thread.
    pub(super) fn may_sync_here(&self) -> bool {
        self.has_others
            && self.crowd <= 1
            && self.sync_took < SYNC_HERE_WITHIN
            && !self.apply.owes_erasures()
    }

    const fn is_sound(&self) -> bool {
        matches!(self.state, AppenderState::Sound)
    }

    /// Fails once something has failed.
    pub(super) fn check(&self) -> Result<(), JournalError> {
        match &self.state {
            AppenderState::Sound => Ok(()),
            AppenderState::Failed(error) => Err(error.clone()),
            AppenderState::Broken => Err(JournalError::Poisoned),
        }
    }

    /// After the first failure it is never used again.
    fn guard<T>(&mut self, done: Result<T, JournalError>) -> Result<T, JournalError> {
        if let Err(error) = &done {
            self.state = AppenderState::Failed(error.clone());
        }
        done
    }

    /// Writes one request on its caller's thread, and what was left for later.
    pub(super) fn write_one(&mut self, request: A::Request) -> Result<Committed, A::Error> {
        let mut batch = self.begin();
        let answer = self.prepare(request, &mut batch);
        self.commit(batch, 1)?;
        answer
    }

    /// Begins a batch with the requests nobody waits for. Their refusals can only be logged.
    pub(super) fn begin(&mut self) -> Batch {
        let last_at_ms = self.journal.last_at_ms().unwrap_or(i64::MIN);
        let mut batch = Batch {
            entries: Vec::new(),
            bytes: 0,
            durability: Durability::Written,
            last_at: Timestamp::from_ms(last_at_ms),
        };
        let requests = std::mem::take(&mut self.later.lock().requests);
        for request in requests {
            if let Err(error) = self.prepare(request, &mut batch) {
                tracing::error!(%error, "an entry that nobody waited for was refused");
            }
        }
        batch
    }

    /// Takes a request into a batch.
    pub(super) fn prepare(
        &mut self,
        request: A::Request,
        batch: &mut Batch,
    ) -> Result<Committed, A::Error> {
        if A::admission(&request) == Admission::New && self.space_is_low()? {
            let watermark_bytes = self.journal.config.free_space_watermark_bytes;
            return Err(JournalError::NoSpace { watermark_bytes }.into());
        }
        let staged_before = to_u64(batch.entries.len());
        let seq = self.journal.head().0.saturating_add(staged_before).saturating_add(1);
        // Read for each request: an entry is never dated before the event it records, however long ago its batch was begun.
        batch.last_at = batch.last_at.max(self.clock.now());
        let place = Committed { seq, at: batch.last_at };
        let staged = self.apply.prepare(request, place)?;
        batch.bytes = batch.bytes.saturating_add(staged.bytes());
        if staged.durability == Durability::Synced {
            batch.durability = Durability::Synced;
        }
        batch.entries.push((place.at, staged));
        Ok(place)
    }

    /// Whether there is too little space; while there is, it is checked every time.
    fn space_is_low(&mut self) -> Result<bool, JournalError> {
        let now = Instant::now();
        if self.space_until.is_some_and(|until| now < until) {
            return Ok(false);
        }
        let is_low = self.journal.space_is_low()?;
        self.space_until = if is_low { None } else { now.checked_add(SPACE_KNOWN_FOR) };
        Ok(is_low)
    }

    /// Writes a batch with the requests of this many callers, as durably as it asks for.
    pub(super) fn commit(&mut self, batch: Batch, callers: usize) -> Result<(), JournalError> {
        self.crowd = callers;
        let written = self.write(batch);
        self.guard(written)
    }

    /// The frames first, then (where asked for) the sync, the state, and the erasing.
    fn write(&mut self, batch: Batch) -> Result<(), JournalError> {
        for (at, Staged { kind, payload, contents, .. }) in batch.entries {
            let (placed, contents) =
                self.journal.append_with(kind, at.as_ms(), payload, &contents)?;
            self.unapplied.push(AppliedFrame { seq: placed.seq, hash: placed.hash, contents });
        }
        self.journal.write()?;
        if batch.durability == Durability::Synced {
            self.sync()?;
        }
        Ok(())
    }

    /// Erases the contents that durable entries say are deleted. If interrupted, the next start finishes it.
    fn erase(&mut self) -> Result<(), JournalError> {
        if self.apply.owes_erasures() {
            let places = self.apply.to_erase();
            if !places.is_empty() {
                self.journal.erase(&places)?;
                self.apply.erased(&places)?;
            }
        }
        // They wait while a backup is made, and are retried until done.
        let owes = self.apply.owes_erasures();
        self.erase_due = if owes { Instant::now().checked_add(ERASE_AGAIN) } else { None };
        Ok(())
    }

    /// Makes durable what is written.
    fn sync(&mut self) -> Result<(), JournalError> {
        if !self.unapplied.is_empty() {
            let began = Instant::now();
            self.journal.sync()?;
            self.sync_took = began.elapsed();
            self.apply.synced(self.unapplied.len(), self.sync_took);
            self.is_witness_behind = true;
            // Readers see them from here on.
            self.apply.applied(&self.unapplied)?;
            self.unapplied.clear();
            self.erase()?;
        }
        self.sync_due = None;
        Ok(())
    }

    /// Does what is due. Called by the writer's thread, with its time.
    pub(super) fn tend_timers(&mut self) -> Result<(), JournalError> {
        let tended = self.tend();
        self.guard(tended)
    }

    fn tend(&mut self) -> Result<(), JournalError> {
        let now = Instant::now();
        if self.sync_due.is_none() && !self.unapplied.is_empty() {
            self.sync_due = now.checked_add(SYNC_WITHIN);
        }
        if self.sync_due.is_some_and(|due| due <= now) {
            self.sync()?;
        }
        if self.witness_due.is_none() && self.is_witness_behind {
            // Not delayed by later entries: under steady load the witness would never be written.
            self.witness_due = now.checked_add(WITNESS_AFTER);
        }
        if self.witness_due.is_some_and(|due| due <= now) {
            self.journal.record_witness()?;
            self.witness_due = None;
            self.is_witness_behind = false;
        }
        if self.erase_due.is_some_and(|due| due <= now) {
            self.erase()?;
        }
        Ok(())
    }

    /// Makes everything durable and drops everything, the lock last, so that the journal can be opened again at once.
    pub(super) fn close(mut self) -> Result<(), JournalError> {
        self.sync()?;
        let Self { journal, apply, .. } = self;
        drop(apply);
        journal.close()
    }
}
