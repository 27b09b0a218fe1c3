//! What has ended: a page of the calls that people were asked about.
//!
//! Owns the way through them, by their age. Nobody knows how many there are that somebody may see, so nothing here counts them. Invariants:
//! every one that is visible and wanted is on some page, however many others there are; for one page no more than [`LOOKED_MAX`] are
//! looked at, and a page that ends for that reason says so.

use std::collections::{BTreeSet, VecDeque};

use placet_identity::VerifiedCaller;
use placet_ledger::{approval::ApprovalRecord, refusal::ledger_refusal, store::ApprovalQuery};
use placet_types::{
    error::{ErrorCode, Problem, Refusal},
    ids::ApprovalId,
};

use crate::{
    outcome,
    pending::query::{self, Viewer},
    refusals::gone,
    reviewer,
    service::Approvals,
    views::{InboxOrder, InboxQuery, Whose},
};

/// How many are looked at for one page.
const LOOKED_MAX: usize = 1_000;
/// How many are read at a time once a page was not filled by the first ones.
const READ: usize = 250;

/// A page.
#[derive(Debug, Default)]
pub(crate) struct Finished {
    pub(crate) approvals: Vec<ApprovalRecord>,
    /// Where to go on, if there may be more.
    pub(crate) next_after: Option<ApprovalId>,
    /// Whether it has room left, and ends because so many were looked at.
    pub(crate) incomplete: bool,
}

/// The page that a query asks for.
pub(crate) async fn page(
    service: &Approvals,
    caller: &VerifiedCaller,
    viewer: &Viewer,
    query: &InboxQuery,
    limit: usize,
) -> Result<Finished, Refusal> {
    let newest_first = is_newest_first(query)?;
    if let Some(after) = &query.after {
        must_be_there(service, caller, after).await?;
    }
    let mut found = Finished::default();
    // Nobody decides on what has ended.
    if query.whose == Whose::Mine {
        return Ok(found);
    }
    let mut lists = Lists::of(service, caller, query, newest_first);
    let (mut most, mut looked) = (limit.saturating_add(1).min(READ), 0_usize);
    loop {
        let read = lists.next(service, most).await?;
        let (is_last, last) = (read.len() < most, read.last().map(|last| last.approval_id.clone()));
        looked = looked.saturating_add(read.len());
        for approval in wanted(service, viewer, query, read) {
            let state = query.state.as_deref();
            if !reviewer::may_view(service, caller, &approval)
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
        if looked >= LOOKED_MAX {
            found.incomplete = found.approvals.len() < limit;
            found.next_after = last;
            return Ok(found);
        }
        most = READ;
        // Who sees little has many looked through: nobody else waits for that.
        tokio::task::yield_now().await;
    }
}

/// Those that the cheap part of visibility and the filters of the query leave.
fn wanted(
    service: &Approvals,
    viewer: &Viewer,
    query: &InboxQuery,
    read: Vec<ApprovalRecord>,
) -> Vec<ApprovalRecord> {
    let found = query::look_at(&read, &service.policies().directory, viewer, query, read.len());
    let ids: BTreeSet<ApprovalId> = found.page.into_iter().map(|(id, _)| id).collect();
    read.into_iter().filter(|approval| ids.contains(&approval.approval_id)).collect()
}

/// Only age is an order that can be gone on in.
fn is_newest_first(query: &InboxQuery) -> Result<bool, Refusal> {
    let refused = |pointer: &str, problem: &str| {
        let problem = Problem { pointer: pointer.to_owned(), problem: problem.to_owned() };
        Refusal::new(ErrorCode::ValidationError, "what has ended is listed by its age")
            .with_problems(vec![problem])
    };
    if query.offset > 0 {
        return Err(refused("/offset", "must be 0: `after` says where to go on"));
    }
    match query.order {
        InboxOrder::Urgent | InboxOrder::Newest => Ok(true),
        InboxOrder::Oldest => Ok(false),
        InboxOrder::Risk => Err(refused("/order", "must be newest or oldest")),
    }
}

async fn must_be_there(
    service: &Approvals,
    caller: &VerifiedCaller,
    after: &ApprovalId,
) -> Result<(), Refusal> {
    let approval = service.ledger.store().approval(after).await;
    let approval = approval.map_err(|error| ledger_refusal(&error.into()))?;
    let is_there = approval.is_some_and(|approval| {
        approval.chain.tenant() == caller.tenant()
            || approval.external_tenants.contains(caller.tenant())
    });
    if is_there { Ok(()) } else { Err(gone()) }
}

/// The lists that somebody's calls are in: those of their own tenant, and those that it is asked about as an external approver.
struct Lists {
    newest_first: bool,
    lists: Vec<List>,
}

struct List {
    query: ApprovalQuery,
    read: VecDeque<ApprovalRecord>,
    is_through: bool,
}

impl Lists {
    fn of(
        service: &Approvals,
        caller: &VerifiedCaller,
        query: &InboxQuery,
        newest_first: bool,
    ) -> Self {
        let stored = query.state.as_deref().and_then(outcome::stored).map(str::to_owned);
        let tenant = Some(caller.tenant().clone());
        let own = ApprovalQuery { tenant: tenant.clone(), ..ApprovalQuery::default() };
        let as_external = ApprovalQuery { external: tenant, ..ApprovalQuery::default() };
        // Nobody else is asked as an external approver.
        let is_external =
            reviewer::is_person(caller) && !reviewer::groups_of(service, caller).is_empty();
        let queries = std::iter::once(own).chain(is_external.then_some(as_external));
        let lists = queries.map(|asked| List {
            query: ApprovalQuery {
                state: stored.clone(),
                decided: stored.is_none(),
                newest_first,
                after: query.after.clone(),
                ..asked
            },
            read: VecDeque::new(),
            is_through: false,
        });
        Self { newest_first, lists: lists.collect() }
    }

    /// The next ones of all lists in one order; fewer only at the end.
    async fn next(
        &mut self,
        service: &Approvals,
        most: usize,
    ) -> Result<Vec<ApprovalRecord>, Refusal> {
        let mut next = Vec::new();
        while next.len() < most {
            for list in &mut self.lists {
                list.fill(service, most).await?;
            }
            let heads = self.lists.iter_mut().filter(|list| !list.read.is_empty());
            let place = |list: &&mut List| {
                list.read.front().map(|head| (head.created_at, head.approval_id.clone()))
            };
            let list =
                if self.newest_first { heads.max_by_key(place) } else { heads.min_by_key(place) };
            let Some(head) = list.and_then(|list| list.read.pop_front()) else { break };
            next.push(head);
        }
        Ok(next)
    }
}

impl List {
    async fn fill(&mut self, service: &Approvals, most: usize) -> Result<(), Refusal> {
        if self.is_through || !self.read.is_empty() {
            return Ok(());
        }
        self.query.limit = most;
        let page = service.ledger.store().approvals(&self.query).await;
        let page = page.map_err(|error| ledger_refusal(&error.into()))?;
        self.is_through = page.len() < most;
        self.query.after =
            page.last().map(|last| last.approval_id.clone()).or(self.query.after.take());
        self.read = page.into();
        Ok(())
    }
}
