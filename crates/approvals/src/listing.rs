//! Finding approvals: one by its id, or a list in the order in which they were asked for.
//!
//! Owns that nobody finds what they may not see: such an approval answers as one that does not exist.

use placet_identity::VerifiedCaller;
use placet_ledger::{approval::ApprovalRecord, refusal::ledger_refusal, store::ApprovalQuery};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::ApprovalId,
};

use crate::{
    external, outcome, reviewer,
    service::Approvals,
    views::{ApprovalView, FINISHED},
};

/// How many approvals are read at a time.
const PAGE: usize = 200;
/// About how many policy is asked in a row.
const ASKED_AT_ONCE: usize = 16;

impl Approvals {
    /// The approvals that the caller may see, oldest first.
    ///
    /// # Errors
    /// [`Refusal`] when the ledger cannot be read.
    pub async fn approvals(
        &self,
        caller: &VerifiedCaller,
        state: Option<&str>,
        after: Option<&ApprovalId>,
        limit: usize,
    ) -> Result<Vec<ApprovalView>, Refusal> {
        outcome::check(state)?;
        let limit = limit.max(1);
        let mut seen = Vec::new();
        let after_external = match after {
            Some(after) => {
                let approval = self.ledger.store().approval(after).await;
                let approval = approval.map_err(|error| ledger_refusal(&error.into()))?;
                approval.is_some_and(|approval| {
                    reviewer::is_external(caller, &approval)
                        && reviewer::may_view(self, caller, &approval)
                })
            }
            None => false,
        };
        let tenant = Some(caller.tenant().clone());
        let stored = state.and_then(outcome::stored).map(str::to_owned);
        let decided = state == Some(FINISHED);
        // Their own tenant's first, then those that they are asked about as external approvers.
        if !after_external {
            let own = ApprovalQuery {
                tenant: tenant.clone(),
                state: stored.clone(),
                decided,
                after: after.cloned(),
                ..ApprovalQuery::default()
            };
            gather(self, caller, own, state, &mut seen, limit).await?;
        }
        // External approvers are persons who are in a group at all: nobody else is asked, and nothing is looked through for them.
        if reviewer::is_person(caller) && !reviewer::groups_of(self, caller).is_empty() {
            let after = after.filter(|_| after_external).cloned();
            let as_external = ApprovalQuery {
                external: tenant,
                state: stored,
                decided,
                after,
                ..ApprovalQuery::default()
            };
            gather(self, caller, as_external, state, &mut seen, limit).await?;
        }
        Ok(seen)
    }
}

/// Adds the approvals of a query that the caller may see, until there are enough.
async fn gather(
    service: &Approvals,
    caller: &VerifiedCaller,
    mut query: ApprovalQuery,
    state: Option<&str>,
    seen: &mut Vec<ApprovalView>,
    limit: usize,
) -> Result<(), Refusal> {
    // Most pages are of somebody who sees everything; who sees little has much to be looked through.
    query.limit = limit.saturating_sub(seen.len()).min(PAGE);
    while seen.len() < limit {
        let page = service.ledger.store().approvals(&query).await;
        let page = page.map_err(|error| ledger_refusal(&error.into()))?;
        let Some(last) = page.last() else { break };
        query.after = Some(last.approval_id.clone());
        query.limit = PAGE;
        for (number, approval) in page.iter().enumerate() {
            if number.checked_rem(ASKED_AT_ONCE) == Some(0) {
                // Who sees little has many looked through: nobody else waits for that.
                tokio::task::yield_now().await;
            }
            if seen.len() < limit
                && reviewer::may_view(service, caller, approval)
                && outcome::is_wanted(service, caller, approval, state).await
            {
                seen.push(external::view_for(service, caller, approval).await);
            }
        }
    }
    Ok(())
}

/// An approval that the caller may see.
pub(crate) async fn visible(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
) -> Result<ApprovalRecord, Refusal> {
    let unknown = || Refusal::new(ErrorCode::NotFound, "there is no such approval");
    let approval = service.ledger.store().approval(approval_id).await;
    let approval = approval.map_err(|error| ledger_refusal(&error.into()))?.ok_or_else(unknown)?;
    if reviewer::may_view(service, caller, &approval) { Ok(approval) } else { Err(unknown()) }
}
