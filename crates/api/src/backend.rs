//! What the listeners ask of the engine, as a trait, so that the listeners can be tested on answers that are hard to provoke.
//!
//! Owns the list of verbs; the engine ([`engine`]) is the one implementation outside of tests. Adds nothing to them.

use std::{future::Future, time::Duration};

use placet_approvals::views::{
    ApprovalDetail, ApprovalView, BulkDecisionRequest, BulkDecisionView, DecisionRequest, DeskAct,
    DeskEntryView, DeskEvent, DeskRequest, EditRequest, EntriesPage, EntriesQuery, FreezeView,
    InboxQuery, InboxView, TimelineView, WithdrawalRequest,
};
use placet_engine::{
    answer::Answer,
    attempts::Attempt,
    engine::evidence::{AuditKeyView, CheckpointView, ConsistencyView, InclusionView, ReceiptView},
    report::{ReportRange, ReportView},
    submission::{Inbound, Submission},
    views::{
        CredentialsView, Readiness, RearmRequest, RecordView, ResolutionRequest, ToolView,
        decisions::{DecisionView, DecisionsPage, DecisionsQuery},
        status::{ReloadRequest, ReloadView, StatusView},
    },
};
use placet_identity::VerifiedToken;
use placet_types::{
    error::Refusal,
    ids::{ApprovalId, DecisionId, DeskId, RecordId, ToolCallId},
    principal::Principal,
};

use crate::request::Credentials;

mod engine;

/// One page of a list: which state, after which entry, how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page<I> {
    pub(crate) state: Option<String>,
    pub(crate) after: Option<I>,
    pub(crate) limit: usize,
}

