//! The trait every store keeps: atomic changes, claims, look-ups.
//!
//! Owns what a store promises. Does not keep anything. Every change goes through [`Store::commit`]: all of it or nothing, durable
//! before it returns as [`Durability`] says, and checked against the revision it was made from (compare and swap).

use std::fmt;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use placet_types::{
    clock::Timestamp,
    digest::Digest,
    directive::{DirectiveBasis, DirectiveKind},
    ids::{ApprovalId, CapabilityId, DirectiveId, RecordId, TenantId, ToolCallId},
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

/// Whether a change begins something new: refused when space runs low, while completions still go through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Admission {
    /// New work.
    #[default]
    New,
    /// The end of work that was accepted before.
    Completion,
}

/// One change of an effect record, as the journal tells it too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum EffectChange {
    /// The record as it shall be; its `rev` is one more than the stored one's (1: none is stored, or only a claim).
    Put(Box<EffectRecord>),
    /// The key returns to absent.
    #[serde(rename = "removed")]
    Remove {
        /// The record.
        record_id: RecordId,
        /// The stored revision.
        rev: u64,
    },
    /// A tombstone is dropped: only where the key itself tells its age, so that it is refused as too old from then on.
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
    /// Contents that the records name by digest, with their tenant; durable before the records are.
    pub content: Vec<(TenantId, Vec<u8>)>,
    /// Effect records.
    pub effects: Vec<EffectChange>,
    /// Approval records; each `rev` is one more than the stored one's.
    pub approvals: Vec<ApprovalRecord>,
    /// Entries of the approval service; each `rev` is one more than the stored one's, and each move one that
    /// [`Directive::may_follow`] knows.
    pub directives: Vec<Directive>,
    /// The standing grant that a dispatch uses once more; refused with [`StoreError::GrantSpent`] when it is not in force or used up
    /// at the moment of the commit.
    pub spend: Option<DirectiveId>,
    /// Runs opened; one that exists already is left as it is.
    pub runs: Vec<RunRecord>,
    /// What a dispatch takes from its run's budget and from its meters; refused with [`StoreError::BudgetExhausted`] or
    /// [`StoreError::WindowExhausted`] when one has too little.
    pub reserve: Option<Reservation>,
    /// What goes back to a run's budget, because nothing happened. Meters get nothing back.
    pub refund: Option<Reservation>,
    /// What comes into a run's context. A run that is not open takes nothing.
    pub taint: Option<RunTaint>,
    /// The policy epoch that the permit was given in; refused with [`StoreError::PolicyMoved`] in another one (decision 26).
    pub expect_policy: Option<u64>,
    /// What the permit knew of the approval service; refused with [`StoreError::DirectiveMoved`] where that has become stricter since, or does by its
    /// time before the commit.
    pub expect_directives: Option<DirectiveBasis>,
    /// Policies that become the active ones; refused with [`StoreError::Conflict`] unless their epoch is the next one, or they are
    /// active already.
    pub activate: Option<PolicyState>,
    /// The epoch whose policies those of `activate` may take the place of, though they were replaced before; where records are shared
    /// they are refused with [`StoreError::PoliciesReplaced`] otherwise.
    pub rolls_back: Option<u64>,
    /// Contents that are deleted, their retention over; the entries that name them stay.
    pub forget_content: Vec<(TenantId, Digest)>,
    /// Approvals that are dropped, their retention over, with the stored revision: only those that
    /// [`ApprovalRecord::may_be_forgotten`].
    pub forget_approvals: Vec<(ApprovalId, u64)>,
    /// Entries of the approval service that are dropped, with the stored revision: only those that nothing may become of any more.
    pub forget_directive: Vec<(DirectiveId, u64)>,
    /// What changes of the messages that people are to be sent.
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
    #[must_use]
    pub fn new(durability: Durability, admission: Admission) -> Self {
        Self { durability, admission, ..Self::default() }
    }

    /// The end of work that was accepted before, kept durably, with the event that tells of it.
    pub(crate) fn completing(event: AuditEvent) -> Self {
        let audit = vec![event];
        Self { audit, admission: Admission::Completion, ..Self::default() }
    }

    /// Has the record as it has moved kept with them.
    pub(crate) fn put(&mut self, record: &EffectRecord) {
        self.effects.push(EffectChange::Put(Box::new(record.clone())));
    }
}

