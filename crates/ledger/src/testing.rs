//! A store in memory: the reference model of [`crate::store::Store`], for tests.
//!
//! Owns the plainest reading of what a store promises: one lock, compare and swap on every revision, all of a commit or nothing, and the
//! record machines enforced. Loses everything on a restart. Every future it returns is ready at once, except for lists of the approval
//! service that a test holds up.

mod reads;
mod rules;

use std::{
    cmp::Ordering::{Greater, Less},
    collections::{BTreeMap, BTreeSet},
    fmt,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};

use parking_lot::{Mutex, MutexGuard};

use async_trait::async_trait;

use placet_policy::policies::PolicyDigests;
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{ApprovalId, DirectiveId, RecordId, TenantId, ToolCallId},
};

use crate::{
    approval::ApprovalRecord,
    audit::{AuditEvent, AuditKind},
    directive::Directive,
    outbox::Outbox,
    policies::{PastPolicies, PolicyState},
    record::EffectRecord,
    run::{RunKey, RunRecord},
    store::{
        ApprovalQuery, Changes, ClaimAnswer, Committed, DirectiveQuery, EffectQuery, Store,
        StoreError,
    },
};

/// Polls a future in a loop; meant for futures over a [`MemoryStore`], which are ready at once.
pub fn ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// Digests of policies, each part of which is named like this.
pub fn policy_digests(name: &str) -> PolicyDigests {
    let [policies, contracts, directory, issuers] =
        ["policies", "contracts", "directory", "issuers"]
            .map(|part| Digest::of(format!("{part} {name}").as_bytes()));
    PolicyDigests { policies, contracts, directory, issuers }
}

/// What goes wrong with a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is refused, and nothing is changed.
    Refuse(StoreError),
    /// The caller panics, and nothing is changed.
    Panic,
    /// It is recorded, and the caller stands still for this long before it learns so: like a process that was paused.
    Stall(std::time::Duration),
    /// It is recorded, and this many milliseconds pass by the store's clock before the caller learns so.
    Slow(i64),
    /// It is recorded, and the caller is told that the store cannot be reached.
    Unconfirmed,
    /// It is recorded, and the caller is told that this is uncertain: as when the disk fails, or the database is lost, at that moment.
    Uncertain,
}

/// A store in memory.
pub struct MemoryStore {
    inner: Arc<Mutex<Inner>>,
    epoch: u64,
    cut_off: AtomicBool,
    expired: AtomicBool,
    reads: reads::Reads,
}

/// A copy of everything that a [`MemoryStore`] held at some moment.
#[derive(Clone)]
pub struct Kept(Inner);

impl fmt::Debug for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kept").finish_non_exhaustive()
    }
}

#[derive(Clone, Default)]
struct Inner {
    now: Timestamp,
    /// The latest epoch.
    epoch: u64,
    /// Epochs that have ended: they write nothing more.
    over: BTreeSet<u64>,
    /// Epochs whose lease has run out.
    silent: BTreeSet<u64>,
    shared: bool,
    seq: u64,
    policy: Option<PolicyState>,
    past_policies: PastPolicies,
    closed: bool,
    refuse_next: Option<StoreError>,
    fault: Option<(AuditKind, Fault)>,
    claims: BTreeMap<(u64, RecordId), EffectRecord>,
    effects: BTreeMap<RecordId, EffectRecord>,
    approvals: BTreeMap<ApprovalId, ApprovalRecord>,
    directives: BTreeMap<DirectiveId, Directive>,
    restriction_version: u64,
    runs: BTreeMap<RunKey, RunRecord>,
    content: BTreeMap<(TenantId, Digest), Vec<u8>>,
    outbox: Outbox,
    audit: Vec<AuditEvent>,
}

