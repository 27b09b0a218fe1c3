//! The inbox: a page of what the caller may see, and the metrics of the queue.
//!
//! Owns the way from the index to a page. The index filters and counts; Cedar is asked about each item of the page, and what the caller may
//! not see is left out. What has ended is not in the index: [`crate::listing`] makes those pages.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use placet_identity::VerifiedCaller;
use placet_ledger::approval::{ApprovalRecord, ApprovalState};
use placet_types::{error::Refusal, ids::ApprovalId};

use crate::{
    listing::{self, Found, Wanted},
    outcome,
    pending::query::{self, Viewer},
    presentation,
    refusals::{gone, refused},
    reviewer,
    service::Approvals,
    summary,
    views::{INBOX_PAGE_MAX, InboxItem, InboxOrder, InboxQuery, InboxView, QueueMetrics, Whose},
};

/// How many items a page has by default.
const PAGE_DEFAULT: usize = 50;
/// How many items of a page are made concurrently: with a database as ledger, each waits for it twice.
const AT_ONCE: usize = 8;
/// The longest text to search for, in bytes.
const SEARCH_BYTES_MAX: usize = 200;
/// How many ended approvals are read for one page.
const LOOKED_MAX: usize = 1_000;

impl Approvals {
    /// A page of the approvals that the caller may see, and the metrics of the queue.
    ///
    /// # Errors
    /// [`Refusal`] for an invalid query, or when the ledger cannot be read.
    pub async fn inbox(
        &self,
        caller: &VerifiedCaller,
        query: InboxQuery,
    ) -> Result<InboxView, Refusal> {
        self.must_be_read()?;
        outcome::check(query.state.as_deref())?;
        if query.search.as_ref().is_some_and(|text| text.len() > SEARCH_BYTES_MAX) {
            let problem = format!("must be at most {SEARCH_BYTES_MAX} bytes");
            return Err(refused("the text to search for is too long", "/search", problem));
        }
        let limit = match query.limit {
            0 => PAGE_DEFAULT,
            limit => limit.min(INBOX_PAGE_MAX),
        };
        let viewer = reviewer::viewer(self, caller);
        let load = if viewer.is_person { load_of(self, caller) } else { QueueMetrics::default() };
        let mut view = InboxView {
            approvals: Vec::new(),
            total: None,
            next_after: None,
            incomplete: false,
            mine: 0,
            load,
        };
        if !matches!(query.state.as_deref(), None | Some("pending" | "approved")) {
            let over = ended(self, caller, &viewer, &query, limit).await?;
            let shown = stream::iter(over.approvals).map(|one| line(self, caller, one, false));
            view.approvals = shown.buffered(AT_ONCE).collect().await;
            (view.next_after, view.incomplete) = (over.next_after, over.incomplete);
            view.mine = self.pending.look(&viewer, &InboxQuery::default(), 0).mine;
            return Ok(view);
        }
        if query.after.is_some() {
            let problem = "must be absent: what waits is paged by `offset`";
            return Err(refused("what waits moves all the time", "/after", problem));
        }
        let found = self.pending.look(&viewer, &query, limit);
        let shown = stream::iter(found.page).map(|(id, mine)| item(self, caller, id, mine));
        let shown: Vec<Option<InboxItem>> = shown.buffered(AT_ONCE).try_collect().await?;
        view.approvals = shown.into_iter().flatten().collect();
        (view.total, view.mine) = (Some(found.total), found.mine);
        Ok(view)
    }
}

/// A page of ended approvals. It can be continued only in the order of age.
async fn ended(
    service: &Approvals,
    caller: &VerifiedCaller,
    viewer: &Viewer,
    query: &InboxQuery,
    limit: usize,
) -> Result<Found, Refusal> {
    let wrong = |pointer, problem| refused("what has ended is listed by its age", pointer, problem);
    if query.offset > 0 {
        return Err(wrong("/offset", "must be 0: `after` says where to go on"));
    }
    if query.order == InboxOrder::Risk {
        return Err(wrong("/order", "must be newest or oldest"));
    }
    if let Some(after) = &query.after {
        let is_there = |approval: ApprovalRecord| {
            approval.chain.tenant() == caller.tenant()
                || approval.external_tenants.contains(caller.tenant())
        };
        if !service.read_approval(after).await?.is_some_and(is_there) {
            return Err(gone());
        }
    }
    // There is nothing to decide on what has ended.
    if query.whose == Whose::Mine {
        return Ok(Found::default());
    }
    let wanted = Wanted {
        state: query.state.as_deref(),
        newest_first: query.order != InboxOrder::Oldest,
        after: query.after.clone(),
        looked_max: LOOKED_MAX,
    };
    let directory = &service.policies().directory;
    let is_wanted =
        |approval: &ApprovalRecord| query::is_wanted(approval, directory, viewer, query);
    listing::page(service, caller, wanted, limit, is_wanted).await
}

/// One item; `None` where it is gone, or the caller may not see it.
async fn item(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval_id: ApprovalId,
    mine: bool,
) -> Result<Option<InboxItem>, Refusal> {
    let approval = service.read_approval(&approval_id).await?;
    let Some(approval) = approval.filter(|one| reviewer::may_view(service, caller, one)) else {
        return Ok(None);
    };
    let still = approval.state == ApprovalState::Pending;
    Ok(Some(line(service, caller, approval, mine && still).await))
}

async fn line(
    service: &Approvals,
    caller: &VerifiedCaller,
    approval: ApprovalRecord,
    mine: bool,
) -> InboxItem {
    InboxItem {
        progress: presentation::progress_for(caller, &approval),
        approval: presentation::view_for(service, caller, &approval).await,
        mine,
        summary: summary::of(service, &approval).await,
    }
}

/// The metrics of the approvals of the caller's tenant.
fn load_of(service: &Approvals, caller: &VerifiedCaller) -> QueueMetrics {
    let (tenant, now) = (caller.tenant(), service.ledger.store().now());
    let mut load = service.pending.load(tenant, now);
    load.freezes = service.freezes(caller);
    let open = service.rules.open();
    let due = open.reviews_due(now).filter(|entry| entry.tenant == *tenant).count();
    load.reviews_due = u32::try_from(due).unwrap_or(u32::MAX);
    load
}
