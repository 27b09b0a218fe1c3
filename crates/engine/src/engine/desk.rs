//! The approval service, as the listeners ask for it.
//!
//! Owns the list of what can be asked. Each verb lives in a module of `crate::desk`.

use std::time::Duration;

use placet_identity::VerifiedCaller;
use placet_types::{
    error::Refusal,
    ids::{ApprovalId, DecisionId, DeskId, ToolCallId},
};

use super::Engine;
use crate::{
    decisions,
    desk::{
        acts, arrange, decide, edit, entries, events::DeskFeed, freezes, inbox, timeline, withdraw,
    },
    views::{
        ApprovalView, WithdrawalRequest,
        decisions::{DecisionView, DecisionsPage, DecisionsQuery},
        desk::{
            BulkDecisionRequest, BulkDecisionView, DeskAct, DeskEntryView, DeskRequest,
            EditRequest, EntriesPage, EntriesQuery, FreezeView, InboxQuery, InboxView,
            TimelineView,
        },
    },
};

impl Engine {
    /// A page of the approvals that the caller may see, and how things stand in the approval service.
    ///
    /// # Errors
    /// [`Refusal`] for a query that makes no sense, or when the ledger cannot be read.
    pub async fn inbox(
        &self,
        caller: &VerifiedCaller,
        query: InboxQuery,
    ) -> Result<InboxView, Refusal> {
        inbox::page(&self.context, caller, query).await
    }

    /// The freezes and lockdowns of the caller's tenant that are in force.
    #[must_use]
    pub fn freezes(&self, caller: &VerifiedCaller) -> Vec<FreezeView> {
        freezes::all(&self.context, caller)
    }

    /// Puts other arguments in the place of a held call's. Anyone who narrows them agrees by that; anyone who writes others does not decide on them.
    /// Everybody else decides again.
    ///
    /// # Errors
    /// [`Refusal`] when the person may not edit, was shown something else, the arguments do not fit the tool, or policy denies the call
    /// with them.
    pub async fn edit(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
        request: EditRequest,
    ) -> Result<ApprovalView, Refusal> {
        edit::edit(&self.context, caller, id, request).await
    }

    /// Withdraws a held call, so that it ends and does not run.
    ///
    /// # Errors
    /// [`Refusal`] when policy does not let the caller, or the call was sent or has ended.
    pub async fn withdraw(
        &self,
        caller: &VerifiedCaller,
        id: &ApprovalId,
        request: WithdrawalRequest,
    ) -> Result<ApprovalView, Refusal> {
        withdraw::withdraw(&self.context, caller, id, request).await
    }

    /// Takes one decision on several approvals of the same kind; each is decided and recorded by itself.
    ///
    /// # Errors
    /// [`Refusal`] when nothing can be decided at all. What single approvals are refused for is in the answer.
    pub async fn decide_together(
        &self,
        caller: &VerifiedCaller,
        request: BulkDecisionRequest,
    ) -> Result<BulkDecisionView, Refusal> {
        decide::together(&self.context, caller, request).await
    }

    /// A page of the entries of the approval service that the caller may see.
    ///
    /// # Errors
    /// [`Refusal`] when the ledger cannot be read, or has no place as that to go on from.
    pub async fn desk_entries(
        &self,
        caller: &VerifiedCaller,
        query: &EntriesQuery,
    ) -> Result<EntriesPage, Refusal> {
        entries::list(&self.context, caller, query).await
    }

    /// One entry of the approval service.
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::NotFound`] for entries that the caller may not see.
    pub async fn desk_entry(
        &self,
        caller: &VerifiedCaller,
        id: &DeskId,
    ) -> Result<DeskEntryView, Refusal> {
        entries::show(&self.context, caller, id).await
    }

    /// Arranges something in the approval service: a standing grant, a break-glass record, a freeze, a delegation.
    ///
    /// # Errors
    /// [`Refusal`] when policy does not let the caller, or it goes beyond a limit.
    pub async fn arrange(
        &self,
        caller: &VerifiedCaller,
        request: DeskRequest,
    ) -> Result<DeskEntryView, Refusal> {
        arrange::arrange(&self.context, caller, request).await
    }

    /// Decides on an entry of the approval service, ends it, or looks at it afterwards.
    ///
    /// # Errors
    /// [`Refusal`] when policy does not let the caller, or the entry does not move so.
    pub async fn act(
        &self,
        caller: &VerifiedCaller,
        id: &DeskId,
        act: DeskAct,
    ) -> Result<DeskEntryView, Refusal> {
        acts::act(&self.context, caller, id, act).await
    }

    /// The way of one call from plan to effect, from the audit chain.
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::NotFound`] for calls that the caller may not see.
    pub async fn timeline(
        &self,
        caller: &VerifiedCaller,
        id: &ToolCallId,
    ) -> Result<TimelineView, Refusal> {
        timeline::of(&self.context, caller, id).await
    }

    /// A page of the policy decisions about calls that the caller may see, the newest first.
    ///
    /// # Errors
    /// [`Refusal`] for whom no decision is, for a range that makes no sense, or when the audit chain cannot be read.
    pub async fn decisions(
        &self,
        caller: &VerifiedCaller,
        query: DecisionsQuery,
    ) -> Result<DecisionsPage, Refusal> {
        decisions::list(&self.context, caller, query).await
    }

    /// One policy decision about a call.
    ///
    /// # Errors
    /// [`placet_types::error::ErrorCode::NotFound`] for decisions that the caller may not see.
    pub async fn decision(
        &self,
        caller: &VerifiedCaller,
        id: &DecisionId,
    ) -> Result<DecisionView, Refusal> {
        decisions::show(&self.context, caller, id).await
    }

    /// How long what the caller proved who they are with still counts.
    #[must_use]
    pub fn expires_in(&self, caller: &VerifiedCaller) -> Duration {
        let left = caller.expires_at().since_ms(self.context.ledger.store().now());
        Duration::from_millis(u64::try_from(left).unwrap_or(0))
    }

    /// News of the approval service, from now on, as far as the caller may see them.
    #[must_use]
    pub fn desk_events(&self, caller: &VerifiedCaller) -> DeskFeed {
        self.context.desk.bell.listen(&self.context, caller)
    }
}
