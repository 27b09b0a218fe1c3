//! An MCP client: rmcp's, either directly at the server or at Placet's `/mcp`, so that nothing else differs.
//!
//! Owns the connection and the call. An answer other than success ends the run.

use anyhow::{Context as _, Result, bail};
use http::{HeaderValue, Uri};
use rmcp::{
    model::{
        CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
        MetaObject, RequestMetaObject,
    },
    service::{ClientLifecycleMode, ClientServiceExt as _, Peer, RoleClient, RunningService},
    transport::{
        StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Map, json};
use url::Url;

use crate::{
    contract::CALLS_MAX,
    http_client::{self, HttpClient},
    peer,
};

/// As many as the highest concurrency of a comparison, and the stream of notifications.
const CONNECTIONS: usize = 257;

/// A connection to a server.
#[derive(Debug)]
pub(crate) struct McpClient {
    service: RunningService<RoleClient, ClientConfig>,
}

/// Makes calls over a connection.
#[derive(Debug, Clone)]
pub(crate) struct McpCaller {
    calls: Peer<RoleClient>,
    params: CallToolRequestParams,
}

impl McpClient {
    /// Connects to the server at `url`, which wants to see `authorization`, if anything.
    pub(crate) async fn connect(url: &Url, authorization: Option<HeaderValue>) -> Result<Self> {
        let ourselves = Implementation::new("placet-bench", env!("CARGO_PKG_VERSION"));
        let config = ClientConfig::new(ClientCapabilities::default(), ourselves)
            .with_protocol_version(peer::PROTOCOL);
        let client = http_client::egress(&[url], CONNECTIONS)?;
        let client = HttpClient::new(client, Uri::try_from(url.as_str())?, authorization);
        let settings = StreamableHttpClientTransportConfig::with_uri(url.as_str())
            .max_concurrent_requests(CONNECTIONS);
        let transport = StreamableHttpClientTransport::with_client(client, settings);
        let service = config.serve_with_lifecycle(transport, ClientLifecycleMode::Initialize).await;
        Ok(Self { service: service.context("no connection over MCP")? })
    }

    /// A caller of `tool` at the server itself.
    pub(crate) fn caller(&self, tool: &'static str) -> McpCaller {
        let params = CallToolRequestParams::new(tool).with_arguments(peer::arguments(tool));
        McpCaller { calls: self.service.peer().clone(), params }
    }

    /// A caller of `tool` of `adapter` through Placet, in a run that permits as many calls as are measured.
    pub(crate) fn governed_caller(&self, adapter: &str, tool: &str) -> McpCaller {
        let run = json!({"id": "bench-mcp", "safety_mode": "local_write", "budget": {"calls_max": CALLS_MAX}});
        let mut params = CallToolRequestParams::new(format!("{adapter}__{tool}"))
            .with_arguments(peer::arguments(tool));
        let meta = Map::from_iter([("io.placet/run".to_owned(), run)]);
        params.meta = Some(RequestMetaObject(MetaObject(meta)));
        McpCaller { calls: self.service.peer().clone(), params }
    }

    /// Ends the connection.
    pub(crate) async fn close(self) -> Result<()> {
        self.service.cancel().await.context("the connection over MCP does not end").map(drop)
    }
}

impl McpCaller {
    /// Makes the call.
    pub(crate) async fn call(self) -> Result<()> {
        let answer =
            self.calls.call_tool_once(self.params).await.context("a call over MCP failed")?;
        let CallToolResponse::Complete(result) = answer else {
            bail!("a call over MCP was answered with something else than a result");
        };
        if result.is_error == Some(true) {
            bail!("a call over MCP did not succeed: {}", serde_json::to_string(&result)?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use placet_types::contract::LiveTool;
    use serde_json::Value;
    use tokio::net::TcpListener;

    use super::McpClient;
    use crate::{
        contract,
        peer::{self, LOOK, NOTE},
    };

    async fn connected() -> (McpClient, url::Url) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        tokio::spawn(async { axum::serve(listener, peer::router()).await.unwrap() });
        (McpClient::connect(&url, None).await.unwrap(), url)
    }

    #[tokio::test]
    async fn a_direct_call_reaches_the_server() {
        let (direct, _) = connected().await;
        for tool in [LOOK, NOTE] {
            direct.caller(tool).call().await.unwrap();
        }
        let refused = direct.caller("burn").call().await.unwrap_err();
        assert_eq!(refused.to_string(), "a call over MCP failed");
        direct.close().await.unwrap();
    }

    #[tokio::test]
    async fn the_pins_are_those_of_the_live_tools() {
        let (direct, url) = connected().await;
        let contract = contract::mcp(&url, contract::WEB, "local_write").unwrap();
        let tools = direct.service.list_all_tools().await.unwrap();
        assert_eq!(tools.len(), 2);
        for tool in tools {
            let live = LiveTool {
                name: tool.name.to_string(),
                title: tool.title.clone(),
                description: tool.description.clone().unwrap_or_default().into_owned(),
                input_schema: Value::Object((*tool.input_schema).clone()),
                output_schema: None,
                annotations: None,
                task_only: false,
            };
            let pinned = contract.capabilities[&tool.name.parse().unwrap()].pin;
            assert_eq!(pinned, Some(live.digest(&contract.adapter)), "{}", tool.name);
        }
        direct.close().await.unwrap();
    }
}
