//! The MCP server: its routes, its capabilities, and who asks.
//!
//! Owns the mapping of MCP methods. The transport, its sessions and the revisions are the SDK's.

use std::{borrow::Cow, sync::Arc};

use axum::{
    Router,
    body::Body,
    extract::{Path, Request, State},
    middleware::{self, Next},
    response::{IntoResponse, Response},
};
use futures::StreamExt as _;
use http::{HeaderMap, StatusCode, request::Parts};
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CancelTaskParams, CancelledNotificationParam,
        CompleteRequestParams, CompleteResult, CustomRequest, CustomResult, DiscoverResult,
        Extensions, GetPromptRequestParams, GetPromptResponse, GetTaskParams, GetTaskResult,
        Implementation, InitializeRequestParams, InitializeResult, ListPromptsResult,
        ListResourceTemplatesResult, ListResourcesResult, ListToolsResult, PaginatedRequestParams,
        ProtocolVersion, ReadResourceRequestParams, ReadResourceResponse, ServerCapabilities,
        ServerConfig, SubscriptionFilter, UpdateTaskParams,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use tokio_util::sync::CancellationToken;

use placet_engine::engine::Engine;
use placet_identity::VerifiedCaller;
use placet_types::{
    clock::{Clock, IdSource},
    ids::AdapterName,
};

use crate::{
    bodies, calls, cancellation, changes, completions, direct,
    features::{self, Request as FeatureRequest},
    held::HeldCalls,
    prompts,
    requests::OpenRequests,
    resources, results,
    sessions::{IDLE, Sessions},
    shared::{Asking, McpSettings, Only, SESSION, Shared},
    tasks, tools,
};

/// The supported revisions.
const REVISIONS: [ProtocolVersion; 3] =
    [ProtocolVersion::V_2025_06_18, ProtocolVersion::V_2025_11_25, ProtocolVersion::V_2026_07_28];

/// The routes `/mcp` and `/mcp/{adapter}`. Whatever mounts them verifies the caller first, checks `Host` and `Origin`, limits how many
/// responses of one caller are open, streams among them, and cancels `closing` when streams, and requests that wait for people, have to
/// end. Others are still answered: the SDK is not told, since it would then answer none.
pub fn router(
    engine: Engine,
    settings: McpSettings,
    clock: Arc<dyn Clock>,
    ids: Arc<dyn IdSource>,
    closing: CancellationToken,
) -> Router {
    let mut config = StreamableHttpServerConfig::default().disable_allowed_hosts();
    config.max_request_body_bytes = settings.request_bytes_max;
    config.json_response = true;
    let sessions = Sessions::new(settings.sessions_max.0);
    let held = HeldCalls::default();
    let requests = OpenRequests::default();
    let shared =
        Arc::new(Shared { engine, settings, clock, ids, held, sessions, requests, closing });
    // Ends with `closing`.
    drop(tokio::spawn(changes::tell_sessions(Arc::clone(&shared))));
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(IDLE);
    let server = McpServer(Arc::clone(&shared));
    let service = StreamableHttpService::new(move || Ok(server.clone()), Arc::new(manager), config);
    let only = middleware::from_fn(only_adapter);
    let directly = middleware::from_fn_with_state(Arc::clone(&shared), direct::answer);
    let service = axum::routing::any_service(service).layer(directly);
    Router::new()
        .route("/mcp", service.clone())
        .route("/mcp/{adapter}", service.layer(only))
        .layer(middleware::from_fn_with_state(Arc::clone(&shared), bodies::check))
        .layer(middleware::from_fn_with_state(shared, check_session))
}

/// Notes the only adapter whose tools are requested.
async fn only_adapter(Path(adapter): Path<String>, mut request: Request, next: Next) -> Response {
    let Ok(adapter) = adapter.parse::<AdapterName>() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    request.extensions_mut().insert(Only(adapter));
    next.run(request).await
}

/// A session belongs to its opener: for anybody else it does not exist.
async fn check_session(
    State(shared): State<Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    let Some(caller) = request.extensions().get::<Arc<VerifiedCaller>>().cloned() else {
        tracing::error!("an MCP request came without a verified caller");
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let session = request.headers().get(SESSION).cloned();
    let named = session.as_ref().and_then(|value| value.to_str().ok());
    match named {
        Some(session) if !shared.sessions.is_of(session, &caller) => {
            return (StatusCode::NOT_FOUND, Body::from("Not Found: Session not found"))
                .into_response();
        }
        None if may_open(request.headers())
            && !shared
                .sessions
                .has_place(caller.actor.principal(), shared.settings.sessions_max.0) =>
        {
            return (StatusCode::SERVICE_UNAVAILABLE, Body::from("too many sessions are open"))
                .into_response();
        }
        Some(_) | None => {}
    }
    let closes = request.method() == http::Method::DELETE;
    let is_stream = request.method() == http::Method::GET;
    let mut response = next.run(request).await;
    if is_stream {
        let ended = changes::stream_ends(&shared, &caller);
        response =
            response.map(|body| Body::from_stream(body.into_data_stream().take_until(ended)));
    }
    if let Some(opened) = response.headers().get(SESSION).and_then(|value| value.to_str().ok())
        && named.is_none()
    {
        shared.sessions.opened(opened, &caller);
    }
    if let (true, Some(session)) = (closes, named) {
        shared.sessions.closed(session);
        if response.status() == StatusCode::ACCEPTED {
            // The session has ended. The SDK's own status has clients warn that it may not have.
            *response.status_mut() = StatusCode::OK;
        }
    }
    response
}

/// Whether a request without a session may be one that opens one: not in the revision that has none.
fn may_open(headers: &HeaderMap) -> bool {
    let spoken = headers.get("mcp-protocol-version").and_then(|spoken| spoken.to_str().ok());
    spoken != Some(ProtocolVersion::V_2026_07_28.as_str())
}

/// The server for one client.
#[derive(Debug, Clone)]
struct McpServer(Arc<Shared>);

impl McpServer {
    fn asking<'a>(context: &'a RequestContext<RoleServer>) -> Result<Asking<'a>, ErrorData> {
        let client = context.client_info().map(|client| client.name);
        Self::asking_in(&context.extensions, client)
            .ok_or_else(|| ErrorData::internal_error("the caller was not verified", None))
    }

    fn asking_in(extensions: &Extensions, client: Option<String>) -> Option<Asking<'_>> {
        let parts = extensions.get::<Parts>()?;
        Asking::of(&parts.headers, &parts.extensions, client)
    }
}

