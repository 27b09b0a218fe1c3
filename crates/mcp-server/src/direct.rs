//! Calls that are answered without the SDK's session in between: those that end at once, as permitted reads do.
//!
//! Owns which requests qualify: a plain `tools/call` in a session. Everything else, and a call that is held, takes longer or reports
//! progress, goes to the SDK, which answers it as if it had come there first: a call that was begun travels with its request. Invariants:
//! nothing is refused here that the SDK would accept, and nothing is accepted that it would refuse; a call is submitted once.

use std::{pin::pin, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::Response,
};
use futures::future::OptionFuture;
use http::{HeaderMap, StatusCode, header};
use rmcp::{
    RoleServer,
    model::{CallToolRequestParams, JsonObject, MetaObject, RequestId, RequestMetaObject},
    service::Peer,
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    bodies::Document,
    calls::{self, Begun, Handed},
    results::{self, result_of},
    shared::{Asking, Shared},
    tools::{self, AWAIT},
};

/// How long a call answered here may take: long enough for one that waits for nobody, too short for a client to notice.
const SOON: Duration = Duration::from_millis(500);
/// The revisions with sessions in which such calls occur.
const REVISIONS: [&str; 2] = ["2025-06-18", "2025-11-25"];
/// The prefix of the metadata keys that the SDK reads.
const RESERVED: &str = "io.modelcontextprotocol/";

/// Answers what can be answered at once; everything else is the SDK's.
pub(crate) async fn answer(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    let document = request.extensions_mut().remove::<Document>();
    let id = document.as_ref().and_then(|Document(document)| {
        let id = document.get("id")?;
        serde_json::from_value::<RequestId>(id.clone()).ok()
    });
    let plain = document.and_then(|Document(document)| {
        Plain::of(&shared, &request, Arc::unwrap_or_clone(document))
    });
    if let Some(plain) = plain {
        match plain.answered(&shared).await {
            Ok(response) => return response,
            Err(begun) => {
                request.extensions_mut().insert(Handed::new(begun));
            }
        }
    }
    let response = next.run(request).await;
    match id {
        // The SDK's plain text for a request whose session or service ended before it was answered.
        Some(id) if response.status() == StatusCode::INTERNAL_SERVER_ERROR => {
            results::response(id, Err(results::unanswered()))
        }
        Some(_) | None => response,
    }
}

/// A call that may be answered at once.
struct Plain<'a> {
    asking: Asking<'a>,
    id: RequestId,
    meta: RequestMetaObject,
    params: CallToolRequestParams,
}

impl<'a> Plain<'a> {
    fn of(shared: &Shared, request: &'a Request, document: Value) -> Option<Self> {
        let Value::Object(mut message) = document else { return None };
        if message.len() != 4
            || message.get("jsonrpc").and_then(Value::as_str) != Some("2.0")
            || message.get("method").and_then(Value::as_str) != Some("tools/call")
            || !are_plain(request.headers())
        {
            return None;
        }
        let mut asking = Asking::of(request.headers(), request.extensions(), None)?;
        let id: RequestId = serde_json::from_value(message.remove("id")?).ok()?;
        let (meta, mut params) = params_of(message.remove("params")?)?;
        if params.name == AWAIT {
            return None;
        }
        let session = shared.sessions.near(asking.session?)?;
        asking.client = session.peer().and_then(client_of);
        params.name = tools::full_name(&params.name, asking.adapter).into();
        Some(Self { asking, id, meta, params })
    }

    /// The answer, if the call ends soon; otherwise the call that was begun.
    async fn answered(self, shared: &Shared) -> Result<Response, Begun> {
        let Self { asking, id, meta, params } = self;
        let of = shared.of(&asking.caller, &params.name);
        let begun = match calls::begin(shared, &asking, &params, &id, &meta).await {
            Ok(Ok(begun)) => begun,
            Ok(Err(refusal)) => {
                return Ok(results::response(id, Ok(results::refused(&refusal, of))));
            }
            Err(error) => return Ok(results::response(id, Err(error))),
        };
        let mut steps = meta.get_progress_token().and_then(|_| begun.ticket.steps());
        let mut waiting = Waiting { shared, begun: Some(begun) };
        let mut revoked = pin!(shared.engine.revoked(Arc::clone(&asking.caller)));
        let ended = match &mut waiting.begun {
            Some(begun) => tokio::select! {
                biased;
                refusal = &mut revoked => Some(Err(refusal)),
                Some(_) = OptionFuture::from(steps.as_mut().map(|steps| {
                    steps.wait_for(|steps| !steps.is_empty())
                })) => None,
                answer = begun.ticket.settled(0) => Some(Ok(answer)),
                () = sleep(SOON) => None,
            },
            None => None,
        };
        let Some(begun) = waiting.begun.take() else {
            return Ok(results::response(id, Err(results::unanswered())));
        };
        // A step may have come with the answer.
        let is_counted = steps.is_some_and(|steps| !steps.borrow().is_empty());
        match ended {
            Some(Ok(answer)) if answer.is_final() && !is_counted => {
                begun.ended(shared, asking.session, &id);
                Ok(results::response(id, result_of(&answer, of)))
            }
            Some(Err(refusal)) => Ok(results::response(id, Ok(results::refused(&refusal, of)))),
            Some(Ok(_)) | None => Err(begun),
        }
    }
}

