//! A store in memory: the reference model of [`crate::store::Store`], for tests.
//!
//! Owns the plainest reading of what a store promises: one lock, compare and swap on every revision, all of a commit or nothing, and
//! the record machines enforced. Keeps nothing over a restart. Every future it returns is ready at once.

use std::{
    collections::BTreeMap,
    fmt,
    pin::pin,
    sync::{Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
};

use async_trait::async_trait;

use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{ApprovalId, RecordId, TenantId, ToolCallId},
};

use crate::{
    approval::ApprovalRecord,
    audit::{AuditEvent, AuditKind},
    record::EffectRecord,
    run::{RunKey, RunRecord},
    store::{
        ApprovalQuery, Changes, ClaimAnswer, Committed, EffectChange, EffectQuery, PolicyState,
        Store, StoreError,
    },
};

/// Waits for a future by asking it again and again; meant for futures over a [`MemoryStore`], which are ready at once.
pub fn ready<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return output;
        }
        std::thread::yield_now();
    }
}

/// What goes wrong with a commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// It is refused, and nothing is changed.
    Refuse(StoreError),
    /// Whoever asks panics, and nothing is changed.
    Panic,
}

/// A store in memory.
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Clone, Default)]
struct Inner {
    now: Timestamp,
    epoch: u64,
    seq: u64,
    policy: Option<PolicyState>,
    closed: bool,
    refuse_next: Option<StoreError>,
    fault: Option<(AuditKind, Fault)>,
    claims: BTreeMap<RecordId, EffectRecord>,
    effects: BTreeMap<RecordId, EffectRecord>,
    approvals: BTreeMap<ApprovalId, ApprovalRecord>,
    runs: BTreeMap<RunKey, RunRecord>,
    content: BTreeMap<(TenantId, Digest), Vec<u8>>,
    audit: Vec<AuditEvent>,
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}

impl MemoryStore {
    /// An empty store whose clock stands at `now`.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { inner: Mutex::new(Inner { now, epoch: 1, ..Inner::default() }) }
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

    /// Makes the next commit that holds an event of `kind` go wrong.
    pub fn fail_once_on(&self, kind: AuditKind, fault: Fault) {
        self.lock().fault = Some((kind, fault));
    }

    /// The fault that was asked for, if `changes` are what it waits for.
    fn due(&self, changes: &Changes) -> Option<Fault> {
        let mut inner = self.lock();
        let (kind, _) = inner.fault.as_ref()?;
        let due = changes.audit.iter().any(|event| event.kind == *kind);
        if due { inner.fault.take().map(|(_, fault)| fault) } else { None }
    }

    /// Other policies are active from now on.
    pub fn set_policy(&self, policy: PolicyState) {
        self.lock().policy = Some(policy);
    }

    /// Everything the audit chain holds, oldest first.
    #[must_use]
    pub fn audit(&self) -> Vec<AuditEvent> {
        self.lock().audit.clone()
    }

    /// How many commits were kept.
    #[must_use]
    pub fn commits(&self) -> u64 {
        self.lock().seq
    }

    /// Changes kept content behind the store's back, as an intruder or a failing disk would.
    pub fn tamper(&self, tenant: &TenantId, digest: Digest, bytes: Vec<u8>) {
        self.lock().content.insert((tenant.clone(), digest), bytes);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn apply(&mut self, changes: Changes) -> Result<(), StoreError> {
        self.check_policy(&changes)?;
        for (tenant, bytes) in changes.content {
            self.content.insert((tenant, Digest::of(&bytes)), bytes);
        }
        for run in changes.runs {
            self.runs.entry(run.key.clone()).or_insert(run);
        }
        if let Some(reservation) = changes.reserve {
            let run = self.runs.get_mut(&reservation.run).ok_or(StoreError::BudgetExhausted)?;
            *run = run.reserved(reservation.cents).ok_or(StoreError::BudgetExhausted)?;
        }
        if let Some(refund) = changes.refund
            && let Some(run) = self.runs.get_mut(&refund.run)
        {
            *run = run.refunded(refund.cents);
        }
        for change in changes.effects {
            self.change_effect(change)?;
        }
        for approval in changes.approvals {
            self.put_approval(approval)?;
        }
        for place in changes.forget_content {
            self.content.remove(&place);
        }
        self.audit.extend(changes.audit);
        self.seq = self.seq.saturating_add(1);
        Ok(())
    }

    fn check_policy(&mut self, changes: &Changes) -> Result<(), StoreError> {
        let epoch = self.policy.map_or(0, |policy| policy.epoch);
        if changes.expect_policy.is_some_and(|expected| expected != epoch) {
            return Err(StoreError::PolicyMoved);
        }
        if let Some(next) = changes.activate {
            if self.policy != Some(next) && epoch.checked_add(1) != Some(next.epoch) {
                return Err(StoreError::Conflict);
            }
            self.policy = Some(next);
        }
        Ok(())
    }

    fn change_effect(&mut self, change: EffectChange) -> Result<(), StoreError> {
        match change {
            EffectChange::Put(record) => {
                let claim = self.claims.get(&record.record_id);
                let stored = self.effects.get(&record.record_id);
                check_rev(stored.map_or(0, |stored| stored.rev), record.rev)?;
                if let Some(before) = stored.or(claim) {
                    check_move(before, &record)?;
                }
                self.claims.remove(&record.record_id);
                self.effects.insert(record.record_id, *record);
            }
            EffectChange::Remove { record_id, rev } => {
                let stored = self.effects.get(&record_id).ok_or(StoreError::Conflict)?;
                if stored.rev != rev || !stored.may_be_removed() {
                    return Err(StoreError::Conflict);
                }
                self.effects.remove(&record_id);
            }
            EffectChange::Forget { record_id, rev } => {
                let stored = self.effects.get(&record_id).ok_or(StoreError::Conflict)?;
                if stored.rev != rev || !stored.may_be_forgotten() {
                    return Err(StoreError::Conflict);
                }
                self.effects.remove(&record_id);
            }
        }
        Ok(())
    }

    fn put_approval(&mut self, approval: ApprovalRecord) -> Result<(), StoreError> {
        let stored = self.approvals.get(&approval.approval_id);
        check_rev(stored.map_or(0, |stored| stored.rev), approval.rev)?;
        if stored.is_some_and(|stored| !stored.state.may_become(&approval.state)) {
            return Err(StoreError::Conflict);
        }
        self.approvals.insert(approval.approval_id.clone(), approval);
        Ok(())
    }
}

#[expect(clippy::panic, reason = "a fault that a test asked for must be a real panic")]
fn injected_panic() {
    panic!("injected fault");
}

fn check_rev(stored: u64, next: u64) -> Result<(), StoreError> {
    if stored.checked_add(1) == Some(next) { Ok(()) } else { Err(StoreError::Conflict) }
}

fn check_move(before: &EffectRecord, after: &EffectRecord) -> Result<(), StoreError> {
    if before.may_move_to(after) {
        return Ok(());
    }
    Err(StoreError::Illegal(before.illegal(&after.state)))
}

#[async_trait]
impl Store for MemoryStore {
    fn now(&self) -> Timestamp {
        self.lock().now
    }

