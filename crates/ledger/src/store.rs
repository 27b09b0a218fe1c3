//! The trait that every store implements: atomic changes, claims, look-ups.
//!
//! Owns what a store promises. Stores nothing. Every change goes through [`Store::commit`]: all of it or nothing, as durable before it
//! returns as [`Durability`] says, and checked against the revision it was made from (compare and swap).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use placet_types::{
    clock::Timestamp,
    digest::Digest,
    directive::{DirectiveBasis, DirectiveKind},
    ids::{ApprovalId, CapabilityId, DirectiveId, RecordId, RecordPlace, TenantId, ToolCallId},
};

use crate::{
    approval::{ApprovalRecord, ApprovalState},
    audit::AuditEvent,
    directive::Directive,
    meter::WindowExhausted,
    outbox::{Outbox, OutboxChange},
    policies::{PolicyState, ReplacedPolicies},
    record::EffectRecord,
    reservation::Reservation,
    run::{RunKey, RunRecord, RunTaint},
};

/// How durable a change is before `commit` returns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Durability {
    /// Synced to the device: survives a power cut.
    #[default]
    Synced,
    /// Given to the operating system: survives the death of the process; synced within 50 ms.
    Written,
}

/// Whether a change begins something new: that is refused when space runs low, while completions still go through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Admission {
    /// New work.
    #[default]
    New,
    /// The end of work that was accepted before.
    Completion,
}

/// One change of an effect record, as the journal records it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EffectChange {
    /// The new version of the record; its `rev` is one more than the stored one's (1: none is stored, or only a claim).
    Put(Box<EffectRecord>),
    /// The key is released.
    #[serde(rename = "removed")]
    Remove {
        /// The record.
        record_id: RecordId,
        /// The stored revision.
        rev: u64,
    },
    /// A tombstone is dropped: only if the key itself tells its age, so that it is refused as too old from then on.
    #[serde(rename = "forgotten")]
    Forget {
        /// The record.
        record_id: RecordId,
        /// The stored revision.
        rev: u64,
    },
}

/// Changes that happen together or not at all.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Contents that the records refer to by digest, with their tenant; durable before the records are.
    pub content: Vec<(TenantId, Vec<u8>)>,
    /// Effect records.
    pub effects: Vec<EffectChange>,
    /// Approval records; each `rev` is one more than the stored one's.
    pub approvals: Vec<ApprovalRecord>,
    /// Entries of the approval service; each `rev` is one more than the stored one's, and each move is legal by [`Directive::may_follow`].
    pub directives: Vec<Directive>,
    /// The standing grant that a dispatch uses once more; refused with [`StoreError::GrantSpent`] when it is not in force or used up at the
    /// time of the commit.
    pub spend: Option<DirectiveId>,
    /// Runs opened; an existing one is left as it is.
    pub runs: Vec<RunRecord>,
    /// What a dispatch takes from its run's budget and from its meters; refused with [`StoreError::BudgetExhausted`] or
    /// [`StoreError::WindowExhausted`] when one has too little.
    pub reserve: Option<Reservation>,
    /// What is returned to a run's budget, because nothing happened. Nothing is returned to meters.
    pub refund: Option<Reservation>,
    /// Taint that enters runs' contexts. A run that is not open takes none.
    pub taint: Vec<RunTaint>,
    /// The policy epoch of the permit; refused with [`StoreError::PolicyMoved`] in another one (decision 26).
    pub expect_policy: Option<u64>,
    /// The directives that the permit was decided under; refused with [`StoreError::DirectiveMoved`] if they have become stricter since, or
    /// do so by time before the commit.
    pub expect_directives: Option<DirectiveBasis>,
    /// Policies to activate; refused with [`StoreError::Conflict`] unless their epoch is the next one, or they are already active.
    pub activate: Option<PolicyState>,
    /// The epoch whose policies those of `activate` may replace although they were themselves replaced before; without it, where records
    /// are shared, they are refused with [`StoreError::PoliciesReplaced`].
    pub rolls_back: Option<u64>,
    /// Contents to delete after their retention; the entries that refer to them stay.
    pub forget_content: Vec<(TenantId, Digest)>,
    /// Approvals to drop after their retention, with the stored revision: only those that [`ApprovalRecord::may_be_forgotten`].
    pub forget_approvals: Vec<(ApprovalId, u64)>,
    /// Entries of the approval service to drop, with the stored revision: only those that have ended for good.
    pub forget_directive: Vec<(DirectiveId, u64)>,
    /// Changes of the messages to people.
    pub outbox: Option<Box<OutboxChange>>,
    /// Events for the audit chain.
    pub audit: Vec<AuditEvent>,
    /// How durable.
    pub durability: Durability,
    /// Whether it begins something new.
    pub admission: Admission,
}

