//! A client of the HTTP listeners that expects things: every answer is checked where it is read.
//!
//! Owns the reading of answers and of server-sent events. Opens its connections through `placet-egress`, as the program does.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, header, request::Builder};
use http_body_util::BodyExt as _;
use placet_egress::{
    Destination, EgressBody, EgressClient, EgressPolicy, Limits, PrivateRanges, Trust,
};
use serde_json::{Value, json};
use url::Url;

use super::within;

/// How long it may take until one node tells what happened on another; a comment comes meanwhile.
const NEWS_WITHIN: Duration = Duration::from_secs(60);

/// A client with the token of one principal.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    base: Url,
    http: EgressClient,
    pub(crate) token: Option<String>,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Client {
    pub(crate) fn new(base: Url, token: Option<String>) -> Self {
        Self::trusting(base, token, &Trust::default())
    }

    /// A client with roots of its own, and perhaps a certificate.
    pub(crate) fn trusting(base: Url, token: Option<String>, trust: &Trust) -> Self {
        let destination = Destination::from_url(&base, PrivateRanges::Allowed).unwrap();
        let limits = Limits {
            request_bytes_max: 64 * 1024 * 1024,
            request_timeout_ms: 60_000,
            ..Limits::default()
        };
        let policy = EgressPolicy::new(vec![destination]);
        let http = EgressClient::with_trust(policy, limits, trust).unwrap();
        Self { base, http, token }
    }

    /// A request with this client's token.
    pub(crate) fn request(&self, method: Method, path: &str) -> Builder {
        let mut request =
            Request::builder().method(method).uri(self.base.join(path).unwrap().as_str());
        if let Some(token) = &self.token {
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        request
    }

    pub(crate) async fn send(&self, request: Request<Bytes>) -> Reply {
        let what = format!("{} {}", request.method(), request.uri());
        let answer = within(&what, self.http.send(request)).await;
        let answer = answer.unwrap_or_else(|error| panic!("{what}: {error}"));
        let (parts, body) = answer.into_parts();
        Reply { status: parts.status.as_u16(), headers: parts.headers, body }
    }

    /// Whether anybody answers at all.
    pub(crate) async fn is_answered(&self, path: &str) -> bool {
        self.is_answered_to(self.request(Method::GET, path).body(Bytes::new()).unwrap()).await
    }

    /// Whether a request gets an answer, whatever it is.
    pub(crate) async fn is_answered_to(&self, request: Request<Bytes>) -> bool {
        self.http.send(request).await.is_ok()
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(self.request(Method::GET, path).body(Bytes::new()).unwrap()).await
    }

    pub(crate) async fn post(&self, path: &str, document: &Value) -> Reply {
        self.post_text(path, serde_json::to_vec(document).unwrap()).await
    }

    /// Posts something as JSON, whether it is or not.
    pub(crate) async fn post_text(&self, path: &str, body: impl Into<Bytes>) -> Reply {
        let request =
            self.request(Method::POST, path).header(header::CONTENT_TYPE, "application/json");
        self.send(request.body(body.into()).unwrap()).await
    }

    pub(crate) async fn call(&self, submission: &Value) -> Reply {
        self.post("/v1/calls", submission).await
    }

    /// A call with one more header.
    pub(crate) async fn call_with(&self, submission: &Value, name: &str, value: &str) -> Reply {
        let request = self
            .request(Method::POST, "/v1/calls")
            .header(header::CONTENT_TYPE, "application/json");
        self.send(
            request
                .header(name, value)
                .body(serde_json::to_vec(submission).unwrap().into())
                .unwrap(),
        )
        .await
    }

    /// How a call stands, waiting for its end.
    pub(crate) async fn end_of(&self, call_id: &str) -> Reply {
        self.get(&format!("/v1/calls/{call_id}?wait_ms=20000")).await
    }

    /// Decides an approval on the digest of what is shown.
    pub(crate) async fn decide(&self, held: &Value, decision: &str) -> Reply {
        let id = text(held, "approval_id");
        let shown = self.get(&format!("/v1/approvals/{id}")).await.ok();
        let digest = text(&shown["approval"], "digest");
        self.decide_on(&id, decision, &digest).await
    }

    /// Decides an approval on a digest.
    pub(crate) async fn decide_on(&self, id: &str, decision: &str, digest: &str) -> Reply {
        let request = json!({ "decision": decision, "reason": "looked at it", "digest": digest });
        self.post(&format!("/v1/approvals/{id}/decisions"), &request).await
    }

    /// Follows a call.
    pub(crate) async fn events(&self, call_id: &str) -> Events {
        self.follow(&format!("/v1/calls/{call_id}/events")).await
    }

    /// Follows the approval service.
    pub(crate) async fn approval_events(&self) -> Events {
        self.follow("/v1/approvals/events").await
    }

    async fn follow(&self, path: &str) -> Events {
        let request = self.request(Method::GET, path);
        let request =
            request.header(header::ACCEPT, "text/event-stream").body(Bytes::new()).unwrap();
        let answer = within("events", self.http.stream(request)).await.unwrap();
        assert_eq!(answer.status().as_u16(), 200);
        assert_eq!(answer.headers()[header::CONTENT_TYPE], "text/event-stream");
        Events { body: answer.into_body(), text: String::new() }
    }
}

impl Reply {
    /// The document, whatever the status.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.to_vec()).unwrap()
    }

    /// The document of a success.
    pub(crate) fn ok(&self) -> Value {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()
    }

    /// The result of a call that was executed and succeeded.
    pub(crate) fn succeeded(&self) -> Value {
        let result = self.ok();
        assert_eq!(result["envelope_version"], "contextos.tool_result.v1", "{result:#}");
        assert_eq!(result["status"], "succeeded", "{result:#}");
        result
    }

    /// What a held call waits for, with its ids.
    pub(crate) fn held(&self) -> Value {
        assert_eq!(self.status, 202, "{self:?}");
        let result = self.json();
        assert_eq!(result["envelope_version"], "contextos.tool_result.v1", "{result:#}");
        assert_eq!(result["status"], "pending", "{result:#}");
        assert_eq!(result["error"]["error_code"], "APPROVAL_PENDING", "{result:#}");
        let mut held = result["pending_approval"].clone();
        for (name, member) in
            [("call_id", "tool_call_id"), ("approval_id", "approval_id"), ("trace_id", "trace_id")]
        {
            held[name] = result[member].clone();
        }
        let location = format!("/v1/calls/{}", text(&held, "call_id"));
        assert_eq!(self.headers[header::LOCATION], location.as_str());
        held
    }

    /// The problem document of a refusal with this status and code.
    pub(crate) fn refused(&self, status: u16, code: &str) -> Value {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(self.headers[header::CONTENT_TYPE], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["error_code"], code, "{problem:#}");
        assert_eq!(problem["type"], format!("/errors/{code}"));
        assert_eq!(problem["status"], status);
        for name in ["title", "detail", "remediation"] {
            assert!(!text(&problem, name).is_empty(), "{problem:#}");
        }
        if let Some(result) = problem.get("result") {
            assert_eq!(result["envelope_version"], "contextos.tool_result.v1", "{problem:#}");
            assert_eq!(result["tool_call_id"], problem["call_id"], "{problem:#}");
        }
        problem
    }

    /// The places to correct that a refusal names.
    pub(crate) fn pointers(&self) -> Vec<String> {
        let problem = self.json();
        let places = problem["problems"].as_array().cloned().unwrap_or_default();
        places.iter().map(|place| text(place, "pointer")).collect()
    }
}

