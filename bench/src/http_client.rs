//! rmcp's streamable HTTP client over `placet-egress`: the same HTTP stack as the engine's, so that a comparison compares the
//! governing and not two HTTP libraries.
//!
//! Owns the three requests of the transport. It supports one well-behaved server.

use std::{collections::HashMap, sync::Arc};

use bytes::{Bytes, BytesMut};
use futures::{StreamExt as _, stream::BoxStream};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, header,
};
use http_body_util::BodyExt as _;
use placet_egress::{
    Destination, EgressBody, EgressClient, EgressError, EgressPolicy, Limits, PrivateRanges,
};
use rmcp::{
    model::ClientJsonRpcMessage,
    transport::streamable_http_client::{
        SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
    },
};
use sse_stream::{Sse, SseStream};
use url::Url;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const EVENTS: &str = "text/event-stream";

type Http = StreamableHttpError<HttpFault>;

/// Why an exchange failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpFault {
    /// It was not completed.
    #[error(transparent)]
    Egress(#[from] EgressError),
    /// The server answered with a failure status.
    #[error("http status {0}")]
    Status(StatusCode),
    /// A value is not a valid header.
    #[error("it is no header")]
    Header,
}

impl From<HttpFault> for Http {
    fn from(fault: HttpFault) -> Self {
        Self::Client(fault)
    }
}

/// A client that may reach one server on loopback, keeping `connections` open.
pub(crate) fn egress(servers: &[&Url], connections: usize) -> Result<EgressClient, EgressError> {
    let destinations = servers
        .iter()
        .map(|url| Destination::from_url(url, PrivateRanges::Allowed))
        .collect::<Result<_, _>>()?;
    let limits = Limits {
        pool_idle_connections_max: connections,
        idle_timeout_ms: 3_600_000,
        ..Limits::default()
    };
    EgressClient::new(EgressPolicy::new(destinations), limits)
}

/// The client of one server.
#[derive(Debug, Clone)]
pub(crate) struct HttpClient {
    client: EgressClient,
    uri: Uri,
    authorization: Option<HeaderValue>,
}

impl HttpClient {
    /// A client for the server at `uri`, which wants to see `authorization`, if anything.
    pub(crate) fn new(client: EgressClient, uri: Uri, authorization: Option<HeaderValue>) -> Self {
        Self { client, uri, authorization }
    }

    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response<EgressBody>, Http> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        if let Some(authorization) = &self.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization.clone());
        }
        let response = self.client.stream(request).await.map_err(HttpFault::from)?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(HttpFault::Status(response.status()).into())
        }
    }
}

fn headers(
    custom: HashMap<HeaderName, HeaderValue>,
    session_id: Option<&str>,
    accept: &'static str,
) -> Result<HeaderMap, Http> {
    let mut headers: HeaderMap = custom.into_iter().collect();
    headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
    if let Some(session_id) = session_id {
        headers.insert(
            SESSION_ID,
            HeaderValue::from_str(session_id).map_err(|_error| HttpFault::Header)?,
        );
    }
    Ok(headers)
}

fn header_text(response: &Response<EgressBody>, name: &HeaderName) -> Option<String> {
    response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

impl StreamableHttpClient for HttpClient {
    type Error = HttpFault;

    async fn post_message(
        &self,
        _uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session_id: Option<Arc<str>>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, Http> {
        let body = serde_json::to_vec(&message)?;
        let mut headers =
            headers(custom_headers, session_id.as_deref(), "application/json, text/event-stream")?;
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = self.send(Method::POST, headers, body.into()).await?;
        if response.status() == StatusCode::ACCEPTED {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        let session_id = header_text(&response, &SESSION_ID);
        let kind = header_text(&response, &header::CONTENT_TYPE);
        if kind.as_deref().is_some_and(|kind| kind.starts_with(EVENTS)) {
            return Ok(StreamableHttpPostResponse::Sse(
                SseStream::new(response.into_body()).boxed(),
                session_id,
            ));
        }
        let mut body = response.into_body();
        let mut whole = BytesMut::new();
        while let Some(frame) = body.frame().await {
            if let Some(data) = frame.map_err(HttpFault::from)?.data_ref() {
                whole.extend_from_slice(data);
            }
        }
        Ok(StreamableHttpPostResponse::Json(serde_json::from_slice(&whole)?, session_id))
    }

    async fn delete_session(
        &self,
        _uri: Arc<str>,
        session_id: Arc<str>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), Http> {
        let headers = headers(custom_headers, Some(&session_id), "application/json")?;
        self.send(Method::DELETE, headers, Bytes::new()).await.map(drop)
    }

    async fn get_stream(
        &self,
        _uri: Arc<str>,
        session_id: Option<Arc<str>>,
        last_event_id: Option<String>,
        _auth_header: Option<String>,
        custom_headers: HashMap<HeaderName, HeaderValue>,
    ) -> Result<BoxStream<'static, Result<Sse, SseError>>, Http> {
        let mut headers = headers(custom_headers, session_id.as_deref(), EVENTS)?;
        if let Some(id) = last_event_id {
            headers.insert(
                LAST_EVENT_ID,
                HeaderValue::from_str(&id).map_err(|_error| HttpFault::Header)?,
            );
        }
        let response = self.send(Method::GET, headers, Bytes::new()).await?;
        Ok(SseStream::new(response.into_body()).boxed())
    }
}
