//! The inbox: a page of what waits for people, sorted and filtered for anyone who asks.
//!
//! Owns the reading of the query. What is in the inbox, and in which order, is the engine's.

use axum::{extract::State, response::Response};

use placet_approvals::views::{InboxOrder, InboxQuery, Whose};
use placet_types::mode::ApprovalMode;

use crate::{
    answer,
    api::{ApiState, Caller},
    problem::Failure,
    query::Params,
    routes::{approvals::states, one_of},
};

/// Whose approvals there can be asked for.
pub(crate) const WHOSE: [(&str, Whose); 3] =
    [("all", Whose::All), ("mine", Whose::Mine), ("asked", Whose::Asked)];
/// The orders.
pub(crate) const ORDERS: [(&str, InboxOrder); 4] = [
    ("urgent", InboxOrder::Urgent),
    ("oldest", InboxOrder::Oldest),
    ("newest", InboxOrder::Newest),
    ("risk", InboxOrder::Risk),
];
/// The last place that a page begins at.
pub(crate) const OFFSET_MAX: u64 = 1_000_000;
/// The longest text to search for, in bytes.
pub(crate) const SEARCH_BYTES_MAX: usize = 200;

/// `GET /v1/inbox`.
pub(crate) async fn read(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let query = query(&mut params)?;
    params.finish()?;
    Ok(answer::json(&api.read(api.engine.approvals().inbox(&caller, query)).await?))
}

fn query(params: &mut Params) -> Result<InboxQuery, Failure> {
    let modes = ApprovalMode::ALL.map(|mode| (mode.as_str(), mode));
    let search = params.text("search");
    if search.as_ref().is_some_and(|text| text.len() > SEARCH_BYTES_MAX) {
        let message = format!("`search` must be at most {SEARCH_BYTES_MAX} bytes");
        return Err(Failure::malformed(message));
    }
    let offset = params.number("offset", 0..=OFFSET_MAX, 0)?;
    Ok(InboxQuery {
        whose: params.one_of("whose", &WHOSE)?.unwrap_or_default(),
        state: one_of(params, "state", &states())?,
        mode: params.one_of("mode", &modes)?,
        group: params.id("group")?,
        search,
        order: params.one_of("order", &ORDERS)?.unwrap_or_default(),
        offset: usize::try_from(offset)
            .map_err(|_large| Failure::malformed("`offset` is too large"))?,
        after: params.id("after")?,
        limit: params.limit()?,
    })
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
