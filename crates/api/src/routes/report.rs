//! The evaluation report (TM-21).
//!
//! Owns the route; who may read it, and what is counted, is the engine's to say.

use axum::{extract::State, response::Response};

use placet_engine::report::ReportRange;
use placet_types::clock::Timestamp;

use crate::{
    answer,
    api::{ApiState, Caller},
    problem::Failure,
    query::Params,
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
    Ok(answer::json(&api.read(api.engine.report(&caller, range)).await?))
}

/// Takes a moment; zero stands for none.
pub(crate) fn moment(params: &mut Params, name: &str) -> Result<Option<Timestamp>, Failure> {
    let ms = params.number(name, 1..=MS_MAX, 0)?;
    Ok(i64::try_from(ms).ok().filter(|ms| *ms > 0).map(Timestamp::from_ms))
}
