//! Policy decisions about calls: a list with filters, and one by its id.
//!
//! Owns the routes; who may see which is the engine's to say.

use axum::{extract::State, response::Response};

use placet_engine::views::decisions::{DecisionVerdict, DecisionsQuery};
use placet_types::ids::DecisionId;

use super::report::moment;
use crate::{
    answer,
    api::{ApiState, Caller},
    problem::Failure,
    query::Params,
    request::Id,
    routes::one_of,
};

/// `GET /v1/decisions`.
pub(crate) async fn list(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let verdicts = DecisionVerdict::ALL.map(DecisionVerdict::as_str);
    let verdict = one_of(&mut params, "verdict", &verdicts)?;
    let query = DecisionsQuery {
        agent: params.id("agent")?,
        tool: params.text("tool"),
        verdict: DecisionVerdict::ALL
            .into_iter()
            .find(|one| verdict.as_deref() == Some(one.as_str())),
        policy: params.text("policy"),
        from: moment(&mut params, "from")?,
        to: moment(&mut params, "to")?,
        limit: params.limit()?,
    };
    params.finish()?;
    Ok(answer::json(&api.read(api.engine.decisions(&caller, query)).await?))
}

/// `GET /v1/decisions/{id}`.
pub(crate) async fn get(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<DecisionId>,
    params: Params,
) -> Result<Response, Failure> {
    params.finish()?;
    Ok(answer::json(&api.read(api.engine.decision(&caller, &id)).await?))
}
