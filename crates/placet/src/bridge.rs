//! An MCP server on standard input and output, for clients that start their servers: it passes their messages on to `/mcp` of an engine.
//!
//! Owns the order of messages, the session and the answers when the engine is gone. Decides nothing and knows no tools. Invariants: a
//! request is answered once, by the engine or by an error that says why not; it is sent again only if no engine received it.

mod message;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use parking_lot::Mutex;
use placet_egress::EgressBody;
use secrecy::SecretString;
use serde_json::Value;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use url::Url;

use crate::{
    client::{Client, Events, REQUEST_BYTES_MAX},
    failure::Failure,
    shared_engine::{SharedEngine, listening},
};
use message::{Message, failed};

/// The most open requests.
const OPEN_MAX: usize = 1_024;
/// How many messages may wait for the client to read them.
const WAITING_MAX: usize = 64;
/// How long open requests may take to end when the client has gone, and the session after them.
const END_WAIT: Duration = Duration::from_secs(2);
/// The pause before the stream of a session is reopened.
const AGAIN: Duration = Duration::from_secs(1);
const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";

/// Which engine, at which path, and as whom.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) engine: Engine,
    /// The path below its address.
    pub(crate) path: Vec<String>,
    pub(crate) token: Option<SecretString>,
    pub(crate) delegation: Option<SecretString>,
}

/// An engine.
#[derive(Debug)]
pub(crate) enum Engine {
    /// The one of a data folder.
    Shared(Box<SharedEngine>),
    /// Any, by its address.
    At(Url),
}

/// Forwards messages until the client has gone or `stopped` resolves.
pub(crate) async fn run(
    target: Target,
    input: impl AsyncBufRead + Unpin,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stopped: impl Future<Output = ()>,
) {
    let (out, waiting) = mpsc::channel(WAITING_MAX);
    let writing = tokio::spawn(write(waiting, output));
    let bridge = Arc::new(Bridge {
        target,
        client: Mutex::default(),
        session: Mutex::default(),
        opening: tokio::sync::Mutex::default(),
        out,
    });
    let mut open = JoinSet::new();
    tokio::select! {
        () = bridge.read(input, &mut open) => {
            let _ended = timeout(END_WAIT, async { while open.join_next().await.is_some() {} }).await.is_ok();
        }
        () = stopped => {}
    }
    open.shutdown().await;
    let _ended = timeout(END_WAIT, bridge.end()).await.is_ok();
    drop(bridge);
    let _written = timeout(END_WAIT, writing).await.is_ok();
}

/// Writes each message as a line.
async fn write(mut waiting: mpsc::Receiver<String>, mut output: impl AsyncWrite + Unpin) {
    while let Some(mut line) = waiting.recv().await {
        if line.contains('\n') {
            // In JSON a line break can only occur between values.
            line = line.replace('\n', " ");
        }
        line.push('\n');
        if output.write_all(line.as_bytes()).await.is_err() || output.flush().await.is_err() {
            return;
        }
    }
}

struct Bridge {
    target: Target,
    client: Mutex<Option<Client>>,
    session: Mutex<Option<Session>>,
    /// Held while a session is opened again.
    opening: tokio::sync::Mutex<()>,
    out: mpsc::Sender<String>,
}

/// A session of the revisions that have one.
#[derive(Debug, Clone)]
struct Session {
    number: HeaderValue,
    revision: HeaderValue,
    /// The request that opened it, to open it again.
    initialize: Message,
}

/// Why a message was not answered by the engine.
struct Problem {
    code: i32,
    message: String,
    data: Option<Value>,
}

impl Problem {
    fn unreachable(why: impl std::fmt::Display) -> Self {
        let message = format!("Placet cannot be reached: {why}");
        Self { code: 503, message, data: None }
    }

    fn broken(why: impl std::fmt::Display) -> Self {
        let message = format!(
            "Placet ended before its answer ({why}). A call may have been executed: look before you repeat it"
        );
        Self { code: 502, message, data: None }
    }
}

