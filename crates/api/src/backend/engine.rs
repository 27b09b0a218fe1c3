//! The engine behind the listeners.
//!
//! Owns nothing: each verb is the engine's own of the same name.

use std::time::Duration;

use placet_approvals::{
    feed::EventFeed,
    views::{
        ApprovalDetail, ApprovalView, BulkDecisionRequest, BulkDecisionView, DecisionRequest,
        DeskAct, DeskEntryView, DeskEvent, DeskRequest, EditRequest, EntriesPage, EntriesQuery,
        FreezeView, InboxQuery, InboxView, TimelineView, WithdrawalRequest,
    },
};
use placet_engine::{
    answer::Answer,
    attempts::Attempt,
    engine::{
        Engine,
        evidence::{AuditKeyView, CheckpointView, ConsistencyView, InclusionView, ReceiptView},
    },
    report::{ReportRange, ReportView},
    submission::{Inbound, Submission},
    ticket::Ticket,
    views::{
        CredentialsView, Readiness, RearmRequest, RecordView, ResolutionRequest, ToolView,
        decisions::{DecisionView, DecisionsPage, DecisionsQuery},
        status::{ReloadRequest, ReloadView, StatusView},
    },
};
use placet_identity::{VerifiedCaller, VerifiedToken};
use placet_types::{
    error::Refusal,
    ids::{ApprovalId, DecisionId, DeskId, RecordId, ToolCallId},
    principal::Principal,
};

use super::{Backend, Feed, Follow, Page};
use crate::request::Credentials;

impl Backend for Engine {
    type Caller = VerifiedCaller;
    type Ticket = Ticket;
    type Feed = EventFeed;

    async fn authenticate(&self, credentials: Credentials<'_>) -> Result<VerifiedCaller, Refusal> {
        let Credentials { authorization, delegation, certificate, peer } = credentials;
        let verified = Self::authenticate(self, authorization, delegation, certificate).await;
        let has_token = authorization.is_some() || delegation.is_some();
        if let (Err(refusal), Some(peer), true) = (&verified, peer, has_token) {
            self.token_refused(peer, refusal.code);
        }
        verified
    }

    fn attempted(&self, caller: &VerifiedCaller, attempt: Attempt) {
        Self::attempted(self, caller, attempt);
    }

    fn signed_in(&self, token: VerifiedToken) -> Result<VerifiedCaller, Refusal> {
        let caller = VerifiedCaller::bind(token, None).map_err(|error| error.refusal())?;
        self.must_be_active(&caller)?;
        self.saw(&caller);
        Ok(caller)
    }