#[expect(clippy::disallowed_methods, reason = "a paused process is no paused timer")]
fn stand_still(time: std::time::Duration) {
    std::thread::sleep(time);
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store whose clock stands at `now`.
    pub fn new(now: Timestamp) -> Self {
        Self::of(Arc::new(Mutex::new(Inner { now, epoch: 1, ..Inner::default() })), 1)
    }

    fn of(inner: Arc<Mutex<Inner>>, epoch: u64) -> Self {
        let (cut_off, expired) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { inner, epoch, cut_off, expired, reads: reads::Reads::default() }
    }

    /// Another node over the same records, with an epoch of its own.
    pub fn node(&self) -> Self {
        let mut inner = self.lock();
        inner.shared = true;
        inner.epoch = inner.epoch.saturating_add(1);
        Self::of(Arc::clone(&self.inner), inner.epoch)
    }

    /// The same records as the next process finds them: every earlier epoch has ended.
    pub fn restarted(&self) -> Self {
        let mut inner = self.lock();
        let before = 0..=inner.epoch;
        inner.over.extend(before);
        inner.claims.clear();
        inner.closed = false;
        inner.epoch = inner.epoch.saturating_add(1);
        Self::of(Arc::clone(&self.inner), inner.epoch)
    }

    /// Lets this node's lease run out: the next node that checks fences it.
    pub fn fall_silent(&self) {
        self.lock().silent.insert(self.epoch);
    }

    /// Cuts this node off from the store, or connects it again.
    pub fn cut_off(&self, off: bool) {
        self.cut_off.store(off, Ordering::SeqCst);
    }

    /// Lets this node's lease expire although the store can be read, or renews it.
    pub fn expire_lease(&self, expired: bool) {
        self.expired.store(expired, Ordering::SeqCst);
    }

    fn reach(&self) -> Result<(), StoreError> {
        if self.cut_off.load(Ordering::SeqCst) {
            return Err(StoreError::Unreachable("cut off".to_owned()));
        }
        Ok(())
    }

    /// What would be on disk now.
    pub fn kept(&self) -> Kept {
        Kept(self.lock().clone())
    }

    /// The store as the next process finds it: claims are gone, and its epoch is the next one.
    pub fn reopened(kept: &Kept) -> Self {
        let mut inner = kept.0.clone();
        inner.epoch = inner.epoch.saturating_add(1);
        inner.claims.clear();
        (inner.policy, inner.past_policies) = (None, PastPolicies::default());
        inner.closed = false;
        let epoch = inner.epoch;
        inner.over.extend(0..epoch);
        Self::of(Arc::new(Mutex::new(inner)), epoch)
    }

    /// Sets the time, which never goes back.
    pub fn set_now(&self, now: Timestamp) {
        let mut inner = self.lock();
        inner.now = inner.now.max(now);
    }

    /// Lets time pass.
    pub fn advance_ms(&self, ms: i64) {
        let mut inner = self.lock();
        inner.now = inner.now.plus_ms(ms.max(0));
    }

    /// Makes the next commit fail with `error`, before anything is changed.
    pub fn refuse_next(&self, error: StoreError) {
        self.lock().refuse_next = Some(error);
    }

    /// Makes the next commit with an event of `kind` go wrong.
    pub fn fail_once_on(&self, kind: AuditKind, fault: Fault) {
        self.lock().fault = Some((kind, fault));
    }

    /// The requested fault, if `changes` are what it waits for.
    fn due(&self, changes: &Changes) -> Option<Fault> {
        let mut inner = self.lock();
        let (kind, _) = inner.fault.as_ref()?;
        let due = changes.audit.iter().any(|event| event.kind == *kind);
        if due { inner.fault.take().map(|(_, fault)| fault) } else { None }
    }

    /// Activates other policies.
    pub fn set_policy(&self, policy: PolicyState) {
        self.lock().policy = Some(policy);
    }

    /// Everything the audit chain holds, oldest first.
    pub fn audit(&self) -> Vec<AuditEvent> {
        self.lock().audit.clone()
    }

    /// How many commits were recorded.
    pub fn commits(&self) -> u64 {
        self.lock().seq
    }

    /// Changes stored content behind the store's back, as an intruder or a failing disk would.
    pub fn tamper(&self, tenant: &TenantId, digest: Digest, bytes: Vec<u8>) {
        self.lock().content.insert((tenant.clone(), digest), bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }
}

#[expect(clippy::panic, reason = "a fault that a test asked for must be a real panic")]
fn injected_panic() {
    panic!("injected fault");
}

#[async_trait]
impl Store for MemoryStore {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError> {
        self.reach()?;
        let mut inner = self.lock();
        let place = (self.epoch, record.record_id);
        let taken =
            inner.effects.get(&record.record_id).or_else(|| inner.claims.get(&place)).cloned();
        if let Some(taken) = taken {
            return Ok(ClaimAnswer::Taken(Box::new(taken)));
        }
        inner.claims.insert(place, record);
        Ok(ClaimAnswer::Claimed)
    }

    async fn release(&self, record_id: RecordId) {
        self.lock().claims.remove(&(self.epoch, record_id));
    }

    async fn commit(&self, changes: Changes) -> Result<Committed, StoreError> {
        // Gives a racing caller its chance between its reads and its commit.
        std::thread::yield_now();
        self.reach()?;
        let (mut stall, mut slow_ms, mut unconfirmed) = (std::time::Duration::ZERO, 0, None);
        match self.due(&changes) {
            Some(Fault::Refuse(error)) => return Err(error),
            Some(Fault::Panic) => injected_panic(),
            Some(Fault::Stall(time)) => stall = time,
            Some(Fault::Slow(ms)) => slow_ms = ms,
            Some(Fault::Unconfirmed) => {
                unconfirmed = Some(StoreError::Unreachable("the connection broke".to_owned()));
            }
            Some(Fault::Uncertain) => {
                unconfirmed = Some(StoreError::Uncertain("the disk failed".to_owned()));
            }
            None => {}
        }
        let mut inner = self.lock();
        if inner.closed {
            return Err(StoreError::Stopped("closed".to_owned()));
        }
        if let Some(error) = inner.refuse_next.take() {
            return Err(error);
        }
        let mut next = inner.clone();
        next.apply(self.epoch, changes)?;
        *inner = next;
        inner.now = inner.now.plus_ms(slow_ms);
        stand_still(stall);
        if let Some(error) = unconfirmed {
            return Err(error);
        }
        Ok(Committed { seq: inner.seq, at: inner.now })
    }

    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError> {
        self.reach()?;
        let inner = self.lock();
        let claim = inner.claims.get(&(self.epoch, record_id));
        Ok(inner.effects.get(&record_id).or(claim).cloned())
    }

    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError> {
        self.reach()?;
        let inner = self.lock();
        let own =
            |((epoch, _), record): (&(u64, RecordId), _)| (*epoch == self.epoch).then_some(record);
        let mut records = inner.effects.values().chain(inner.claims.iter().filter_map(own));
        Ok(records.find(|record| record.call_id == *call_id).cloned())
    }

    async fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        self.reach()?;
        Ok(self.lock().approvals.get(approval_id).cloned())
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        self.reach()?;
        let inner = self.lock();
        let of_call = inner.approvals.values().filter(|approval| approval.call_id == *call_id);
        Ok(of_call.max_by_key(|approval| approval.created_at).cloned())
    }

    async fn policy(&self) -> Result<Option<PolicyState>, StoreError> {
        self.reach()?;
        Ok(self.lock().policy)
    }

    async fn restriction_version(&self) -> Result<u64, StoreError> {
        self.reach()?;
        Ok(self.lock().restriction_version)
    }

    fn lease_has_expired(&self) -> bool {
        self.expired.load(Ordering::SeqCst)
    }

    fn is_shared(&self) -> bool {
        self.lock().shared
    }

    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError> {
        self.reach()?;
        let mut inner = self.lock();
        if inner.over.contains(&self.epoch) {
            return Err(StoreError::Fenced);
        }
        let dead: Vec<u64> = std::mem::take(&mut inner.silent).into_iter().collect();
        inner.over.extend(dead.iter().copied());
        let over = inner.over.clone();
        inner.claims.retain(|(epoch, _), _| !over.contains(epoch));
        Ok(dead)
    }

    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        self.reach()?;
        self.reads.run(key)?;
        Ok(self.lock().runs.get(key).cloned())
    }

    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError> {
        self.reach()?;
        self.reads.content().await?;
        let kept = self.lock().content.get(&(tenant.clone(), digest)).cloned();
        let bytes = kept.ok_or(StoreError::ContentMissing(digest))?;
        if Digest::of(&bytes) == digest {
            Ok(bytes)
        } else {
            Err(StoreError::ContentAltered(digest))
        }
    }

    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
        self.reach()?;
        let inner = self.lock();
        let fits = |record: &&EffectRecord| {
            query.tenant.as_ref().is_none_or(|tenant| record.scope.tenant == *tenant)
                && query.state.as_ref().is_none_or(|state| record.state.name() == state)
                && (!query.open_only || record.state.is_open())
                && (!query.orphaned || inner.is_orphaned(record, self.epoch))
                && query.settled_before.is_none_or(|before| record.is_past_retention(before))
                && query.after.is_none_or(|after| record.place() > after)
        };
        let mut found: Vec<_> = inner.effects.values().filter(fits).cloned().collect();
        found.sort_by_key(EffectRecord::place);
        found.truncate(query.limit);
        Ok(found)
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        self.reach()?;
        self.reads.list()?;
        let inner = self.lock();
        let mut found: Vec<_> =
            inner.approvals.values().filter(|approval| query.wants(approval)).cloned().collect();
        found.sort_by(|a, b| (a.created_at, &a.approval_id).cmp(&(b.created_at, &b.approval_id)));
        let after = query.after.as_ref().and_then(|after| inner.approvals.get(after));
        if let Some(after) = after.map(|after| (after.created_at, &after.approval_id)) {
            let place = |approval: &ApprovalRecord| {
                (approval.created_at, &approval.approval_id).cmp(&after)
            };
            found.retain(|approval| {
                place(approval) == if query.newest_first { Less } else { Greater }
            });
        }
        if query.newest_first {
            found.reverse();
        }
        found.truncate(query.limit);
        Ok(found)
    }

    async fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Directive>, StoreError> {
        self.reach()?;
        self.reads.entry()?;
        Ok(self.lock().directives.get(directive_id).cloned())
    }

    async fn directives(&self, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
        self.reach()?;
        self.reads.entries().await?;
        let inner = self.lock();
        let after = query.after.as_ref().and_then(|after| inner.directives.get(after));
        let next = if query.newest_first { Less } else { Greater };
        let fits = |entry: &&Directive| {
            query.wants(entry)
                && after.is_none_or(|after| entry.place().cmp(&after.place()) == next)
        };
        let mut found: Vec<Directive> = inner.directives.values().filter(fits).cloned().collect();
        found.sort_by(|a, b| a.place().cmp(&b.place()));
        if query.newest_first {
            found.reverse();
        }
        found.truncate(query.limit);
        Ok(found)
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        self.reach()?;
        Ok(self.lock().outbox.clone())
    }

    async fn close(&self) -> Result<(), StoreError> {
        let mut inner = self.lock();
        if inner.shared {
            inner.over.insert(self.epoch);
        } else {
            inner.closed = true;
        }
        Ok(())
    }
}