/// What a client is told that asks for one adapter, of which no tool is open to it. An adapter that is hidden from the caller and one that
/// does not exist answer alike.
fn none_here(shared: &Shared, asking: &Asking<'_>) -> Option<String> {
    let adapter = asking.adapter?;
    let tools = shared.engine.tools(&asking.caller);
    let is_there = tools.iter().any(|tool| tool.capability_id.adapter() == adapter);
    (!is_there).then(|| {
        format!("No tool of an adapter `{adapter}` is open to you. Check the name at the end of the address, `/mcp/{adapter}`.")
    })
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_tool_list_changed()
            .enable_tasks()
            .build();
        let mut info = ServerConfig::new(capabilities);
        info.server_info = Implementation::new("placet", env!("CARGO_PKG_VERSION"));
        info.instructions = Some(
            "Calls go through policies and, where these ask for it, through people. A result that says PENDING was not executed yet: wait for it with `placet__await`."
                .to_owned(),
        );
        info
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&REVISIONS)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut info = self.negotiate_initialize(&request)?;
        // Earlier revisions have other tasks.
        info.capabilities.extensions = None;
        let asking = Self::asking(&context)?;
        features::declare(&mut info.capabilities, &self.0, &asking);
        info.instructions = none_here(&self.0, &asking).or(info.instructions);
        Ok(info)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let mut info = self.get_info();
        let asking = Self::asking(&context)?;
        features::declare(&mut info.capabilities, &self.0, &asking);
        info.instructions = none_here(&self.0, &asking).or(info.instructions);
        Ok(DiscoverResult::from_server_info(REVISIONS.to_vec(), info))
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        resources::list(&self.0, &Self::asking(&context)?, cursor.as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        resources::templates(&self.0, &Self::asking(&context)?, cursor.as_deref()).await
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let asking = Self::asking(&context)?;
        let asked = FeatureRequest { shared: &self.0, asking: &asking, context: &context };
        resources::read(&asked, &request.uri).await.map(ReadResourceResponse::Complete)
    }

    async fn list_prompts(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        prompts::list(&self.0, &Self::asking(&context)?, cursor.as_deref()).await
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let asking = Self::asking(&context)?;
        let asked = FeatureRequest { shared: &self.0, asking: &asking, context: &context };
        prompts::get(&asked, request).await.map(GetPromptResponse::Complete)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let asking = Self::asking(&context)?;
        let asked = FeatureRequest { shared: &self.0, asking: &asking, context: &context };
        completions::complete(&asked, request).await
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let asking = Self::asking(&context)?;
        let cursor = request.and_then(|request| request.cursor);
        let all = self.0.engine.tools(&asking.caller);
        tools::page(all, asking.adapter, cursor.as_deref())
    }

    async fn call_tool(
        &self,
        mut request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let asking = Self::asking(&context)?;
        request.name = tools::full_name(&request.name, asking.adapter).into();
        if self.0.engine.is_feature(&asking.caller, &request.name) {
            // A feature is not a tool, and so not in the list of tools.
            return Err(results::unknown_tool(&request.name));
        }
        calls::call(&self.0, &asking, request, &context).await
    }

    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        Err(results::unreadable(request))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        let asking = Self::asking_in(&context.extensions, None);
        if let Some(session) = asking.and_then(|asking| asking.session) {
            self.0.sessions.initialized(session, context.peer.clone());
        }
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        let offered = SubscriptionFilter::builder().tools_list_changed().build();
        Some(requested.intersection(&offered))
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let asking = Self::asking(context.request_context())?;
        changes::tell_stream(&self.0, &asking.caller, &context).await
    }

    async fn on_cancelled(
        &self,
        cancelled: CancelledNotificationParam,
        context: NotificationContext<RoleServer>,
    ) {
        let asking = Self::asking_in(&context.extensions, None);
        let session = asking.as_ref().and_then(|asking| asking.session);
        if let (Some(asking), Some(session), Some(id)) = (&asking, session, cancelled.request_id) {
            let reason = cancelled.reason.as_deref();
            cancellation::cancel(&self.0, &asking.caller, session, id, reason).await;
        }
    }

    async fn get_task(
        &self,
        request: GetTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetTaskResult, ErrorData> {
        tasks::get(&self.0, &Self::asking(&context)?, &request.task_id).await
    }

    async fn update_task(
        &self,
        request: UpdateTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::update(&self.0, &Self::asking(&context)?, &request.task_id).await
    }

    async fn cancel_task(
        &self,
        request: CancelTaskParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        tasks::cancel(&self.0, &Self::asking(&context)?, &request.task_id).await
    }
}