impl Changes {
    /// No changes yet.
    pub fn new(durability: Durability, admission: Admission) -> Self {
        Self { durability, admission, ..Self::default() }
    }

    /// The durable end of work that was accepted before, with its event.
    pub(crate) fn completing(event: AuditEvent) -> Self {
        let audit = vec![event];
        Self { audit, admission: Admission::Completion, ..Self::default() }
    }

    /// Adds the record after its move.
    pub(crate) fn put(&mut self, record: &EffectRecord) {
        self.effects.push(EffectChange::Put(Box::new(record.clone())));
    }
}

/// A change that was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the journal.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
}

/// The result of a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The caller has the key.
    Claimed,
    /// The key is taken; its record. A claim that is not durable yet shows as `Claimed`.
    Taken(Box<EffectRecord>),
}

/// Which effects to list.
#[derive(Debug, Clone, Default)]
pub struct EffectQuery {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those in a state of this name.
    pub state: Option<String>,
    /// Only open ones: those that recovery handles.
    pub open_only: bool,
    /// Only dispatched ones that an ended epoch has to settle: those that a survivor takes over (T7).
    pub orphaned: bool,
    /// Only those that are settled ([`crate::record::EffectState::is_settled`]) or tombstones, and last moved before this: those that
    /// retention handles.
    pub settled_before: Option<Timestamp>,
    /// After this place.
    pub after: Option<RecordPlace>,
    /// At most this many; 0 means none.
    pub limit: usize,
}

/// Which approvals to list.
#[derive(Debug, Clone, Default)]
pub struct ApprovalQuery {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those of external tenants that ask a group of this one; fast without a tenant.
    pub external: Option<TenantId>,
    /// Only those in a state of this name.
    pub state: Option<String>,
    /// Only those that are no longer pending; fast together with a tenant and an operation, and not as an external approver.
    pub decided: bool,
    /// Only those of this operation; fast together with a tenant.
    pub capability: Option<CapabilityId>,
    /// The newest ones first, instead of the oldest.
    pub newest_first: bool,
    /// After this approval, in the order asked for.
    pub after: Option<ApprovalId>,
    /// At most this many; 0 means none.
    pub limit: usize,
}

impl ApprovalQuery {
    /// Whether it matches this approval; the store applies position and limit.
    pub fn wants(&self, approval: &ApprovalRecord) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| approval.chain.tenant() == tenant)
            && self
                .external
                .as_ref()
                .is_none_or(|external| approval.external_tenants.contains(external))
            && self.state.as_ref().is_none_or(|state| approval.state.name() == state)
            && (!self.decided || approval.state != ApprovalState::Pending)
            && self.capability.as_ref().is_none_or(|wanted| approval.capability == *wanted)
    }
}

/// An approval in brief: enough to tell whether it has moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApprovalMark {
    /// Which.
    pub approval_id: ApprovalId,
    /// How often it has moved.
    pub rev: u64,
}

