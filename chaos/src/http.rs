//! The HTTP client of clients, approvers and operators.
//!
//! Owns one exchange and how its loss is classified. Opens its connections through `placet-egress`, to the named nodes only.
//! Invariant: no request is ever sent twice without the caller's knowledge.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, header, request::Builder};
use placet_egress::{Destination, EgressClient, EgressError, EgressPolicy, Limits, PrivateRanges};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;
use url::Url;

use crate::history::request::Loss;

const DELEGATION: HeaderName = HeaderName::from_static("placet-delegation");

/// The revision of MCP in which calls are made: the one without sessions, so that each request may go to any node.
pub(crate) const MCP_REVISION: &str = "2026-07-28";

/// The listeners of all nodes.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    client: EgressClient,
    nodes: Vec<Url>,
}

/// The caller's credentials.
#[derive(Debug, Clone)]
pub(crate) struct Bearer {
    token: HeaderValue,
    delegation: Option<HeaderValue>,
}

impl Bearer {
    pub(crate) fn new(token: &str) -> Result<Self> {
        let mut token =
            HeaderValue::try_from(format!("Bearer {token}")).context("the token is no header")?;
        token.set_sensitive(true);
        Ok(Self { token, delegation: None })
    }

    /// On behalf of the user whose token this is.
    pub(crate) fn on_behalf(mut self, token: &str) -> Result<Self> {
        let mut token = HeaderValue::try_from(token).context("the token is no header")?;
        token.set_sensitive(true);
        self.delegation = Some(token);
        Ok(self)
    }
}

#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) date: Option<String>,
    pub(crate) body: Bytes,
}

impl Answered {
    /// Its JSON document, or null.
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }
}

impl Api {
    pub(crate) fn new(nodes: Vec<Url>, request_timeout: Duration) -> Result<Self> {
        let destinations = nodes
            .iter()
            .map(|url| Destination::from_url(url, PrivateRanges::Allowed))
            .collect::<Result<_, _>>()?;
        let limits = Limits {
            connect_timeout_ms: 3_000,
            request_timeout_ms: u64::try_from(request_timeout.as_millis()).unwrap_or(u64::MAX),
            pool_idle_connections_max: 64,
            response_bytes_max: 64 * 1024 * 1024,
            ..Limits::default()
        };
        Ok(Self { client: EgressClient::new(EgressPolicy::new(destinations), limits)?, nodes })
    }

    pub(crate) const fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) async fn post(
        &self,
        node: usize,
        path: &str,
        bearer: &Bearer,
        body: Bytes,
    ) -> Result<Answered, Loss> {
        self.exchange(node, Method::POST, path, Some(bearer), body).await
    }

    pub(crate) async fn call_over_mcp(
        &self,
        node: usize,
        tool: &str,
        bearer: &Bearer,
        body: Bytes,
    ) -> Result<Answered, Loss> {
        let request = self.request(node, Method::POST, "/mcp", Some(bearer))?;
        let request = request
            .header(header::ACCEPT, "application/json, text/event-stream")
            .header("mcp-protocol-version", MCP_REVISION)
            .header("mcp-method", "tools/call")
            .header("mcp-name", tool);
        self.send(request, body).await
    }

    pub(crate) async fn get(
        &self,
        node: usize,
        path: &str,
        bearer: &Bearer,
    ) -> Result<Answered, Loss> {
        self.exchange(node, Method::GET, path, Some(bearer), Bytes::new()).await
    }

    /// Reads a list to its last page, without elements that are no `T`; `None` if a page does not come. `path` has a query.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        node: usize,
        path: &str,
        bearer: &Bearer,
        name: &str,
    ) -> Option<Vec<T>> {
        let (mut rows, mut after) = (Vec::new(), String::new());
        loop {
            let answer = self.get(node, &format!("{path}{after}"), bearer).await.ok()?;
            if answer.status != 200 {
                return None;
            }
            let document = answer.json();
            let page = document.get(name)?.as_array()?;
            rows.extend(page.iter().filter_map(|row| T::deserialize(row).ok()));
            match document.get("next_after").and_then(Value::as_str) {
                Some(next) if !page.is_empty() => after = format!("&after={next}"),
                _ => return Some(rows),
            }
        }
    }

    /// Whether the node answers 200 at `path` within `limit`.
    pub(crate) async fn is_well(&self, node: usize, path: &str, limit: Duration) -> bool {
        let asked = self.exchange(node, Method::GET, path, None, Bytes::new());
        matches!(timeout(limit, asked).await, Ok(Ok(answer)) if answer.status == 200)
    }

    async fn exchange(
        &self,
        node: usize,
        method: Method,
        path: &str,
        bearer: Option<&Bearer>,
        body: Bytes,
    ) -> Result<Answered, Loss> {
        let request = self.request(node, method, path, bearer)?;
        self.send(request, body).await
    }

    fn request(
        &self,
        node: usize,
        method: Method,
        path: &str,
        bearer: Option<&Bearer>,
    ) -> Result<Builder, Loss> {
        let url = self.nodes.get(node).and_then(|base| base.join(path).ok());
        let url = url.ok_or(Loss::NotConnected)?;
        let mut request = Request::builder().method(method).uri(url.as_str());
        if let Some(bearer) = bearer {
            request = request.header(header::AUTHORIZATION, bearer.token.clone());
            if let Some(delegation) = &bearer.delegation {
                request = request.header(DELEGATION, delegation.clone());
            }
        }
        Ok(request)
    }

    async fn send(&self, mut request: Builder, body: Bytes) -> Result<Answered, Loss> {
        if !body.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(body).map_err(|_malformed| Loss::NotConnected)?;
        match self.client.send(request).await {
            Ok(answer) => {
                let date = answer.headers().get(header::DATE);
                let date = date.and_then(|date| date.to_str().ok()).map(str::to_owned);
                Ok(Answered { status: answer.status().as_u16(), date, body: answer.into_body() })
            }
            Err(error) if error.nothing_was_sent() => Err(Loss::NotConnected),
            Err(EgressError::DeadlineExceeded { .. } | EgressError::IdleTimeout { .. }) => {
                Err(Loss::TimedOut)
            }
            Err(_) => Err(Loss::Broken),
        }
    }
}
