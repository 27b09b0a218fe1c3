//! Calls: submitting, querying and following one, and its timeline.
//!
//! Owns how long a request waits. Invariant: a call never ends because its caller went away; a request that waits ends early
//! when the listeners close.

use std::{sync::Arc, time::Duration};

use axum::{extract::State, response::Response};

use placet_engine::{answer::Answer, submission::Submission, ticket::Ticket};
use placet_identity::VerifiedCaller;
use placet_types::ids::ToolCallId;

use crate::{
    answer,
    body::StrictJson,
    events,
    problem::Failure,
    query::{Params, WAIT_MS_MAX},
    request::{CallHeaders, Entity, Id, Plain},
    routes::wait_ms,
    state::{ApiState, Caller, expired},
};

/// How long a request waits for a call in progress, in addition to the time for which it may be held: longer than any tool may take. Only a
/// database that does not say whether it has kept something makes a call take longer.
const IN_PROGRESS_MS_MAX: u64 = 660_000;

/// `POST /v1/calls`: answers when the call has ended, or is held for longer than the request waits.
pub(crate) async fn submit(
    Plain { api, caller }: Plain,
    headers: CallHeaders,
    StrictJson(submission): StrictJson<Submission>,
) -> Result<Response, Failure> {
    let (submission, inbound) = headers.complete(submission)?;
    let wait_ms = wait_ms(submission.wait_ms)?;
    let mut ticket = api.engine.submit(Arc::clone(&caller), submission, inbound)?;
    Ok(answer::respond(&settled(&api, &caller, &mut ticket, wait_ms).await?))
}

/// Waits for the end of a call; once the listeners close, only if it is already being executed. With a revoked token it does not wait; with
/// an expiring one, only for a call that is already being executed.
async fn settled(
    api: &ApiState,
    caller: &Arc<VerifiedCaller>,
    ticket: &mut Ticket,
    wait_ms: u64,
) -> Result<Answer, Failure> {
    let left_ms = u64::try_from(api.engine.expires_in(caller).as_millis()).unwrap_or(u64::MAX);
    let answer = tokio::select! {
        biased;
        refusal = api.engine.revoked(Arc::clone(caller)) => {
            return Err(Failure::of_wait(refusal, &ticket.current()));
        }
        answer = ticket.settled(wait_ms.min(left_ms)) => answer,
        () = tokio::time::sleep(Duration::from_millis(wait_ms.saturating_add(IN_PROGRESS_MS_MAX))) => {
            return Ok(ticket.current());
        }
        () = api.closing() => return Ok(ticket.settled(0).await),
    };
    if left_ms < wait_ms && matches!(answer, Answer::Held(_)) {
        return Err(Failure::of_wait(expired(), &answer));
    }
    Ok(answer)
}

/// `GET /v1/calls/{id}`: the state of a call, now or within `wait_ms`.
pub(crate) async fn get(
    State(api): State<ApiState>,
    Caller(caller): Caller,
    Id(id): Id<ToolCallId>,
    mut params: Params,
) -> Result<Response, Failure> {
    let wait_ms = params.number("wait_ms", 0..=WAIT_MS_MAX)?.unwrap_or_default();
    params.finish()?;
    if wait_ms == 0 {
        return Ok(answer::respond(&api.read(api.engine.call(&caller, &id)).await?));
    }
    let mut ticket = api.read(api.engine.follow(&caller, &id)).await?;
    let standing = ticket.current();
    if standing.is_final() {
        // There is nothing to wait for, so a caller who was admitted gets the answer even in the last moments of a token.
        return Ok(answer::respond(&standing));
    }
    let waited = tokio::select! {
        biased;
        refusal = api.over(&caller) => {
            return Err(Failure::of_wait(refusal, &ticket.current()));
        }
        answer = ticket.settled(wait_ms) => Some(answer),
        () = tokio::time::sleep(Duration::from_millis(wait_ms)) => None,
        () = api.closing() => None,
    };
    Ok(answer::respond(&waited.unwrap_or_else(|| ticket.current())))
}

/// `GET /v1/calls/{id}/events`: the state of a call, and every change until it ends.
pub(crate) async fn follow(
    Entity { api, caller, id }: Entity<ToolCallId>,
) -> Result<Response, Failure> {
    let ticket = api.engine.follow(&caller, &id).await?;
    Ok(events::of_call(&api, &caller, ticket))
}

/// `GET /v1/calls/{id}/timeline`: its way from plan to effect, from the audit chain.
pub(crate) async fn timeline(
    Entity { api, caller, id }: Entity<ToolCallId>,
) -> Result<Response, Failure> {
    Ok(answer::json(&api.engine.approvals().timeline(&caller, &id).await?))
}