impl Bridge {
    async fn read(self: &Arc<Self>, mut input: impl AsyncBufRead + Unpin, open: &mut JoinSet<()>) {
        let mut line = Vec::new();
        loop {
            line.clear();
            let most = u64::try_from(REQUEST_BYTES_MAX).unwrap_or(u64::MAX);
            match (&mut input).take(most).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => return,
                Ok(_) => {}
            }
            if line.len() >= REQUEST_BYTES_MAX {
                let why = format!("a message is longer than {REQUEST_BYTES_MAX} bytes");
                self.tell(failed(&Value::Null, 413, &why, None)).await;
                return;
            }
            if line.trim_ascii().is_empty() {
                continue;
            }
            match Message::read(line.trim_ascii()) {
                Err(answer) => self.tell(answer).await,
                Ok(message) => self.take(message, open).await,
            }
            while open.try_join_next().is_some() {}
        }
    }

    /// `initialize` and messages that are not requests are handled in order; requests run concurrently.
    async fn take(self: &Arc<Self>, message: Message, open: &mut JoinSet<()>) {
        let Some(id) = message.id.clone().filter(|_| !message.is("initialize")) else {
            return self.deliver(&message).await;
        };
        if open.len() >= OPEN_MAX {
            let why = format!("{OPEN_MAX} requests are open");
            return self.tell(failed(&id, 429, &why, None)).await;
        }
        let bridge = Arc::clone(self);
        open.spawn(async move { bridge.deliver(&message).await });
    }

    async fn tell(&self, line: String) {
        // Nobody reads any more: the end of the input ends everything.
        let _read = self.out.send(line).await.is_ok();
    }

    async fn deliver(self: &Arc<Self>, message: &Message) {
        if let (Err(problem), Some(id)) = (self.exchange(message).await, &message.id) {
            let Problem { code, message, data } = problem;
            self.tell(failed(id, code, &message, data.as_ref())).await;
        }
    }

    async fn exchange(self: &Arc<Self>, message: &Message) -> Result<(), Problem> {
        if message.is("initialize") {
            *self.session.lock() = None;
            let answer = self.begin(message).await?;
            self.tell(answer).await;
            return Ok(());
        }
        let session = self.session.lock().clone();
        let mut response = self.post(message, session.as_ref()).await?;
        if let (Some(gone), StatusCode::NOT_FOUND) = (session, response.status()) {
            // The engine was restarted: it does not know the session, and executed nothing.
            let session = self.begin_again(&gone).await?;
            response = self.post(message, session.as_ref()).await?;
        }
        if let Some(id) = &message.id {
            let answer = self.answer(id, response).await?;
            self.tell(answer).await;
        }
        Ok(())
    }

    /// Opens a session, if the revision has sessions, and listens to it. Returns the engine's answer.
    async fn begin(self: &Arc<Self>, initialize: &Message) -> Result<String, Problem> {
        let response = self.post(initialize, None).await?;
        let session = response.headers().get(SESSION).cloned();
        let id = initialize.id.as_ref().unwrap_or(&Value::Null);
        let answer = self.answer(id, response).await?;
        let Some(number) = session else { return Ok(answer) };
        let said: Option<Value> = serde_json::from_str(&answer).ok();
        let revision = said.as_ref().and_then(|said| said.pointer("/result/protocolVersion"));
        let revision = revision.and_then(Value::as_str).and_then(|it| it.parse().ok());
        let revision = revision.ok_or_else(|| Problem::broken("it names no revision"))?;
        let initialize = initialize.clone();
        let session = Session { number, revision, initialize };
        *self.session.lock() = Some(session.clone());
        let bridge = Arc::downgrade(self);
        // It ends with the session, at the latest with the bridge.
        drop(tokio::spawn(async move {
            while let Some(bridge) = bridge.upgrade() {
                if !bridge.is_current(&session.number) || !bridge.listen(&session).await {
                    return;
                }
                drop(bridge);
                sleep(AGAIN).await;
            }
        }));
        Ok(answer)
    }

    fn is_current(&self, number: &HeaderValue) -> bool {
        self.session.lock().as_ref().is_some_and(|session| session.number == *number)
    }

    /// Reopens the client's session with an engine that does not know it; once, however many requests notice.
    /// Until then, and if it fails, the stale session stays in place, so that every request notices for itself.
    async fn begin_again(self: &Arc<Self>, gone: &Session) -> Result<Option<Session>, Problem> {
        let _one_at_a_time = self.opening.lock().await;
        if self.is_current(&gone.number) {
            self.begin(&gone.initialize).await?;
            let ready = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
            let session = self.session.lock().clone();
            if let Ok(ready) = Message::read(ready) {
                self.post(&ready, session.as_ref()).await?;
            }
        }
        Ok(self.session.lock().clone())
    }

    /// Forwards the engine's messages in the session until the stream ends; returns whether more may come later. Starts no engine if there
    /// is none any more: the next request does.
    async fn listen(&self, session: &Session) -> bool {
        let Some(client) = self.client.lock().clone() else { return true };
        let stream = "text/event-stream";
        let request = self.request(&client, Some(session), Method::GET, stream, Bytes::new());
        let Ok(request) = request else { return false };
        let Ok(response) = client.stream(request).await else { return true };
        let Ok(mut events) = Events::of(response) else { return false };
        while let Ok(Some(data)) = events.next().await {
            self.tell(data).await;
        }
        true
    }

    /// The answer to the request `id`. Other messages that come first are forwarded to the client.
    async fn answer(&self, id: &Value, response: Response<EgressBody>) -> Result<String, Problem> {
        let status = response.status();
        let response = match Events::of(response) {
            Err(response) => response,
            Ok(mut events) => {
                while let Some(data) = events.next().await.map_err(Problem::broken)? {
                    if is_answer(&data, id) {
                        return Ok(data);
                    }
                    self.tell(data).await;
                }
                return Err(Problem::broken("its stream ended"));
            }
        };
        let body = response.into_body().collect().await.map_err(Problem::broken)?.to_bytes();
        let text = String::from_utf8_lossy(&body).into_owned();
        if is_answer(&text, id) {
            return Ok(text);
        }
        let document: Option<Value> = serde_json::from_str(&text).ok();
        let said = document.as_ref().map(|document| document.get("error").unwrap_or(document));
        let message = said.and_then(|said| said.get("message").or_else(|| said.get("detail")));
        let message = message.and_then(Value::as_str).map_or(text, str::to_owned);
        let code = said.and_then(|said| said.get("code")?.as_i64()?.try_into().ok());
        Err(Problem { code: code.unwrap_or(status.as_u16().into()), message, data: document })
    }

    async fn post(
        &self,
        message: &Message,
        session: Option<&Session>,
    ) -> Result<Response<EgressBody>, Problem> {
        self.send(|client| {
            let accept = "application/json, text/event-stream";
            let mut request =
                self.request(client, session, Method::POST, accept, message.text.clone())?;
            let headers = request.headers_mut();
            let mut say = |name: &'static str, value: Option<&String>| {
                if let Some(value) = value.and_then(|value| HeaderValue::try_from(value).ok()) {
                    headers.insert(name, value);
                }
            };
            if message.revision.is_some() {
                say(REVISION, message.revision.as_ref());
                say("mcp-method", message.method.as_ref());
                say("mcp-name", message.name.as_ref());
            }
            Ok(request)
        })
        .await
    }

    /// Sends a request; if nothing was sent, looks for the engine again and retries once.
    async fn send(
        &self,
        request: impl Fn(&Client) -> Result<Request<Bytes>, Failure>,
    ) -> Result<Response<EgressBody>, Problem> {
        let unreachable = |why: Failure| Problem::unreachable(why.in_a_line());
        let mut is_first = true;
        loop {
            let client = self.client().await.map_err(unreachable)?;
            match client.stream(request(&client).map_err(unreachable)?).await {
                Ok(response) => return Ok(response),
                Err(error) if error.nothing_was_sent() && is_first => {
                    *self.client.lock() = None;
                    is_first = false;
                }
                Err(error) if error.nothing_was_sent() => return Err(Problem::unreachable(error)),
                Err(error) => {
                    *self.client.lock() = None;
                    return Err(Problem::broken(error));
                }
            }
        }
    }

    async fn client(&self) -> Result<Client, Failure> {
        let known = self.client.lock().clone();
        if let Some(client) = known.filter(|known| self.leads_to(&known.base)) {
            return Ok(client);
        }
        let base = match &self.target.engine {
            Engine::At(url) => url.clone(),
            Engine::Shared(engine) => engine.url().await?,
        };
        let (token, delegation) = (self.target.token.clone(), self.target.delegation.clone());
        let client = Client::patient(base, token, delegation)?;
        *self.client.lock() = Some(client.clone());
        Ok(client)
    }

    /// Whether the engine is still there. Asked before each request, since one sent to an engine that has ended may not be sent again.
    fn leads_to(&self, base: &Url) -> bool {
        match &self.target.engine {
            Engine::At(_) => true,
            Engine::Shared(engine) => listening(&engine.data).is_some_and(|it| it.url == *base),
        }
    }

    fn request(
        &self,
        client: &Client,
        session: Option<&Session>,
        method: Method,
        accept: &'static str,
        body: Bytes,
    ) -> Result<Request<Bytes>, Failure> {
        let path: Vec<&str> = self.target.path.iter().map(String::as_str).collect();
        let mut request = client.request(method, &path, &[], accept, body)?;
        if let Some(Session { number, revision, .. }) = session {
            request.headers_mut().insert(SESSION, number.clone());
            request.headers_mut().insert(REVISION, revision.clone());
        }
        Ok(request)
    }

    /// Ends the session.
    async fn end(&self) {
        let (session, client) = (self.session.lock().clone(), self.client.lock().clone());
        let (Some(session), Some(client)) = (session, client) else { return };
        let json = "application/json";
        let request = self.request(&client, Some(&session), Method::DELETE, json, Bytes::new());
        if let Ok(request) = request {
            let _ended = client.stream(request).await.is_ok();
        }
    }
}

/// Whether a text is the answer to the request `id`.
fn is_answer(text: &str, id: &Value) -> bool {
    let document: Option<Value> = serde_json::from_str(text).ok();
    document.is_some_and(|document| {
        document.get("id") == Some(id)
            && (document.get("result").is_some() || document.get("error").is_some())
    })
}