/// What is behind the listeners.
pub(crate) trait Backend: Clone + Send + Sync + 'static {
    /// A verified caller.
    type Caller: Clone + Send + Sync + 'static;
    /// A view on one call.
    type Ticket: Follow;
    /// What happens in the approval service, as one caller may see it.
    type Feed: Feed;

    fn authenticate(
        &self,
        credentials: Credentials<'_>,
    ) -> impl Future<Output = Result<Self::Caller, Refusal>> + Send;

    /// Takes note of what a verified caller tried and was refused before there was a call.
    fn attempted(&self, caller: &Self::Caller, attempt: Attempt);

    /// The caller that somebody is who signed in to the console.
    fn signed_in(&self, token: VerifiedToken) -> Result<Self::Caller, Refusal>;

    /// How long what a caller proved who they are with still counts.
    fn expires_in(&self, caller: &Self::Caller) -> Duration;

    /// Who a caller is.
    fn principal(&self, caller: &Self::Caller) -> Principal;

    fn submit(
        &self,
        caller: Self::Caller,
        submission: Submission,
        inbound: Inbound,
    ) -> Result<Self::Ticket, Refusal>;

    fn call(
        &self,
        caller: &Self::Caller,
        id: &ToolCallId,
    ) -> impl Future<Output = Result<Answer, Refusal>> + Send;

    fn follow(
        &self,
        caller: &Self::Caller,
        id: &ToolCallId,
    ) -> impl Future<Output = Result<Self::Ticket, Refusal>> + Send;

    fn tools(&self, caller: &Self::Caller) -> Vec<ToolView>;

    /// The freezes and lockdowns of the caller's tenant that are in force.
    fn freezes(&self, caller: &Self::Caller) -> Vec<FreezeView>;

    fn approvals(
        &self,
        caller: &Self::Caller,
        page: &Page<ApprovalId>,
    ) -> impl Future<Output = Result<Vec<ApprovalView>, Refusal>> + Send;

    fn approval(
        &self,
        caller: &Self::Caller,
        id: &ApprovalId,
    ) -> impl Future<Output = Result<ApprovalDetail, Refusal>> + Send;

    fn decide(
        &self,
        caller: &Self::Caller,
        id: &ApprovalId,
        request: DecisionRequest,
    ) -> impl Future<Output = Result<ApprovalView, Refusal>> + Send;

    fn inbox(
        &self,
        caller: &Self::Caller,
        query: InboxQuery,
    ) -> impl Future<Output = Result<InboxView, Refusal>> + Send;

    fn edit(
        &self,
        caller: &Self::Caller,
        id: &ApprovalId,
        request: EditRequest,
    ) -> impl Future<Output = Result<ApprovalView, Refusal>> + Send;

    fn withdraw(
        &self,
        caller: &Self::Caller,
        id: &ApprovalId,
        request: WithdrawalRequest,
    ) -> impl Future<Output = Result<ApprovalView, Refusal>> + Send;

    fn decide_together(
        &self,
        caller: &Self::Caller,
        request: BulkDecisionRequest,
    ) -> impl Future<Output = Result<BulkDecisionView, Refusal>> + Send;

    fn desk_entries(
        &self,
        caller: &Self::Caller,
        query: &EntriesQuery,
    ) -> impl Future<Output = Result<EntriesPage, Refusal>> + Send;

    fn desk_entry(
        &self,
        caller: &Self::Caller,
        id: &DeskId,
    ) -> impl Future<Output = Result<DeskEntryView, Refusal>> + Send;

    fn arrange(
        &self,
        caller: &Self::Caller,
        request: DeskRequest,
    ) -> impl Future<Output = Result<DeskEntryView, Refusal>> + Send;

    fn act(
        &self,
        caller: &Self::Caller,
        id: &DeskId,
        act: DeskAct,
    ) -> impl Future<Output = Result<DeskEntryView, Refusal>> + Send;

    fn timeline(
        &self,
        caller: &Self::Caller,
        id: &ToolCallId,
    ) -> impl Future<Output = Result<TimelineView, Refusal>> + Send;

    fn desk_events(&self, caller: &Self::Caller) -> Self::Feed;

    fn record(
        &self,
        caller: &Self::Caller,
        id: RecordId,
    ) -> impl Future<Output = Result<RecordView, Refusal>> + Send;

    fn credentials(&self, caller: &Self::Caller) -> Result<CredentialsView, Refusal>;

    fn decisions(
        &self,
        caller: &Self::Caller,
        query: DecisionsQuery,
    ) -> impl Future<Output = Result<DecisionsPage, Refusal>> + Send;

    fn decision(
        &self,
        caller: &Self::Caller,
        id: &DecisionId,
    ) -> impl Future<Output = Result<DecisionView, Refusal>> + Send;

    fn report(
        &self,
        caller: &Self::Caller,
        range: ReportRange,
    ) -> impl Future<Output = Result<ReportView, Refusal>> + Send;

    /// Whether what the caller was verified by has been revoked since.
    fn is_revoked(&self, caller: &Self::Caller) -> bool;

    /// Resolves when that is revoked, with what the caller is told then.
    fn revoked(
        &self,
        caller: &Self::Caller,
    ) -> impl Future<Output = Refusal> + Send + 'static + use<Self>;

    fn records(
        &self,
        caller: &Self::Caller,
        page: &Page<RecordId>,
    ) -> impl Future<Output = Result<Vec<RecordView>, Refusal>> + Send;

    fn resolve(
        &self,
        caller: &Self::Caller,
        id: RecordId,
        request: ResolutionRequest,
    ) -> impl Future<Output = Result<RecordView, Refusal>> + Send;

    fn rearm(
        &self,
        caller: &Self::Caller,
        id: RecordId,
        request: RearmRequest,
    ) -> impl Future<Output = Result<RecordView, Refusal>> + Send;

    fn receipt(
        &self,
        caller: &Self::Caller,
        id: &ToolCallId,
    ) -> impl Future<Output = Result<ReceiptView, Refusal>> + Send;

    fn checkpoints(
        &self,
        caller: &Self::Caller,
    ) -> impl Future<Output = Result<Vec<CheckpointView>, Refusal>> + Send;

    fn audit_key(&self, caller: &Self::Caller) -> Result<AuditKeyView, Refusal>;

    /// An entry, and the size of the tree; without one, that of the newest checkpoint.
    fn inclusion(
        &self,
        caller: &Self::Caller,
        log: &str,
        seq: u64,
        size: Option<u64>,
    ) -> impl Future<Output = Result<InclusionView, Refusal>> + Send;

    /// The sizes of the earlier and the later tree.
    fn consistency(
        &self,
        caller: &Self::Caller,
        log: &str,
        from: u64,
        to: u64,
    ) -> impl Future<Output = Result<ConsistencyView, Refusal>> + Send;

    fn status(&self) -> StatusView;

    fn reload(
        &self,
        caller: &Self::Caller,
        request: ReloadRequest,
    ) -> impl Future<Output = Result<ReloadView, Refusal>> + Send;

    fn readiness(&self) -> Readiness;

    /// All metrics in the OpenMetrics text format.
    fn metrics_text(&self) -> String;
}

/// A view on one call that can be waited with.
pub(crate) trait Follow: Send + 'static {
    /// How the call stands.
    fn current(&self) -> Answer;

    /// The next answer that differs.
    fn changed(&mut self) -> impl Future<Output = Answer> + Send;

    /// The end of the call, or how it stands once it was held for `wait_ms`.
    fn settled(&mut self, wait_ms: u64) -> impl Future<Output = Answer> + Send;
}

/// What happens in the approval service, one after the other.
pub(crate) trait Feed: Send + 'static {
    /// What happens next. None: some of it was missed, so that everything has to be looked at again.
    fn next(&mut self) -> impl Future<Output = Option<DeskEvent>> + Send;

    /// Whether nothing will come any more.
    fn is_over(&self) -> bool;
}
