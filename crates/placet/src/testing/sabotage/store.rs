//! A store that lies about what it keeps.
//!
//! Owns what it keeps in memory instead. Everything that it does not lie about is the honest store's.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use parking_lot::Mutex;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    directive::Directive,
    outbox::Outbox,
    policies::PolicyState,
    record::{EffectRecord, EffectState},
    run::{RunKey, RunRecord},
    store::{
        Admission, ApprovalMark, ApprovalQuery, Changes, ClaimAnswer, Committed, DirectiveQuery,
        Durability, EffectChange, EffectQuery, Store, StoreError,
    },
};
use placet_types::{
    clock::Timestamp,
    digest::Digest,
    ids::{ApprovalId, DirectiveId, RecordId, TenantId, ToolCallId},
};

use super::{Guard, lacks};

/// For how long a result is known before it is written.
const EARLY: Duration = Duration::from_millis(600);
/// How long a dispatch is delayed: longer than what was in progress when a stop was requested.
const OVERTAKEN: Duration = Duration::from_millis(2_500);

/// A result that is known before it is written, or without it.
#[derive(Debug, Clone)]
struct Early {
    record: EffectRecord,
    content: Vec<(TenantId, Vec<u8>)>,
}

/// The store that lies.
#[derive(Debug)]
pub(super) struct LyingStore {
    honest: Arc<dyn Store>,
    /// Dispatches that are not written until their outcome is.
    intents: Mutex<BTreeMap<RecordId, Changes>>,
    early: Arc<Mutex<BTreeMap<RecordId, Early>>>,
}

impl LyingStore {
    /// Wraps an honest one.
    pub(super) fn over(honest: Arc<dyn Store>) -> Self {
        Self { honest, intents: Mutex::default(), early: Arc::default() }
    }

    fn early(&self, record_id: RecordId) -> Option<EffectRecord> {
        self.early.lock().get(&record_id).map(|early| early.record.clone())
    }

    /// The answer for a commit that was not made.
    fn pretended(&self) -> Committed {
        Committed { seq: 0, at: self.honest.now() }
    }

    /// Commits a dispatch.
    async fn dispatch(
        &self,
        record_id: RecordId,
        mut changes: Changes,
    ) -> Result<Committed, StoreError> {
        if lacks(Guard::PolicyEpochUnchecked) {
            changes.expect_policy = None;
        }
        if lacks(Guard::ApprovalOutsideTransaction) && !changes.approvals.is_empty() {
            let mut apart = Changes::new(Durability::Synced, Admission::New);
            apart.approvals = std::mem::take(&mut changes.approvals);
            self.honest.commit(apart).await?;
        }
        if lacks(Guard::DispatchAfterStop) {
            tokio::time::sleep(OVERTAKEN).await;
        }
        if lacks(Guard::DispatchNotDurable) {
            self.intents.lock().insert(record_id, changes);
            return Ok(self.pretended());
        }
        self.honest.commit(changes).await
    }

    /// Commits a result.
    async fn succeed(
        &self,
        record: EffectRecord,
        changes: Changes,
    ) -> Result<Committed, StoreError> {
        let record_id = record.record_id;
        let show = || {
            let early = Early { record: record.clone(), content: changes.content.clone() };
            self.early.lock().insert(record_id, early);
        };
        if lacks(Guard::ResultNeverWritten) {
            show();
            return Ok(self.pretended());
        }
        if lacks(Guard::ResultBeforeCommit) {
            show();
            let (honest, known) = (Arc::clone(&self.honest), Arc::clone(&self.early));
            tokio::spawn(async move {
                tokio::time::sleep(EARLY).await;
                drop(honest.commit(changes).await);
                known.lock().remove(&record_id);
            });
            return Ok(self.pretended());
        }
        if lacks(Guard::VisibilityGateOff) {
            show();
            tokio::time::sleep(EARLY).await;
            let kept = self.honest.commit(changes).await;
            self.early.lock().remove(&record_id);
            return kept;
        }
        self.honest.commit(changes).await
    }
}

/// The record that a commit writes, if any.
fn put_by(changes: &Changes) -> Option<&EffectRecord> {
    changes.effects.iter().rev().find_map(|change| match change {
        EffectChange::Put(record) => Some(&**record),
        EffectChange::Remove { .. } | EffectChange::Forget { .. } => None,
    })
}

