//! Reports from the audit chain: how calls went (TM-21), and the policy decisions about them.
//!
//! Owns the routes; the engine determines who may read what, and what is counted.

use axum::{extract::State, response::Response};

use placet_engine::{
    report::ReportRange,
    views::decisions::{CallOutcome, DecisionVerdict, DecisionsQuery},
};
use placet_types::{clock::Timestamp, ids::DecisionId};

use crate::{
    answer,
    problem::Failure,
    query::Params,
    request::Entity,
    state::{ApiState, Caller},
};

/// The last millisecond that a range may name: the end of the year 9999.
pub(crate) const MS_MAX: u64 = 253_402_300_799_999;

/// `GET /v1/report`.
pub(crate) async fn show(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let range = ReportRange { from: moment(&mut params, "from")?, to: moment(&mut params, "to")? };
    params.finish()?;
    Ok(answer::json(&api.engine.report(&caller, range).await?))
}

/// `GET /v1/decisions`.
pub(crate) async fn decisions(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    mut params: Params,
) -> Result<Response, Failure> {
    let verdicts = DecisionVerdict::ALL.map(|verdict| (verdict.as_str(), verdict));
    let outcomes = CallOutcome::ALL.map(|outcome| (outcome.as_str(), outcome));
    let query = DecisionsQuery {
        agent: params.id("agent")?,
        tool: params.text("tool"),
        verdict: params.one_of("verdict", &verdicts)?,
        outcome: params.one_of("outcome", &outcomes)?,
        policy: params.text("policy"),
        run: params.id("run")?,
        directive: params.id("directive")?,
        from: moment(&mut params, "from")?,
        to: moment(&mut params, "to")?,
        limit: params.limit()?,
    };
    params.finish()?;
    Ok(answer::json(&api.engine.decisions(&caller, query).await?))
}

/// `GET /v1/decisions/{id}`.
pub(crate) async fn decision(
    Entity { api, caller, id }: Entity<DecisionId>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.decision(&caller, &id).await?))
}

fn moment(params: &mut Params, name: &str) -> Result<Option<Timestamp>, Failure> {
    let ms = params.number(name, 1..=MS_MAX)?;
    Ok(ms.and_then(|ms| i64::try_from(ms).ok()).map(Timestamp::from_ms))
}