/// A member that is a text.
pub(crate) fn text(document: &Value, name: &str) -> String {
    document[name].as_str().unwrap_or_else(|| panic!("no `{name}` in {document:#}")).to_owned()
}

/// Server-sent events as they come in.
#[derive(Debug)]
pub(crate) struct Events {
    body: EgressBody,
    text: String,
}

impl Events {
    /// The first news of the approval service of this kind of this approval.
    pub(crate) async fn until(&mut self, kind: &str, approval_id: &str) -> Value {
        let mut others = Vec::new();
        let found = tokio::time::timeout(NEWS_WITHIN, async {
            loop {
                let (name, data) = self.next().await.expect("the stream has ended");
                // What was missed may be what is waited for.
                assert_eq!(name, "approvals", "{data:#}");
                if data["kind"] == kind && data["approval_id"] == approval_id {
                    return data;
                }
                others.push(data);
            }
        });
        let found = found.await.ok();
        found.unwrap_or_else(|| panic!("no `{kind}` of {approval_id} among {others:?}"))
    }

    /// The name and the data of the next one; `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let event = parsed(block);
                self.text = rest.to_owned();
                if event.is_some() {
                    return event;
                }
            }
            let frame = within("the next event", self.body.frame()).await?;
            let data = frame.unwrap().into_data().unwrap();
            self.text.push_str(std::str::from_utf8(&data).unwrap());
        }
    }
}

/// An event; comments are none.
fn parsed(block: &str) -> Option<(String, Value)> {
    let field = |name: &str| {
        block.lines().find_map(|line| line.strip_prefix(name).map(|rest| rest.trim().to_owned()))
    };
    Some((field("event:")?, serde_json::from_str(&field("data:")?).unwrap()))
}
