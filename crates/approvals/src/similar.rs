//! Similar past calls: what people decided when the same agent asked for the same operation before.
//!
//! Owns which earlier calls an approver is shown. Bounded: only the newest decided ones are searched, however many are pending.

use placet_ledger::{approval::ApprovalRecord, store::ApprovalQuery};
use placet_types::{
    digest::Digest,
    envelope::proposal::{SIMILAR_MAX, SimilarCall, SimilarDecision},
    ids::CapabilityId,
    principal::PrincipalChain,
};

use crate::{outcome, service::Approvals};

/// How many of the newest decided approvals of the operation are searched.
const LOOKED_THROUGH: usize = 100;

impl Approvals {
    /// The newest decided calls of the same operation by the same agent. None where the ledger cannot be read: they only help approvers,
    /// and nothing depends on them.
    pub async fn similar_calls(
        &self,
        chain: &PrincipalChain,
        capability: &CapabilityId,
        request_digest: Digest,
    ) -> Vec<SimilarCall> {
        let query = ApprovalQuery {
            tenant: Some(chain.tenant().clone()),
            capability: Some(capability.clone()),
            decided: true,
            newest_first: true,
            limit: LOOKED_THROUGH,
            ..ApprovalQuery::default()
        };
        let is_similar = |approval: &&ApprovalRecord| {
            approval.chain.actor.id == chain.actor.id && !approval.votes.is_empty()
        };
        let found = self.ledger.store().approvals(&query).await.unwrap_or_else(|error| {
            tracing::info!(%error, "similar calls could not be looked up");
            Vec::new()
        });
        let mut similar = Vec::new();
        for approval in found.iter().filter(is_similar).take(SIMILAR_MAX) {
            similar.push(similar_of(self, approval, request_digest).await);
        }
        similar
    }
}

async fn similar_of(
    service: &Approvals,
    approval: &ApprovalRecord,
    request_digest: Digest,
) -> SimilarCall {
    let record = service.ledger.store().effect(approval.record_id).await.ok().flatten();
    let record = record.filter(|record| record.call_id == approval.call_id);
    let decision = |vote: &placet_types::approval::Vote| SimilarDecision {
        approver: vote.approver.clone(),
        tenant: vote.tenant.clone(),
        choice: vote.choice,
    };
    SimilarCall {
        approval_id: approval.approval_id.clone(),
        asked_at: approval.created_at,
        state: outcome::of(approval, record.as_ref()).to_owned(),
        outcome: record.map(|record| record.state.name().to_owned()),
        decisions: approval.counted_votes().map(decision).collect(),
        same_request: approval.request_digest == request_digest,
    }
}
