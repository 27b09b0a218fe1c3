//! The inbox: a page of what the caller may see, and how things stand at the desk.
//!
//! Owns the way from the board to a page. The board filters and counts; Cedar is asked for the page that is shown, and what it does not
//! let the caller see is left out of it.

use futures::stream::{self, StreamExt as _, TryStreamExt as _};
use placet_identity::VerifiedCaller;
use placet_ledger::{
    approval::{ApprovalRecord, ApprovalState},
    store::ApprovalQuery,
};
use placet_types::{
    error::{ErrorCode, Problem, Refusal},
    ids::ApprovalId,
};

use super::{asker, board::look, guest, summary};
use crate::{
    context::{Context, known_state, ledger_refusal},
    views::desk::{DeskLoad, INBOX_PAGE_MAX, InboxItem, InboxQuery, InboxView},
};

/// How many a page has if nobody says.
const PAGE_DEFAULT: usize = 50;
/// Among how many of the newest that are over is looked.
const OVER_MAX: usize = 2_000;
/// How many lines of a page are made at the same time: where the ledger is in a database, each waits for it twice.
const AT_ONCE: usize = 8;
/// How many are read at a time.
const READ: usize = 500;
/// The longest text to search for, in bytes.
const SEARCH_BYTES_MAX: usize = 200;

/// A page of the inbox.
pub(crate) async fn page(
    context: &Context,
    caller: &VerifiedCaller,
    query: InboxQuery,
) -> Result<InboxView, Refusal> {
    context.desk.must_be_read()?;
    known_state(query.state.as_deref(), &ApprovalState::NAMES)?;
    if query.search.as_ref().is_some_and(|text| text.len() > SEARCH_BYTES_MAX) {
        let problem = format!("must be at most {SEARCH_BYTES_MAX} bytes");
        return Err(Refusal::new(ErrorCode::ValidationError, "the text to search for is too long")
            .with_problems(vec![Problem { pointer: "/search".to_owned(), problem }]));
    }
    let limit = match query.limit {
        0 => PAGE_DEFAULT,
        limit => limit.min(INBOX_PAGE_MAX),
    };
    let viewer = asker::viewer(context, caller);
    let board = &context.desk.board;
    let mut found = board.look(&viewer, &query, limit);
    if !matches!(query.state.as_deref(), None | Some("pending" | "approved")) {
        let over = over(context, caller, &query).await?;
        let mine = found.mine;
        found = look::look_at(&over, &context.directory, (&viewer, &query, limit));
        found.mine = mine;
    }
    let shown = stream::iter(found.page).map(|found| item(context, caller, found));
    let shown: Vec<Option<InboxItem>> = shown.buffered(AT_ONCE).try_collect().await?;
    let approvals = shown.into_iter().flatten().collect();
    let load = if viewer.is_person { load_of(context, caller) } else { DeskLoad::default() };
    Ok(InboxView { approvals, total: found.total, mine: found.mine, load })
}

/// One line; nothing where it is gone, or Cedar does not let the caller see it.
async fn item(
    context: &Context,
    caller: &VerifiedCaller,
    (approval_id, mine): (ApprovalId, bool),
) -> Result<Option<InboxItem>, Refusal> {
    let approval = context.ledger.store().approval(&approval_id).await;
    let approval = approval.map_err(|error| ledger_refusal(&error.into()))?;
    let Some(approval) = approval.filter(|one| asker::may_view(context, caller, one)) else {
        return Ok(None);
    };
    let still = approval.state == ApprovalState::Pending;
    Ok(Some(InboxItem {
        progress: guest::progress_for(caller, &approval),
        approval: guest::view_for(context, caller, &approval).await,
        mine: mine && still,
        summary: summary::of(context, &approval).await,
    }))
}

/// How things stand at the desk of the caller's tenant: numbers only.
fn load_of(context: &Context, caller: &VerifiedCaller) -> DeskLoad {
    let (tenant, now) = (caller.tenant(), context.ledger.store().now());
    let mut load = context.desk.board.load(tenant, now);
    load.reviews_due = context.desk.force.open().reviews_due(tenant, now);
    load
}

/// The newest approvals that are over, in the state asked for.
async fn over(
    context: &Context,
    caller: &VerifiedCaller,
    query: &InboxQuery,
) -> Result<Vec<ApprovalRecord>, Refusal> {
    let tenant = Some(caller.tenant().clone());
    let own = ApprovalQuery { tenant: tenant.clone(), ..ApprovalQuery::default() };
    let as_guest = ApprovalQuery { guest: tenant, ..ApprovalQuery::default() };
    let is_guest = asker::is_person(caller) && !asker::groups_of(context, caller).is_empty();
    let mut over = Vec::new();
    for mut asked in std::iter::once(own).chain(is_guest.then_some(as_guest)) {
        asked =
            ApprovalQuery { state: query.state.clone(), newest_first: true, limit: READ, ..asked };
        let mut read = 0;
        while read < OVER_MAX {
            let page = context.ledger.store().approvals(&asked).await;
            let page = page.map_err(|error| ledger_refusal(&error.into()))?;
            let Some(last) = page.last() else { break };
            asked.after = Some(last.approval_id.clone());
            read = read.saturating_add(page.len());
            over.extend(page);
        }
    }
    Ok(over)
}