/// A call whose client waits. If the client goes away, the call is remembered, as everywhere else.
struct Waiting<'a> {
    shared: &'a Shared,
    begun: Option<Begun>,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            begun.remembered(self.shared);
        }
    }
}

/// Whether the SDK would accept these headers.
fn are_plain(headers: &HeaderMap) -> bool {
    let one = |name: &str| {
        let mut values = headers.get_all(name).iter();
        let first = values.next().and_then(|value| value.to_str().ok());
        first.filter(|_| values.next().is_none())
    };
    let types = |name: &str, wanted: &str| {
        one(name).is_some_and(|value| value.split(',').any(|one| one.trim() == wanted))
    };
    let accept = header::ACCEPT.as_str();
    types(accept, "application/json")
        && types(accept, "text/event-stream")
        && types(header::CONTENT_TYPE.as_str(), "application/json")
        && one("mcp-protocol-version").is_some_and(|spoken| REVISIONS.contains(&spoken))
}

/// The metadata and the other parameters, if they concern only the tool and us.
fn params_of(params: Value) -> Option<(RequestMetaObject, CallToolRequestParams)> {
    let Value::Object(mut params) = params else { return None };
    let meta = match params.remove("_meta") {
        Some(Value::Object(meta)) => meta,
        None => JsonObject::new(),
        Some(_) => return None,
    };
    let is_ours = |key: &String| !key.starts_with(RESERVED);
    let Value::String(name) = params.remove("name")? else { return None };
    let arguments = match params.remove("arguments") {
        Some(Value::Object(arguments)) => Some(arguments),
        None => None,
        Some(_) => return None,
    };
    if !params.is_empty() || !meta.keys().all(is_ours) {
        return None;
    }
    let mut call = CallToolRequestParams::new(name);
    call.arguments = arguments;
    Some((RequestMetaObject(MetaObject(meta)), call))
}

/// The name that a client gave when its session began.
fn client_of(peer: &Peer<RoleServer>) -> Option<String> {
    peer.peer_info().map(|info| info.client_info.name.clone())
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};
    use serde_json::json;

    use super::{are_plain, params_of};

    fn headers(of: &[(&'static str, &'static str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        of.iter().map(pair).collect()
    }

    #[test]
    fn only_headers_that_leave_no_question_are_plain() {
        let accept = ("accept", "application/json, text/event-stream");
        let (json, spoken) =
            (("content-type", "application/json"), ("mcp-protocol-version", "2025-11-25"));
        assert!(are_plain(&headers(&[accept, json, spoken])));
        for unclear in [
            vec![json, spoken],
            vec![accept, spoken],
            vec![accept, json],
            vec![("accept", "application/json"), json, spoken],
            vec![("accept", "application/json;q=0, text/event-stream"), json, spoken],
            vec![accept, ("content-type", "text/plain"), spoken],
            vec![accept, json, ("mcp-protocol-version", "2026-07-28")],
            vec![accept, json, ("mcp-protocol-version", "1999-01-01")],
        ] {
            assert!(!are_plain(&headers(&unclear)), "{unclear:?}");
        }
        let mut twice = headers(&[accept, json, spoken]);
        twice.append("mcp-protocol-version", HeaderValue::from_static("2025-11-25"));
        assert!(!are_plain(&twice));
    }

    #[test]
    fn only_parameters_that_are_for_the_tool_and_us_are_plain() {
        let meta = json!({"io.placet/run": "r", "progressToken": 1});
        let plain = json!({"name": "a__b", "arguments": {"x": 1}, "_meta": meta});
        let (meta, params) = params_of(plain).unwrap();
        assert_eq!((params.name.as_ref(), meta.0.0.len()), ("a__b", 2));
        assert_eq!(params.arguments.unwrap()["x"], json!(1));
        assert!(params_of(json!({"name": "a__b"})).is_some());
        for other in [
            json!({"name": 1}),
            json!({"arguments": {}}),
            json!({"name": "a", "arguments": []}),
            json!({"name": "a", "_meta": []}),
            json!({"name": "a", "_meta": {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}}),
            json!({"name": "a", "requestState": "s"}),
            json!({"name": "a", "inputResponses": {}}),
            json!({"name": "a", "task": {}}),
            json!([]),
        ] {
            assert!(params_of(other.clone()).is_none(), "{other}");
        }
    }
}
