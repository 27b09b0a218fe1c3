//! Finding approvals: one by its id, or a page of them in the order in which they were requested.
//!
//! Owns the traversal by age. How many approvals a caller may see is unknown, so nothing here counts them. Invariants: a caller never finds
//! what they may not see: such an approval gets the same answer as one that does not exist; every visible and wanted one is on some page,
//! however many others there are; a page that ends because of the read limit says so.

use placet_identity::VerifiedCaller;
use placet_ledger::{approval::ApprovalRecord, store::ApprovalQuery};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::ApprovalId,
};

use crate::{
    outcome, presentation,
    refusals::read,
    reviewer,
    service::Approvals,
    views::{ApprovalView, FINISHED},
};

/// How many are read at a time if the first ones did not fill the page.
const READ: usize = 250;
/// After how many policy checks the task yields.
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
        let after = after.cloned();
        let wanted = Wanted { state, newest_first: false, after, looked_max: usize::MAX };
        let found = page(self, caller, wanted, limit.max(1), |_| true).await?;
        let mut views = Vec::with_capacity(found.approvals.len());
        for approval in &found.approvals {
            views.push(presentation::view_for(self, caller, approval).await);
        }
        Ok(views)
    }
}

/// An approval that the caller may see.
pub(crate) async fn visible(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval_id: &ApprovalId,
) -> Result<ApprovalRecord, Refusal> {
    let approval = service.read_approval(approval_id).await?;
    let seen = approval.filter(|approval| reviewer::may_view(service, caller, approval));
    seen.ok_or_else(|| Refusal::new(ErrorCode::NotFound, "there is no such approval"))
}

/// What to look for.
pub(crate) struct Wanted<'a> {
    pub(crate) state: Option<&'a str>,
    pub(crate) newest_first: bool,
    pub(crate) after: Option<ApprovalId>,
    /// How many are read for one page.
    pub(crate) looked_max: usize,
}

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Found {
    pub(crate) approvals: Vec<ApprovalRecord>,
    /// Where to continue, if there may be more.
    pub(crate) next_after: Option<ApprovalId>,
    /// Whether the page is not full because the read limit was reached.
    pub(crate) incomplete: bool,
}

/// The page of those that the caller may see; `is_wanted` is a cheaper check than visibility.
pub(crate) async fn page(
    service: &Approvals,
    caller: &VerifiedCaller,
    wanted: Wanted<'_>,
    limit: usize,
    is_wanted: impl Fn(&ApprovalRecord) -> bool,
) -> Result<Found, Refusal> {
    let Wanted { state, newest_first, after, looked_max } = wanted;
    let query = ApprovalQuery {
        state: state.and_then(outcome::stored).map(str::to_owned),
        decided: state == Some(FINISHED),
        newest_first,
        after,
        ..ApprovalQuery::default()
    };
    let mut lists = lists_of(service, caller, query);
    let mut found = Found::default();
    let (mut most, mut looked) = (limit.saturating_add(1).min(READ), 0_usize);
    loop {
        let read = next_of(service, &mut lists, most).await?;
        let (is_last, last) = (read.len() < most, read.last().map(|last| last.approval_id.clone()));
        for approval in read {
            looked = looked.saturating_add(1);
            if looked.checked_rem(ASKED_AT_ONCE) == Some(0) {
                // For a caller who sees little, many are read: let other tasks run.
                tokio::task::yield_now().await;
            }
            if !is_wanted(&approval)
                || !reviewer::may_view(service, caller, &approval)
                || !outcome::is_wanted(service, caller, &approval, state).await
            {
                continue;
            }
            if found.approvals.len() >= limit {
                found.next_after = found.approvals.last().map(|last| last.approval_id.clone());
                return Ok(found);
            }
            found.approvals.push(approval);
        }
        if is_last {
            return Ok(found);
        }
        if looked >= looked_max {
            found.incomplete = found.approvals.len() < limit;
            found.next_after = last;
            return Ok(found);
        }
        most = READ;
    }
}

/// The lists that a caller's approvals are in: those of their own tenant, and those that ask it as an external approver.
fn lists_of(
    service: &Approvals,
    caller: &VerifiedCaller,
    query: ApprovalQuery,
) -> Vec<ApprovalQuery> {
    let tenant = Some(caller.tenant().clone());
    let as_external = ApprovalQuery { external: tenant.clone(), ..query.clone() };
    // Only people who are in a group can be external approvers: nothing is read for others.
    let is_external =
        reviewer::is_person(caller) && !reviewer::groups_of(service, caller).is_empty();
    let own = ApprovalQuery { tenant, ..query };
    std::iter::once(own).chain(is_external.then_some(as_external)).collect()
}

/// The next ones of all lists in one order; fewer than `most` only at the end. All lists continue after the last of them.
async fn next_of(
    service: &Approvals,
    lists: &mut [ApprovalQuery],
    most: usize,
) -> Result<Vec<ApprovalRecord>, Refusal> {
    let mut next = Vec::new();
    for list in lists.iter_mut() {
        list.limit = most;
        next.extend(read(service.ledger.store().approvals(list).await)?);
    }
    next.sort_by_cached_key(|one| (one.created_at, one.approval_id.clone()));
    if lists.iter().any(|list| list.newest_first) {
        next.reverse();
    }
    next.truncate(most);
    if let Some(last) = next.last() {
        lists.iter_mut().for_each(|list| list.after = Some(last.approval_id.clone()));
    }
    Ok(next)
}