/// A change that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Its place in the journal.
    pub seq: u64,
    /// When.
    pub at: Timestamp,
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClaimAnswer {
    /// The key is this caller's now.
    Claimed,
    /// The key is taken; this is how it stands. A claim that is not durable yet shows as `Claimed`.
    Taken(Box<EffectRecord>),
}

/// Which effects to list.
#[derive(Debug, Clone, Default)]
pub struct EffectQuery {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those in a state of this name.
    pub state: Option<String>,
    /// Only open ones: what recovery looks at.
    pub open_only: bool,
    /// Only dispatched ones whose duty lies with an epoch that is over: what a survivor takes over (T7).
    pub orphaned: bool,
    /// Only those that came to their end ([`crate::record::EffectState::is_settled`]) or are tombstones, and last moved before this:
    /// what retention looks at.
    pub settled_before: Option<Timestamp>,
    /// After this record, in the store's order.
    pub after: Option<RecordId>,
    /// At most this many; 0 means none.
    pub limit: usize,
}

/// Which approvals to list.
#[derive(Debug, Clone, Default)]
pub struct ApprovalQuery {
    /// Only this tenant's.
    pub tenant: Option<TenantId>,
    /// Only those of other tenants that ask a group of this one; quick without a tenant.
    pub external: Option<TenantId>,
    /// Only those in a state of this name.
    pub state: Option<String>,
    /// Only those that people are not asked about any more; quick together with a tenant and an operation, and not as an external approver.
    pub decided: bool,
    /// Only those of this operation; quick together with a tenant.
    pub capability: Option<CapabilityId>,
    /// The newest ones first, instead of the oldest.
    pub newest_first: bool,
    /// After this approval, in the order asked for.
    pub after: Option<ApprovalId>,
    /// At most this many; 0 means none.
    pub limit: usize,
}

impl ApprovalQuery {
    /// Whether it asks for this approval; its place and its count are the store's.
    #[must_use]
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

/// An approval in short: enough to tell whether it has moved.
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
    /// Only those of which something may still become at this time ([`Directive::is_open`]).
    pub open_at: Option<Timestamp>,
    /// Only those that were made before this time; quick together with `newest_first`.
    pub made_before: Option<Timestamp>,
    /// The newest ones first, instead of the oldest.
    pub newest_first: bool,
    /// After this entry, in the order asked for.
    pub after: Option<DirectiveId>,
    /// At most this many; 0 means none.
    pub limit: usize,
}

impl DirectiveQuery {
    /// Whether it asks for this entry; its place and its count are the store's.
    #[must_use]
    pub fn wants(&self, entry: &Directive) -> bool {
        self.tenant.as_ref().is_none_or(|tenant| entry.tenant == *tenant)
            && self.kind.is_none_or(|kind| entry.kind() == kind)
            && self.open_at.is_none_or(|at| entry.is_open(at))
            && self.made_before.is_none_or(|at| entry.created_at < at)
    }
}