/// A dispatch and its outcome in one commit.
fn joined(intent: Changes, outcome: Changes) -> Changes {
    Changes {
        content: [intent.content, outcome.content].concat(),
        effects: [intent.effects, outcome.effects].concat(),
        approvals: [intent.approvals, outcome.approvals].concat(),
        audit: [intent.audit, outcome.audit].concat(),
        forget_content: [intent.forget_content, outcome.forget_content].concat(),
        spend: intent.spend.or(outcome.spend),
        reserve: intent.reserve.or(outcome.reserve),
        ..outcome
    }
}

#[async_trait]
impl Store for LyingStore {
    fn now(&self) -> Timestamp {
        self.honest.now()
    }

    fn age_ms(&self, at: Timestamp) -> Option<i64> {
        self.honest.age_ms(at)
    }

    fn epoch(&self) -> u64 {
        self.honest.epoch()
    }

    fn lease_has_expired(&self) -> bool {
        self.honest.lease_has_expired()
    }

    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError> {
        let (record_id, requested) = (record.record_id, record.requested_digest);
        let ClaimAnswer::Taken(mut stored) = self.honest.claim(record).await? else {
            return Ok(ClaimAnswer::Claimed);
        };
        if let Some(early) = self.early(record_id) {
            *stored = early;
        }
        if lacks(Guard::FingerprintUnchecked) {
            stored.requested_digest = requested;
        }
        Ok(ClaimAnswer::Taken(stored))
    }

    async fn release(&self, record_id: RecordId) {
        self.honest.release(record_id).await;
    }

    async fn commit(&self, mut changes: Changes) -> Result<Committed, StoreError> {
        if lacks(Guard::GrantUsesUncounted) {
            changes.spend = None;
        }
        let Some(record) = put_by(&changes).cloned() else {
            return self.honest.commit(changes).await;
        };
        let intent = self.intents.lock().remove(&record.record_id);
        if let Some(intent) = intent {
            changes = joined(intent, changes);
        }
        let is_new = changes.admission == Admission::New;
        if is_new && matches!(record.state, EffectState::Dispatched(_)) {
            self.dispatch(record.record_id, changes).await
        } else if matches!(record.state, EffectState::Succeeded { .. }) {
            self.succeed(record, changes).await
        } else {
            self.honest.commit(changes).await
        }
    }

    async fn commit_later(&self, changes: Changes) -> Result<(), StoreError> {
        self.honest.commit_later(changes).await
    }

    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError> {
        match self.early(record_id) {
            Some(early) => Ok(Some(early)),
            None => self.honest.effect(record_id).await,
        }
    }

    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError> {
        let found = self.honest.effect_of_call(call_id).await?;
        Ok(found.map(|record| self.early(record.record_id).unwrap_or(record)))
    }

    async fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        let mut found = self.honest.approval(approval_id).await?;
        if let Some(approval) = &mut found
            && approval.state == ApprovalState::Approved
            && lacks(Guard::AgreedNotTakenUp)
        {
            approval.state = ApprovalState::Pending;
        }
        Ok(found)
    }

    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError> {
        self.honest.approval_of_call(call_id).await
    }

    async fn policy(&self) -> Result<Option<PolicyState>, StoreError> {
        self.honest.policy().await
    }

    fn space_is_low(&self) -> bool {
        self.honest.space_is_low()
    }

    fn is_shared(&self) -> bool {
        self.honest.is_shared()
    }

    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError> {
        self.honest.fence_dead().await
    }

    async fn leads(&self) -> Result<bool, StoreError> {
        self.honest.leads().await
    }

    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError> {
        self.honest.run(key).await
    }

    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError> {
        let of_early = |early: &Early| {
            let mut content = early.content.iter();
            let found = content.find(|(of, bytes)| of == tenant && Digest::of(bytes) == digest)?;
            Some(found.1.clone())
        };
        let early = self.early.lock().values().find_map(of_early);
        match early {
            Some(bytes) => Ok(bytes),
            None => self.honest.content(tenant, digest).await,
        }
    }

    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError> {
        self.honest.effects(query).await
    }

    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError> {
        self.honest.approvals(query).await
    }

    async fn approval_marks(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalMark>, StoreError> {
        self.honest.approval_marks(query).await
    }

    async fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Directive>, StoreError> {
        self.honest.directive(directive_id).await
    }

    async fn directives(&self, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError> {
        self.honest.directives(query).await
    }

    async fn outbox(&self) -> Result<Outbox, StoreError> {
        self.honest.outbox().await
    }

    async fn restriction_version(&self) -> Result<u64, StoreError> {
        self.honest.restriction_version().await
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.honest.close().await
    }
}