    fn epoch(&self) -> u64 {
        self.lock().epoch
    }

    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError> {
        let mut inner = self.lock();
        let taken = inner
            .effects
            .get(&record.record_id)
            .or_else(|| inner.claims.get(&record.record_id))
            .cloned();
        if let Some(taken) = taken {
            return Ok(ClaimAnswer::Taken(Box::new(taken)));
        }
        inner.claims.insert(record.record_id, record);
        Ok(ClaimAnswer::Claimed)
    }

    async fn release(&self, record_id: RecordId) {
        self.lock().claims.remove(&record_id);
    }

    async fn commit(&self, changes: Changes) -> Result<Committed, StoreError> {
        // Gives a racing caller its chance between its reads and its commit.
        std::thread::yield_now();
        match self.due(&changes) {
            Some(Fault::Refuse(error)) => return Err(error),
            Some(Fault::Panic) => injected_panic(),
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
        next.apply(changes)?;
        *inner = next;
        Ok(Committed { seq: inner.seq, at: inner.now })
    }

    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError> {
        let inner = self.lock();
        Ok(inner.effects.get(&record_id).or_else(|| inner.claims.get(&record_id)).cloned())
    }

    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError> {
        let inner = self.lock();
        let mut records = inner.effects.values().chain(inner.claims.values());
        Ok(records.find(|record| record.call_id == *call_id).cloned())
    }

    async fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        Ok(self.lock().approvals.get(approval_id).cloned())
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let inner = self.lock();
        let of_call = inner.approvals.values().filter(|approval| approval.call_id == *call_id);
        Ok(of_call.max_by_key(|approval| approval.created_at).cloned())
    }

    async fn policy(&self) -> Result<Option<PolicyState>, StoreError> {
        Ok(self.lock().policy)
    }

    fn is_shared(&self) -> bool {
        false
    }

    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError> {
        Ok(Vec::new())
    }

    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        Ok(self.lock().runs.get(key).cloned())
    }

    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let kept = self.lock().content.get(&(tenant.clone(), digest)).cloned();
        let bytes = kept.ok_or(StoreError::ContentMissing(digest))?;
        if Digest::of(&bytes) == digest {
            Ok(bytes)
        } else {
            Err(StoreError::ContentAltered(digest))
        }
    }

    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
        let inner = self.lock();
        let fits = |record: &&EffectRecord| {
            query.tenant.as_ref().is_none_or(|tenant| record.scope.tenant == *tenant)
                && query.state.as_ref().is_none_or(|state| record.state.name() == state)
                && (!query.open_only || record.state.is_open())
                && (!query.orphaned || record.is_orphaned(inner.epoch))
                && query.settled_before.is_none_or(|before| record.is_past_retention(before))
                && query.after.is_none_or(|after| record.record_id > after)
        };
        Ok(inner.effects.values().filter(fits).take(query.limit).cloned().collect())
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        let inner = self.lock();
        let mut found: Vec<_> = inner
            .approvals
            .values()
            .filter(|approval| {
                query.tenant.as_ref().is_none_or(|tenant| approval.chain.tenant() == tenant)
                    && query.state.as_ref().is_none_or(|state| approval.state.name() == state)
            })
            .cloned()
            .collect();
        found.sort_by(|a, b| (a.created_at, &a.approval_id).cmp(&(b.created_at, &b.approval_id)));
        if let Some(after) = &query.after
            && let Some(at) = found.iter().position(|approval| approval.approval_id == *after)
        {
            found.drain(..=at);
        }
        found.truncate(query.limit);
        Ok(found)
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.lock().closed = true;
        Ok(())
    }
}
