//! Policy decisions, as the listeners ask for them.
//!
//! Owns the list of what can be asked; the search is [`crate::decisions`]'s.

use placet_identity::VerifiedCaller;
use placet_types::{error::Refusal, ids::DecisionId};

use super::Engine;
use crate::{
    decisions,
    views::decisions::{DecisionView, DecisionsPage, DecisionsQuery},
};

impl Engine {
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
}
