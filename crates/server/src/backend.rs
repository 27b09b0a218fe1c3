//! What the doors ask of the engine, as a trait, so that the doors can be tested on answers that are hard to provoke.
//!
//! Owns the list of verbs; [`Engine`] is the one implementation outside of tests. Adds nothing to them.

use std::future::Future;

use placet_identity::VerifiedCaller;
use placet_pipeline::{
    answer::Answer,
    engine::{
        Engine,
        evidence::{AuditKeyView, CheckpointView, ConsistencyView, InclusionView, ReceiptView},
    },
    submission::{Inbound, Submission},
    ticket::Ticket,
    views::{
        ApprovalDetail, ApprovalView, DecisionRequest, Readiness, RearmRequest, RecordView,
        ResolutionRequest, ToolView,
    },
};
use placet_types::{
    error::Refusal,
    ids::{ApprovalId, RecordId, ToolCallId},
};

use crate::request::Credentials;

/// One page of a list: which state, after which entry, how many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page<I> {
    pub(crate) state: Option<String>,
    pub(crate) after: Option<I>,
    pub(crate) limit: usize,
}

/// What is behind the doors.
pub(crate) trait Backend: Clone + Send + Sync + 'static {
    /// A verified caller.
    type Caller: Clone + Send + Sync + 'static;
    /// A view on one call.
    type Ticket: Follow;

    fn authenticate(
        &self,
        credentials: Credentials<'_>,
    ) -> impl Future<Output = Result<Self::Caller, Refusal>> + Send;

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

    fn record(
        &self,
        caller: &Self::Caller,
        id: RecordId,
    ) -> impl Future<Output = Result<RecordView, Refusal>> + Send;

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
        place: (u64, Option<u64>),
    ) -> impl Future<Output = Result<InclusionView, Refusal>> + Send;

    /// The sizes of the earlier and the later tree.
    fn consistency(
        &self,
        caller: &Self::Caller,
        log: &str,
        sizes: (u64, u64),
    ) -> impl Future<Output = Result<ConsistencyView, Refusal>> + Send;

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

impl Backend for Engine {
    type Caller = VerifiedCaller;
    type Ticket = Ticket;

    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<VerifiedCaller, Refusal> {
        Self::authenticate(self, credentials.authorization, credentials.delegation).await
    }

    fn submit(
        &self,
        caller: VerifiedCaller,
        submission: Submission,
        inbound: Inbound,
    ) -> Result<Ticket, Refusal> {
        Self::submit(self, caller, submission, inbound)
    }

    async fn call(&self, caller: &VerifiedCaller, id: &ToolCallId) -> Result<Answer, Refusal> {
        Self::call(self, caller, id).await
    }

    async fn follow(&self, caller: &VerifiedCaller, id: &ToolCallId) -> Result<Ticket, Refusal> {
        Self::follow(self, caller, id).await
    }

    fn tools(&self, caller: &VerifiedCaller) -> Vec<ToolView> {
        Self::tools(self, caller)
    }

    async fn approvals(
        &self,
        caller: &VerifiedCaller,
        page: &Page<ApprovalId>,
    ) -> Result<Vec<ApprovalView>, Refusal> {
        Self::approvals(self, caller, page.state.as_deref(), page.after.as_ref(), page.limit).await
    }

    async fn approval(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
    ) -> Result<ApprovalDetail, Refusal> {
        Self::approval(self, caller, id).await
    }

    async fn decide(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
        request: DecisionRequest,
    ) -> Result<ApprovalView, Refusal> {
        Self::decide(self, caller, id, request).await
    }

    async fn record(&self, caller: &VerifiedCaller, id: RecordId) -> Result<RecordView, Refusal> {
        Self::record(self, caller, id).await
    }

    async fn records(
        &self,
        caller: &VerifiedCaller,
        page: &Page<RecordId>,
    ) -> Result<Vec<RecordView>, Refusal> {
        Self::records(self, caller, page.state.as_deref(), page.after, page.limit).await
    }

    async fn resolve(
        &self,
        caller: &VerifiedCaller,
        id: RecordId,
        request: ResolutionRequest,
    ) -> Result<RecordView, Refusal> {
        Self::resolve(self, caller, id, request).await
    }

    async fn rearm(
        &self,
        caller: &VerifiedCaller,
        id: RecordId,
        request: RearmRequest,
    ) -> Result<RecordView, Refusal> {
        Self::rearm(self, caller, id, request).await
    }

    async fn receipt(
        &self,
        caller: &VerifiedCaller,
        id: &ToolCallId,
    ) -> Result<ReceiptView, Refusal> {
        Self::receipt(self, caller, id).await
    }

    async fn checkpoints(&self, caller: &VerifiedCaller) -> Result<Vec<CheckpointView>, Refusal> {
        Self::checkpoints(self, caller).await
    }

    fn audit_key(&self, caller: &VerifiedCaller) -> Result<AuditKeyView, Refusal> {
        Self::audit_key(self, caller)
    }

    async fn inclusion(
        &self,
        caller: &VerifiedCaller,
        log: &str,
        place: (u64, Option<u64>),
    ) -> Result<InclusionView, Refusal> {
        Self::inclusion(self, caller, log, place).await
    }

    async fn consistency(
        &self,
        caller: &VerifiedCaller,
        log: &str,
        sizes: (u64, u64),
    ) -> Result<ConsistencyView, Refusal> {
        Self::consistency(self, caller, log, sizes).await
    }

    fn readiness(&self) -> Readiness {
        Self::readiness(self)
    }

    fn metrics_text(&self) -> String {
        self.metrics().encode()
    }
}

impl Follow for Ticket {
    fn current(&self) -> Answer {
        Self::current(self)
    }

    async fn changed(&mut self) -> Answer {
        Self::changed(self).await
    }

    async fn settled(&mut self, wait_ms: u64) -> Answer {
        Self::settled(self, wait_ms).await
    }
}