    fn principal(&self, caller: &VerifiedCaller) -> Principal {
        caller.actor.principal().clone()
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

    fn freezes(&self, caller: &VerifiedCaller) -> Vec<FreezeView> {
        Self::approvals(self).freezes(caller)
    }

    fn tools(&self, caller: &VerifiedCaller) -> Vec<ToolView> {
        Self::tools(self, caller)
    }

    async fn approvals(
        &self,
        caller: &VerifiedCaller,
        page: &Page<ApprovalId>,
    ) -> Result<Vec<ApprovalView>, Refusal> {
        Self::approvals(self)
            .approvals(caller, page.state.as_deref(), page.after.as_ref(), page.limit)
            .await
    }

    async fn approval(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
    ) -> Result<ApprovalDetail, Refusal> {
        Self::approvals(self).approval(caller, id).await
    }

    async fn decide(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
        request: DecisionRequest,
    ) -> Result<ApprovalView, Refusal> {
        Self::approvals(self).decide(caller, id, request).await
    }

    async fn inbox(
        &self,
        caller: &VerifiedCaller,
        query: InboxQuery,
    ) -> Result<InboxView, Refusal> {
        Self::approvals(self).inbox(caller, query).await
    }

    async fn edit(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
        request: EditRequest,
    ) -> Result<ApprovalView, Refusal> {
        Self::approvals(self).edit(caller, id, request).await
    }

    async fn withdraw(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
        request: WithdrawalRequest,
    ) -> Result<ApprovalView, Refusal> {
        Self::approvals(self).withdraw(caller, id, request).await
    }

    async fn decide_together(
        &self,
        caller: &VerifiedCaller,
        request: BulkDecisionRequest,
    ) -> Result<BulkDecisionView, Refusal> {
        Self::approvals(self).decide_bulk(caller, request).await
    }

    async fn desk_entries(
        &self,
        caller: &VerifiedCaller,
        query: &EntriesQuery,
    ) -> Result<EntriesPage, Refusal> {
        Self::approvals(self).entries(caller, query).await
    }

    async fn desk_entry(
        &self,
        caller: &VerifiedCaller,
        id: &DeskId,
    ) -> Result<DeskEntryView, Refusal> {
        Self::approvals(self).entry(caller, id).await
    }

    async fn arrange(
        &self,
        caller: &VerifiedCaller,
        request: DeskRequest,
    ) -> Result<DeskEntryView, Refusal> {
        Self::approvals(self).arrange(caller, request).await
    }

    async fn act(
        &self,
        caller: &VerifiedCaller,
        id: &DeskId,
        act: DeskAct,
    ) -> Result<DeskEntryView, Refusal> {
        Self::approvals(self).act(caller, id, act).await
    }

    async fn timeline(
        &self,
        caller: &VerifiedCaller,
        id: &ToolCallId,
    ) -> Result<TimelineView, Refusal> {
        Self::approvals(self).timeline(caller, id).await
    }

    fn expires_in(&self, caller: &VerifiedCaller) -> Duration {
        Self::expires_in(self, caller)
    }

    fn desk_events(&self, caller: &VerifiedCaller) -> EventFeed {
        Self::approvals(self).listen(caller)
    }

    async fn record(&self, caller: &VerifiedCaller, id: RecordId) -> Result<RecordView, Refusal> {
        Self::record(self, caller, id).await
    }

    fn credentials(&self, caller: &VerifiedCaller) -> Result<CredentialsView, Refusal> {
        Self::credentials(self, caller)
    }

    async fn decisions(
        &self,
        caller: &VerifiedCaller,
        query: DecisionsQuery,
    ) -> Result<DecisionsPage, Refusal> {
        Self::decisions(self, caller, query).await
    }

    async fn decision(
        &self,
        caller: &VerifiedCaller,
        id: &DecisionId,
    ) -> Result<DecisionView, Refusal> {
        Self::decision(self, caller, id).await
    }

    async fn report(
        &self,
        caller: &VerifiedCaller,
        range: ReportRange,
    ) -> Result<ReportView, Refusal> {
        Self::report(self, caller, range).await
    }

    fn is_revoked(&self, caller: &VerifiedCaller) -> bool {
        Self::is_revoked(self, caller)
    }

    fn revoked(
        &self,
        caller: &VerifiedCaller,
    ) -> impl Future<Output = Refusal> + Send + 'static + use<> {
        Self::revoked(self, caller)
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
        seq: u64,
        size: Option<u64>,
    ) -> Result<InclusionView, Refusal> {
        Self::inclusion(self, caller, log, seq, size).await
    }

    async fn consistency(
        &self,
        caller: &VerifiedCaller,
        log: &str,
        from: u64,
        to: u64,
    ) -> Result<ConsistencyView, Refusal> {
        Self::consistency(self, caller, log, from, to).await
    }

    fn status(&self) -> StatusView {
        Self::status(self)
    }

    async fn reload(
        &self,
        caller: &VerifiedCaller,
        request: ReloadRequest,
    ) -> Result<ReloadView, Refusal> {
        self.reload_for(caller, request).await
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

impl Feed for EventFeed {
    async fn next(&mut self) -> Option<DeskEvent> {
        Self::next(self).await
    }

    fn is_over(&self) -> bool {
        Self::is_over(self)
    }
}
