//! Approvals: the inbox, the pending ones, their details, deciding them one by one or in bulk, and changing their arguments.
//!
//! Owns the routes and the reading of their queries; who may see and decide is policy's.

use axum::{extract::State, response::Response};

use placet_approvals::views::{
    APPROVAL_STATES, BulkDecisionRequest, DecisionRequest, EditRequest, FINISHED, InboxOrder,
    InboxQuery, Whose, WithdrawalRequest,
};
use placet_types::{ids::ApprovalId, mode::ApprovalMode};

use crate::{
    answer,
    body::StrictJson,
    documents::ApprovalList,
    events,
    problem::Failure,
    query::Params,
    request::{Entity, Plain},
    routes::next_after,
    state::{ApiState, Caller},
};

/// The values of the `whose` filter.
pub(crate) const WHOSE: [(&str, Whose); 3] =
    [("all", Whose::All), ("mine", Whose::Mine), ("asked", Whose::Asked)];
/// The orders of the inbox.
pub(crate) const ORDERS: [(&str, InboxOrder); 4] = [
    ("urgent", InboxOrder::Urgent),
    ("oldest", InboxOrder::Oldest),
    ("newest", InboxOrder::Newest),
    ("risk", InboxOrder::Risk),
];
/// The largest offset of a page.
pub(crate) const OFFSET_MAX: u64 = 1_000_000;
/// The longest text to search for, in bytes.
pub(crate) const SEARCH_BYTES_MAX: usize = 200;

/// The states that a list takes: those that an approval can be in, and all that are finished.
pub(crate) fn states() -> Vec<&'static str> {
    APPROVAL_STATES.into_iter().chain([FINISHED]).collect()
}

/// Takes a state to filter by.
fn state(params: &mut Params) -> Result<Option<&'static str>, Failure> {
    let states: Vec<_> = states().into_iter().map(|state| (state, state)).collect();
    params.one_of("state", &states)
}

/// `GET /v1/inbox`.
pub(crate) async fn inbox(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let query = query(&mut params)?;
    params.finish()?;
    Ok(answer::json(&api.engine.approvals().inbox(&caller, query).await?))
}

fn query(params: &mut Params) -> Result<InboxQuery, Failure> {
    let modes = ApprovalMode::ALL.map(|mode| (mode.as_str(), mode));
    let search = params.text("search");
    if search.as_ref().is_some_and(|text| text.len() > SEARCH_BYTES_MAX) {
        let message = format!("`search` must be at most {SEARCH_BYTES_MAX} bytes");
        return Err(Failure::malformed(message));
    }
    Ok(InboxQuery {
        whose: params.one_of("whose", &WHOSE)?.unwrap_or_default(),
        state: state(params)?.map(str::to_owned),
        mode: params.one_of("mode", &modes)?,
        group: params.id("group")?,
        search,
        order: params.one_of("order", &ORDERS)?.unwrap_or_default(),
        offset: params.size("offset", 0..=OFFSET_MAX)?.unwrap_or_default(),
        after: params.id("after")?,
        limit: params.limit()?,
    })
}

/// `GET /v1/approvals`.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let (state, after) = (state(&mut params)?, params.id("after")?);
    let limit = params.limit()?;
    params.finish()?;
    let service = api.engine.approvals();
    let approvals = service.approvals(&caller, state, after.as_ref(), limit).await?;
    let next_after = next_after(&approvals, limit, |approval| approval.approval_id.clone());
    Ok(answer::json(&ApprovalList { approvals, next_after }))
}

/// `GET /v1/approvals/{id}`.
pub(crate) async fn get(
    Entity { api, caller, id }: Entity<ApprovalId>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().approval(&caller, &id).await?))
}

/// `POST /v1/approvals/{id}/decisions`.
pub(crate) async fn decide(
    Entity { api, caller, id }: Entity<ApprovalId>,
    StrictJson(request): StrictJson<DecisionRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().decide(&caller, &id, request).await?))
}

/// `POST /v1/approvals/{id}/edits`: replaces the arguments that people are asked to approve.
pub(crate) async fn edit(
    Entity { api, caller, id }: Entity<ApprovalId>,
    StrictJson(request): StrictJson<EditRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().edit(&caller, &id, request).await?))
}

/// `POST /v1/approvals/{id}/withdrawal`: the call ends and does not run.
pub(crate) async fn withdraw(
    Entity { api, caller, id }: Entity<ApprovalId>,
    StrictJson(request): StrictJson<WithdrawalRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().withdraw(&caller, &id, request).await?))
}

/// `POST /v1/approvals/decisions`: one decision on several approvals, each recorded by itself.
pub(crate) async fn decide_together(
    Plain { api, caller }: Plain,
    StrictJson(request): StrictJson<BulkDecisionRequest>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().decide_bulk(&caller, request).await?))
}

/// `GET /v1/approvals/events`: what happens from now on, as far as the caller may see it.
pub(crate) async fn follow(Plain { api, caller }: Plain) -> Response {
    events::of_approvals(&api, &caller)
}

#[cfg(test)]
mod tests {
    use axum::extract::FromRequestParts as _;
    use http::Request;

    use super::{ApprovalMode, InboxOrder, InboxQuery, Params, Whose, query};

    async fn read(text: &str) -> InboxQuery {
        let (mut parts, ()) = Request::get(format!("/{text}")).body(()).unwrap().into_parts();
        let mut params = Params::from_request_parts(&mut parts, &()).await.unwrap();
        query(&mut params).unwrap()
    }

    #[tokio::test]
    async fn the_inbox_is_asked_for_exactly_what_the_query_says() {
        assert_eq!(read("").await, InboxQuery { limit: 50, ..InboxQuery::default() });
        let full = InboxQuery {
            whose: Whose::Mine,
            state: Some("denied".to_owned()),
            mode: Some(ApprovalMode::Network),
            group: Some("owners".parse().unwrap()),
            search: Some("ana b".to_owned()),
            order: InboxOrder::Risk,
            offset: 7,
            after: Some("apr_1".parse().unwrap()),
            limit: 9,
        };
        let text = "?whose=mine&state=denied&mode=network&group=owners&search=ana%20b&order=risk&offset=7&after=apr_1&limit=9";
        assert_eq!(read(text).await, full);
    }
}