/// Why a store did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The record has moved since it was read.
    #[error("the record has moved since it was read")]
    Conflict,
    /// A move that the machine does not know.
    #[error(transparent)]
    Illegal(#[from] crate::record::IllegalMove),
    /// Other policies are active than those the permit was given under.
    #[error("the policies have changed since the decision")]
    PolicyMoved,
    /// What is in force in the approval service is stricter than what the permit was given under.
    #[error("freezes, grants or revocations have changed since the decision")]
    DirectiveMoved,
    /// The policies to be activated were active before, and a later activation replaced them.
    #[error("{0}")]
    PoliciesReplaced(Box<ReplacedPolicies>),
    /// Another node has taken this one's work over, because it was silent for too long (I8).
    #[error("this node was silent for too long, and another one took its work over")]
    Fenced,
    /// The store cannot be reached for the moment; nothing is known to be changed.
    #[error("the store cannot be reached: {0}")]
    Unreachable(String),
    /// What binds every node has to wait for each of them, and somebody holds the place of one for too long; nothing is changed.
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
    /// Content is not there.
    #[error("content `{0}` is missing")]
    ContentMissing(Digest),
    /// Content on disk is not what its digest says.
    #[error("content `{0}` was altered")]
    ContentAltered(Digest),
    /// Space runs low; nothing new is accepted.
    #[error("too little free space for new work")]
    NoSpace,
    /// More than the store keeps in one piece.
    #[error("too large to be kept: {0}")]
    TooLarge(String),
    /// The store has failed and stopped. What was asked of it was not done.
    #[error("the store is stopped: {0}")]
    Stopped(String),
    /// The store failed while it kept the changes: whether they are kept is found out by a restart, or by the node that takes over.
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
    /// Whether the same may be kept, or read, in a moment, and was not yet: the store is away, or full.
    #[must_use]
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::LockTimeout(_) | Self::NoSpace)
    }
}

/// Keeps records, runs, approvals, contents and the audit chain. Every method that can fail answers [`StoreError`] when the store cannot
/// tell.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug {
    /// The time that two nodes compare: never before the last entry.
    fn now(&self) -> Timestamp;
    /// How long ago `at` was, in milliseconds; `None` where the clock has gone back since and nobody can know. Anyone who may only act
    /// within a window must not act then.
    fn age_ms(&self, at: Timestamp) -> Option<i64> {
        Some(self.now().since_ms(at))
    }
    /// This process's epoch; writes of an older one are refused (I8).
    fn epoch(&self) -> u64;
    /// Takes a key in memory; what is taken rides with the next commit of the record.
    async fn claim(&self, record: EffectRecord) -> Result<ClaimAnswer, StoreError>;
    /// Gives a claim back that never became durable.
    async fn release(&self, record_id: RecordId);
    /// Keeps `changes`, all or none.
    ///
    /// # Errors
    /// [`StoreError`]; nothing is changed then, except after [`StoreError::Uncertain`], when a restart finds out.
    async fn commit(&self, changes: Changes) -> Result<Committed, StoreError>;
    /// Keeps events that nobody waits for: the operating system has them within 50 ms, the disk soon after. A killed process may lose them.
    ///
    /// # Errors
    /// [`StoreError`] when the store can keep nothing any more.
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
    /// The approval that a call waits or waited for, also when its record is gone.
    async fn approval_of_call(
        &self,
        call_id: &ToolCallId,
    ) -> Result<Option<ApprovalRecord>, StoreError>;
    /// The policies that are active in the ledger.
    async fn policy(&self) -> Result<Option<PolicyState>, StoreError>;
    /// Whether so little space is left that [`Admission::New`] is refused, as far as this process can tell.
    fn space_is_low(&self) -> bool {
        false
    }
    /// Whether other nodes keep records here too, so that a record may move without this process.
    fn is_shared(&self) -> bool;
    /// Fences nodes that were silent for longer than their lease; answers their epochs. None where nothing is shared.
    async fn fence_dead(&self) -> Result<Vec<u64>, StoreError>;
    /// Whether this process does what only one of those that keep records here should do: of several the one that started first.
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
    /// Effect records, in a stable order.
    async fn effects(&self, query: &EffectQuery) -> Result<Vec<EffectRecord>, StoreError>;
    /// Approvals, in the order of their age.
    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<ApprovalRecord>, StoreError>;
    /// The same list in short, for those who only look for what has moved.
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
    /// The messages that people are to be sent, and how far the log was read for them; without changes of the last moment that were only
    /// [`Durability::Written`].
    async fn outbox(&self) -> Result<Outbox, StoreError>;
    /// How often what is in force has become stricter ([`Directive::is_restrictive`]) in entries that can be read by now: anyone who reads the
    /// entries afterwards has read all of that.
    async fn restriction_version(&self) -> Result<u64, StoreError>;
    /// Syncs and closes; later changes are refused.
    ///
    /// # Errors
    /// [`StoreError`] when the last sync fails.
    async fn close(&self) -> Result<(), StoreError>;
}