/// Which entries of the approval service to list.
#[derive(Debug, Clone, Default)]
pub struct DirectiveQuery {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those of this kind.
    pub kind: Option<DirectiveKind>,
    /// Only those that are open at this time ([`Directive::is_open`]).
    pub open_at: Option<Timestamp>,
    /// Only those that were made before this time; fast together with `newest_first`.
    pub made_before: Option<Timestamp>,
    /// The newest ones first, instead of the oldest.
    pub newest_first: bool,
    /// After this entry, in the order asked for.
    pub after: Option<DirectiveId>,
    /// At most this many; 0 means none.
    pub limit: usize,
}

impl DirectiveQuery {
    /// Whether it matches this entry; the store applies position and limit.
    pub fn wants(&self, entry: &Directive) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| entry.tenant == *tenant)
            && self.kind.is_none_or(|kind| entry.kind() == kind)
            && self.open_at.is_none_or(|at| entry.is_open(at))
            && self.made_before.is_none_or(|at| entry.created_at < at)
    }
}

/// Why a store failed or refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record has moved since it was read.
    #[error("the record has moved since it was read")]
    Conflict,
    /// A move that is not legal.
    #[error(transparent)]
    Illegal(#[from] crate::record::IllegalMove),
    /// Other policies are active than those of the permit.
    #[error("the policies have changed since the decision")]
    PolicyMoved,
    /// The directives in force are stricter than those of the permit.
    #[error("freezes, grants or revocations have changed since the decision")]
    DirectiveMoved,
    /// The policies to be activated were active before, and a later activation replaced them.
    #[error("{0}")]
    PoliciesReplaced(Box<ReplacedPolicies>),
    /// Another node has taken over this one's work, because it was silent for too long (I8).
    #[error("this node was silent for too long, and another one took its work over")]
    Fenced,
    /// The store cannot be reached now; no change is known to have happened.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// A change that binds every node has to wait for each of them, and a row it needs was locked for too long; nothing is changed.
    #[error(
        "what binds every node could not be written, because somebody holds a row that it has to change: {0}"
    )]
    LockTimeout(String),
    /// The run has too little left.
    #[error("the run's budget is used up")]
    BudgetExhausted,
    /// The agent, or the capability, has too little left in a window of time (TM-18).
    #[error(transparent)]
    WindowExhausted(#[from] WindowExhausted),
    /// The standing grant is not in force, or used up.
    #[error("the standing grant is not in force any more, or used up")]
    GrantSpent,
    /// Content is missing.
    #[error("content `{0}` is missing")]
    ContentMissing(Digest),
    /// Content on disk is not what its digest says.
    #[error("content `{0}` was altered")]
    ContentAltered(Digest),
    /// Space runs low; nothing new is accepted.
    #[error("too little free space for new work")]
    NoSpace,
    /// More than the store accepts in one piece.
    #[error("too large to be kept: {0}")]
    TooLarge(String),
    /// The store has failed and stopped. The operation was not done.
    #[error("the store is stopped: {0}")]
    Stopped(String),
    /// The store failed during the commit: a restart, or the node that takes over, finds out whether it is recorded.
    #[error(
        "the store stopped while it kept this, and a restart finds out whether it is kept: {0}"
    )]
    Uncertain(String),
    /// What is stored cannot be read.
    #[error("the store is damaged: {0}")]
    Damaged(String),
}

impl From<Box<ReplacedPolicies>> for StoreError {
    fn from(replaced: Box<ReplacedPolicies>) -> Self {
        Self::PoliciesReplaced(replaced)
    }
}

impl StoreError {
    /// Whether the same may succeed in a moment, and has not been done yet: the store is unreachable, or full.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::LockTimeout(_) | Self::NoSpace)
    }
}

