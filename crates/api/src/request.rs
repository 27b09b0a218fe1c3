//! The head of a request: credentials, key, trace and the id in the path.
//!
//! Owns the rules of these headers. Does not verify tokens. Invariant: a header that decides something is there at most once;
//! nobody chooses between two values.

use std::{net::IpAddr, str::FromStr, sync::Arc};

use axum::extract::{FromRequestParts, Path};
use http::{HeaderMap, HeaderName, request::Parts};

use placet_engine::{
    attempts::Attempt,
    runs::batch_views::Batch,
    submission::{Inbound, Submission},
};
use placet_identity::{ClientCertificate, VerifiedCaller};
use placet_types::{
    error::{ErrorCode, Refusal},
    ids::IdempotencyKey,
};

use crate::{
    problem::Failure,
    query::NoQuery,
    state::{ApiState, Caller},
};

/// The header that carries the user's token.
pub(crate) const DELEGATION: HeaderName = HeaderName::from_static("placet-delegation");
/// The header that says under which key a call's effect happens at most once.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const TRACEPARENT_BYTES_MAX: usize = 128;
const TRACESTATE_BYTES_MAX: usize = 512;

/// The credentials of a request as they were sent.
#[derive(Clone, Copy)]
pub(crate) struct Credentials<'h> {
    pub(crate) authorization: Option<&'h str>,
    pub(crate) delegation: Option<&'h str>,
    /// The certificate from the connection's handshake.
    pub(crate) certificate: Option<&'h ClientCertificate>,
    /// Where the connection came from; absent where nobody connected.
    pub(crate) peer: Option<IpAddr>,
}

/// The address that a request's connection came from, as precisely as peers are distinguished.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl<'h> Credentials<'h> {
    /// Reads them; either header may be absent, neither may be repeated.
    pub(crate) fn of(headers: &'h HeaderMap) -> Result<Self, Refusal> {
        let read = |name: HeaderName| {
            at_most_one(headers, &name).map_err(|problem| {
                let message = format!("the header `{name}` {problem}");
                Refusal::new(ErrorCode::Unauthenticated, message)
            })
        };
        Ok(Self {
            authorization: read(http::header::AUTHORIZATION)?,
            delegation: read(DELEGATION)?,
            certificate: None,
            peer: None,
        })
    }
}

/// The value of a header that may be there once.
pub(crate) fn at_most_one<'h>(
    headers: &'h HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'h str>, &'static str> {
    let mut values = headers.get_all(name).iter();
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err("is there twice, send it once");
    }
    first.to_str().map(Some).map_err(|_invisible| "has characters other than visible ASCII")
}

/// The id in the path. A malformed one is answered as unknown.
#[derive(Debug, Clone)]
pub(crate) struct Id<T>(pub(crate) T);

impl<S: Send + Sync, T: FromStr> FromRequestParts<S> for Id<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Failure> {
        let path = Path::<String>::from_request_parts(parts, state).await.ok();
        path.and_then(|Path(text)| text.parse().ok()).map(Self).ok_or_else(Failure::unknown)
    }
}

/// A request of a verified caller without query parameters.
pub(crate) struct Plain {
    pub(crate) api: ApiState,
    pub(crate) caller: Arc<VerifiedCaller>,
}

impl FromRequestParts<ApiState> for Plain {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Failure> {
        let Caller(caller) = Caller::from_request_parts(parts, api).await?;
        NoQuery::from_request_parts(parts, api).await?;
        Ok(Self { api: api.clone(), caller })
    }
}

/// The same, about the object with the id in the path.
pub(crate) struct Entity<T> {
    pub(crate) api: ApiState,
    pub(crate) caller: Arc<VerifiedCaller>,
    pub(crate) id: T,
}

impl<T: FromStr + Send> FromRequestParts<ApiState> for Entity<T> {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, api: &ApiState) -> Result<Self, Failure> {
        let Id(id) = Id::from_request_parts(parts, api).await?;
        let Plain { api, caller } = Plain::from_request_parts(parts, api).await?;
        Ok(Self { api, caller, id })
    }
}

/// What the headers say about a call.
#[derive(Debug, Clone)]
pub(crate) struct CallHeaders {
    pub(crate) idempotency_key: Option<IdempotencyKey>,
    pub(crate) inbound: Inbound,
}

impl<S: Send + Sync> FromRequestParts<S> for CallHeaders {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Failure> {
        let refused =
            |problem: &str| Failure::malformed(format!("the header `Idempotency-Key` {problem}"));
        let idempotency_key = at_most_one(&parts.headers, &IDEMPOTENCY_KEY)
            .map_err(|problem| refused(problem).counted(Some(Attempt::Ambiguous)))?
            .map(|key| {
                IdempotencyKey::new(key).map_err(|error| refused(&format!("is refused: {error}")))
            })
            .transpose()?;
        Ok(Self { idempotency_key, inbound: inbound(&parts.headers) })
    }
}

impl CallHeaders {
    /// Joins the header with the body: both say the same key, or one of them says it.
    pub(crate) fn complete(
        self,
        mut submission: Submission,
    ) -> Result<(Submission, Inbound), Failure> {
        let said = submission.idempotency_key.take();
        submission.idempotency_key = self.key(said, "/idempotency_key")?;
        Ok((submission, self.inbound))
    }

    /// The same for a batch, whose id is its key.
    pub(crate) fn complete_batch(self, mut batch: Batch) -> Result<(Batch, Inbound), Failure> {
        let said = batch.batch_id.take();
        batch.batch_id = self.key(said, "/batch_id")?;
        Ok((batch, self.inbound))
    }

    fn key(
        &self,
        said: Option<IdempotencyKey>,
        pointer: &str,
    ) -> Result<Option<IdempotencyKey>, Failure> {
        let header = self.idempotency_key.as_ref();
        if header.zip(said.as_ref()).is_some_and(|(header, said)| header != said) {
            let problem = "the header `Idempotency-Key` says another key";
            let refusal =
                Refusal::new(ErrorCode::ValidationError, format!("{problem} than the body"));
            return Err(Failure::new(refusal.with_problem(pointer, problem))
                .counted(Some(Attempt::Ambiguous)));
        }
        Ok(said.or_else(|| header.cloned()))
    }
}

/// The trace context of a request. Malformed trace headers are dropped, as W3C Trace Context demands.
fn inbound(headers: &HeaderMap) -> Inbound {
    let traceparent = at_most_one(headers, &TRACEPARENT).ok().flatten();
    let traceparent =
        traceparent.filter(|text| text.len() <= TRACEPARENT_BYTES_MAX).map(str::to_owned);
    let states: Option<Vec<&str>> =
        headers.get_all(&TRACESTATE).iter().map(|value| value.to_str().ok()).collect();
    let tracestate = states.map(|states| states.join(",")).filter(|text| {
        traceparent.is_some() && !text.is_empty() && text.len() <= TRACESTATE_BYTES_MAX
    });
    Inbound { traceparent, tracestate }
}

#[cfg(test)]
mod tests;
