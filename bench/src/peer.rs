//! The MCP server that is called, directly and through Placet: one read, one write to memory.
//!
//! Owns its two tools. It is rmcp's own server over HTTP, in a process of its own, the same for both kinds of callers.

use std::{
    collections::VecDeque, net::Ipv4Addr, path::Path, process::Stdio, sync::Arc, time::Duration,
};

use parking_lot::Mutex;

use anyhow::{Context as _, Result};
use axum::serve::ListenerExt as _;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, Implementation,
        ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities, ServerConfig,
        Tool,
    },
    service::RequestContext,
    transport::{
        StreamableHttpServerConfig, StreamableHttpService,
        streamable_http_server::session::local::LocalSessionManager,
    },
};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
    time::timeout,
};

/// The revision of both sides.
pub(crate) const PROTOCOL: ProtocolVersion = ProtocolVersion::V_2025_11_25;
/// The tool that reads.
pub(crate) const LOOK: &str = "look";
/// The tool that writes.
pub(crate) const NOTE: &str = "note";

const NOTES_MAX: usize = 1_024;
const START: Duration = Duration::from_secs(20);

/// One tool as the server defines it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Definition {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) description: &'static str,
    /// Its one argument, a text.
    pub(crate) argument: &'static str,
}

/// What the server offers.
pub(crate) const TOOLS: [Definition; 2] = [
    Definition { name: LOOK, description: "Looks a note up.", argument: "path" },
    Definition { name: NOTE, description: "Keeps a note in memory.", argument: "text" },
];

impl Definition {
    /// The JSON Schema of its arguments.
    pub(crate) fn schema(&self) -> Map<String, Value> {
        let text = json!({"type": "string", "maxLength": 1_024});
        let properties = Map::from_iter([(self.argument.to_owned(), text)]);
        Map::from_iter([
            ("type".to_owned(), json!("object")),
            ("properties".to_owned(), Value::Object(properties)),
            ("required".to_owned(), json!([self.argument])),
            ("additionalProperties".to_owned(), json!(false)),
        ])
    }
}

/// Arguments for a tool.
pub(crate) fn arguments(tool: &str) -> Map<String, Value> {
    let (argument, text) = if tool == LOOK {
        ("path", "notes/today.txt")
    } else {
        ("text", "water the plants, feed the cat")
    };
    Map::from_iter([(argument.to_owned(), json!(text))])
}

/// The server's memory.
#[derive(Debug, Clone, Default)]
struct Notes(Arc<Mutex<VecDeque<String>>>);

impl Notes {
    fn call(&self, request: &CallToolRequestParams) -> Result<CallToolResult, ErrorData> {
        let wrong = |why: &'static str| ErrorData::invalid_params(why, None);
        let text = |name: &str| {
            request.arguments.as_ref().and_then(|args| args.get(name)).and_then(Value::as_str)
        };
        let mut notes = self.0.lock();
        let said = match request.name.as_ref() {
            LOOK => format!(
                "{}: {}",
                text("path").ok_or_else(|| wrong("no path"))?,
                "buy milk and bread, answer the letter"
            ),
            NOTE => {
                let note = text("text").ok_or_else(|| wrong("no text"))?.to_owned();
                notes.push_back(note);
                if notes.len() > NOTES_MAX {
                    notes.pop_front();
                }
                "noted".to_owned()
            }
            _ => return Err(wrong("no such tool")),
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(said)]))
    }
}

impl ServerHandler for Notes {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_protocol_version(PROTOCOL)
            .with_server_info(Implementation::new("notes", "1"))
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = TOOLS.map(|tool| Tool::new(tool.name, tool.description, tool.schema()));
        Ok(ListToolsResult::with_all_items(tools.to_vec()))
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        self.call(&request).map(CallToolResponse::from)
    }
}

/// The server over HTTP.
pub(crate) fn router() -> axum::Router {
    let notes = Notes::default();
    let service = StreamableHttpService::new(
        move || Ok(notes.clone()),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    axum::Router::new().route_service("/mcp", service)
}

/// Serves on a free port of loopback, prints it, and ends when its standard input does, so that it cannot outlive its parent.
pub(crate) async fn serve() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.context("no port is free")?;
    let address = listener.local_addr().context("the listener has no address")?;
    crate::say(&mut std::io::stdout().lock(), &format!("http://{address}/mcp"));
    // Otherwise a delayed acknowledgement of 40 ms is all that would be measured. A socket without the option still serves.
    let listener = listener.tap_io(|stream| stream.set_nodelay(true).unwrap_or_default());
    let mut input = BufReader::new(tokio::io::stdin()).lines();
    tokio::select! {
        served = std::future::IntoFuture::into_future(axum::serve(listener, router())) => served.context("the server broke"),
        _ = input.next_line() => Ok(()),
    }
}

/// The server over HTTP as a child of this program.
#[derive(Debug)]
pub(crate) struct Peer {
    child: Child,
    url: url::Url,
}

impl Peer {
    /// Starts it and waits until it listens.
    pub(crate) async fn start(own: &Path) -> Result<Self> {
        let mut child = Command::new(own)
            .arg("peer")
            .env_clear()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the MCP server does not start")?;
        let output = child.stdout.take().context("the MCP server has no output")?;
        let mut lines = BufReader::new(output).lines();
        let line =
            timeout(START, lines.next_line()).await.context("the MCP server says nothing")??;
        let url = line
            .context("the MCP server ended")?
            .parse()
            .context("the MCP server does not say where it listens")?;
        Ok(Self { child, url })
    }

    /// Its URL.
    pub(crate) fn url(&self) -> &url::Url {
        &self.url
    }

    /// Ends it.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.child.kill().await.context("the MCP server cannot be ended")
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::CallToolRequestParams;
    use serde_json::{Map, json};

    use super::{LOOK, NOTE, NOTES_MAX, Notes, TOOLS, arguments};

    fn call(notes: &Notes, tool: &'static str, args: Map<String, serde_json::Value>) -> bool {
        notes.call(&CallToolRequestParams::new(tool).with_arguments(args)).is_ok()
    }

    #[test]
    fn a_note_is_kept_and_the_memory_has_a_limit() {
        let notes = Notes::default();
        for _note in 0..NOTES_MAX + 3 {
            assert!(call(&notes, NOTE, arguments(NOTE)));
        }
        assert!(call(&notes, LOOK, arguments(LOOK)));
        assert_eq!(notes.0.lock().len(), NOTES_MAX);
    }

    #[test]
    fn other_calls_are_refused() {
        let notes = Notes::default();
        assert!(!call(&notes, "burn", arguments(NOTE)));
        assert!(!call(&notes, NOTE, arguments(LOOK)));
        assert!(!call(&notes, LOOK, Map::from_iter([("path".to_owned(), json!(1))])));
        assert!(notes.0.lock().is_empty());
    }

    #[test]
    fn the_arguments_that_are_sent_are_those_of_the_schema() {
        for tool in TOOLS {
            assert!(
                arguments(tool.name).keys().eq(std::iter::once(tool.argument)),
                "{}",
                tool.name
            );
        }
    }
}
