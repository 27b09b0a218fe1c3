//! OTLP over HTTP through `placet-egress`.
//!
//! Owns the bridge between the SDK's idea of an HTTP client and ours, and the configured headers. Does not own the
//! allow-list. Invariant: headers are marked sensitive and never printed.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use opentelemetry_http::{HttpClient, HttpError};
use placet_egress::EgressClient;
use tokio::runtime::Handle;
use tokio::time::timeout;

/// The client of the exporter. It is polled on the SDK's own thread, so every exchange runs as a task of our runtime.
#[derive(Debug)]
pub(crate) struct EgressHttpClient {
    pub(crate) egress: EgressClient,
    pub(crate) headers: HeaderMap,
    pub(crate) timeout: Duration,
    pub(crate) runtime: Handle,
}

#[async_trait]
impl HttpClient for EgressHttpClient {
    async fn send_bytes(&self, mut request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        let egress = self.egress.clone();
        let limit = self.timeout;
        let exchange =
            self.runtime.spawn(async move { timeout(limit, egress.send(request)).await });
        Ok(exchange.await???)
    }
}