/// Stores records, runs, approvals, contents and the audit chain. Every fallible method returns [`StoreError`] when the store cannot tell.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// The time that nodes compare: never before the last entry.
    fn now(&self) -> Timestamp;
    /// How long ago `at` was, in milliseconds; `None` if the clock has gone back since, so that this is unknown. What may happen only
    /// within a window must not happen then.
    fn age_ms(&self, at: Timestamp) -> Option<i64> {
        Some(self.now().since_ms(at))
    }
    /// This process's epoch; writes of an older one are refused (I8).
    fn epoch(&self) -> u64;
    /// Claims a key in memory; the claim is recorded with the next commit of the record.
    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError>;
    /// Releases a claim that never became durable.
    async fn release(&self, record_id: RecordId);
    /// Commits `changes`, all or none.
    ///
    /// # Errors
    /// [`StoreError`]; then nothing is changed, except after [`StoreError::Uncertain`], when a restart finds out.
    async fn commit(&self, changes: Changes) -> Result<Committed, StoreError>;
    /// Records events that no caller waits for: with the operating system within 50 ms, on disk soon after. A killed process may lose them.
    ///
    /// # Errors
    /// [`StoreError`] when the store can record nothing any more.
    async fn commit_later(&self, changes: Changes) -> Result<(), StoreError> {
        self.commit(changes).await.map(drop)
    }
    /// The durable record, or the claim, of an id.
    async fn effect(&self, record_id: RecordId) -> Result<Option<EffectRecord>, StoreError>;
    /// The record that a call made.
    async fn effect_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<EffectRecord>, StoreError>;
    /// An approval.
    async fn approval(
        &self,
        approval_id: &ApprovalId,
    ) -> Result<Option<ApprovalRecord>, StoreError>;
    /// The approval that a call waits or waited for, even if its record is gone.
    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError>;
    /// The active policies in the ledger.
    async fn policy(&self) -> Result<Option<PolicyState>, StoreError>;
    /// Whether so little space is left that [`Admission::New`] is refused, as far as this process knows.
    fn space_is_low(&self) -> bool {
        false
    }
    /// Whether this node's lease has expired unrenewed: it may be able to read, but another node may take its work over. Never where nothing
    /// is shared.
    fn lease_has_expired(&self) -> bool {
        false
    }
    /// Whether other nodes share the records, so that a record may move without this process.
    fn is_shared(&self) -> bool;
    /// Fences nodes that were silent for longer than their lease; returns their epochs. None where nothing is shared.
    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError>;
    /// Whether this process does what only one node of a shared store should do: the one that started first.
    async fn leads(&self) -> Result<bool, StoreError> {
        Ok(true)
    }
    /// A run.
    async fn run(&self, key: &RunKey) -> Result<Option<RunRecord>, StoreError>;
    /// Content by its digest, checked against it.
    ///
    /// # Errors
    /// [`StoreError::ContentMissing`] or [`StoreError::ContentAltered`].
    async fn content(&self, tenant: &TenantId, digest: Digest) -> Result<Vec<u8>, StoreError>;
    /// Effect records, in the order of their places.
    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError>;
    /// Approvals, in the order of their age.
    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError>;
    /// The same list in brief, to look for what has moved.
    async fn approval_marks(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalMark>, StoreError> {
        let approvals = self.approvals(query).await?.into_iter();
        Ok(approvals
            .map(|ApprovalRecord { approval_id, rev, .. }| ApprovalMark { approval_id, rev })
            .collect())
    }
    /// An entry of the approval service.
    async fn directive(&self, directive_id: &DirectiveId) -> Result<Option<Directive>, StoreError>;
    /// Entries of the approval service, in the order of their age.
    async fn directives(&self, query: &DirectiveQuery) -> Result<Vec<Directive>, StoreError>;
    /// The messages to people, and how far the log was read for them; without the latest changes that were only [`Durability::Written`].
    async fn outbox(&self) -> Result<Outbox, StoreError>;
    /// How often directives have become stricter ([`Directive::is_restrictive`]) in entries that can be read by now: entries read
    /// afterwards include all of that.
    async fn restriction_version(&self) -> Result<u64, StoreError>;
    /// Syncs and closes; later changes are refused.
    ///
    /// # Errors
    /// [`StoreError`] when the last sync fails.
    async fn close(&self) -> Result<(), StoreError>;
}
