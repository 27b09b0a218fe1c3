//! The two listeners: bound together, served together, closed together.
//!
//! Owns connections: how many, how long their heads may take, how long they last, how they end. Does not look into requests. Invariant:
//! when the listeners close, open requests get time to finish and the API accepts no new connections.

use std::{future::Future, io, net::SocketAddr, pin::pin, sync::Arc, time::Duration};

use axum::{
    Router,
    routing::{MethodRouter, post},
};
use http::Request;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service as _, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use placet_identity::ClientCertificate;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
};
use tokio_util::sync::CancellationToken;

use placet_engine::engine::Engine;

use crate::{
    admin,
    config::{ConfigError, ServerConfig},
    connections::{self, Connections},
    documents::BackupDocument,
    guard::Guard,
    paced::Paced,
    problem::Failure,
    request::Peer,
    router::{self, McpRoutes, Pages},
    state::{ApiState, Phase, reached},
    tls::{TlsError, TlsListener, TlsSettings, shown_by},
};

/// The most connections on the admin listener.
const ADMIN_CONNECTIONS_MAX: usize = 64;
/// The most headers of a request.
const HEADERS_MAX: usize = 64;
/// The largest head of a request, and the most that a connection buffers.
const BUFFER_BYTES_MAX: usize = 64 * 1024;
/// How long to pause when the operating system has no sockets left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Why the listeners cannot be bound or kept open, for the operator.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// An address cannot be listened on.
    #[error("cannot listen on `{address}`: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// TLS cannot be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A listener failed.
    #[error("the listener on `{address}` broke: {source}")]
    Listener {
        /// The address.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
}

/// Both listeners, bound and not yet served.
#[derive(Debug)]
pub struct Bound {
    config: ServerConfig,
    main: Listener,
    admin: Listener,
    backups: MethodRouter<ApiState>,
    pages: Option<Arc<dyn Pages>>,
    mcp: Option<McpRoutes>,
    tls: Option<Arc<TlsListener>>,
}

#[derive(Debug)]
struct Listener {
    socket: TcpListener,
    address: SocketAddr,
    guard: Guard,
}

/// Binds both listeners.
///
/// # Errors
/// [`ServerError`] when the configuration cannot be used or an address is taken.
pub async fn bind(config: ServerConfig) -> Result<Bound, ServerError> {
    let main = Listener::bind(config.listen, &config).await?;
    let admin = Listener::bind(config.admin_listen, &config).await?;
    let backups = post(admin::no_backups);
    Ok(Bound { config, main, admin, backups, pages: None, mcp: None, tls: None })
}

impl Listener {
    async fn bind(address: SocketAddr, config: &ServerConfig) -> Result<Self, ServerError> {
        let failed = |source| ServerError::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        let guard = Guard::new(address, &config.allowed_hosts, &config.allowed_origins)?;
        Ok(Self { socket, address, guard })
    }
}

impl Bound {
    /// Enables backups on the admin listener; `make` makes one. Anyone who reaches that listener operates the process and may see the full
    /// reason of a failure.
    #[must_use]
    pub fn with_backups<F>(self, make: impl Fn() -> F + Clone + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<BackupDocument, Failure>> + Send + 'static,
    {
        Self { backups: post(move || admin::backup(make())), ..self }
    }

    /// Serves the callers' API over TLS only. Call it before `with_pages`.
    ///
    /// # Errors
    /// [`ServerError::Tls`] when the files cannot be used.
    pub fn with_tls(mut self, settings: TlsSettings) -> Result<Self, ServerError> {
        self.tls = Some(Arc::new(TlsListener::new(settings)?));
        self.main.guard = self.main.guard.with_tls();
        self.config.is_tls = true;
        Ok(self)
    }

    /// Whether callers have to speak TLS.
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Serves pages as well.
    ///
    /// # Errors
    /// [`ServerError::Config`] when their address cannot be one of ours.
    pub fn with_pages(mut self, pages: Arc<dyn Pages>) -> Result<Self, ServerError> {
        self.main.guard = self.main.guard.with_pages(self.main.address, pages.public_url())?;
        Ok(Self { pages: Some(pages), ..self })
    }

    /// Serves the MCP front end as well. Its requests carry a [`VerifiedCaller`](placet_identity::VerifiedCaller); a request without
    /// credentials is the development agent's, where `development` can mint its token. `closing` is cancelled when the listeners close.
    #[must_use]
    pub fn with_mcp(
        self,
        router: Router,
        development: Option<Arc<dyn Fn() -> Option<String> + Send + Sync>>,
        closing: CancellationToken,
    ) -> Self {
        Self { mcp: Some(McpRoutes { router, development, closing }), ..self }
    }

    /// Where callers connect.
    pub fn address(&self) -> SocketAddr {
        self.main.address
    }

    /// The address of `/healthz`, `/readyz` and `/metrics`.
    pub fn admin_address(&self) -> SocketAddr {
        self.admin.address
    }

    /// Serves both listeners until `shutdown` resolves and the open requests have ended, or their time to do so is up.
    ///
    /// # Errors
    /// [`ServerError::Listener`] when a listener breaks.
    pub async fn serve(
        self,
        engine: Engine,
        shutdown: impl Future<Output = ()> + Send,
    ) -> Result<(), ServerError> {
        let Self { config, main, admin, backups, pages, mcp, tls } = self;
        let mcp_closing = mcp.as_ref().map(|mcp| mcp.closing.clone());
        let (phase, watching) = watch::channel(Phase::Serving);
        let api = ApiState::new(engine, Arc::new(config.clone()), watching.clone());
        let slots = Arc::new(Semaphore::new(config.connections_max.size()));
        let admin_slots = Arc::new(Semaphore::new(ADMIN_CONNECTIONS_MAX));
        let manner = Manner::new(&config);

        let main_loop = Accepting {
            router: router::router(&api, main.guard.clone(), pages.as_deref(), mcp),
            listener: main,
            manner: manner.clone(),
            tls: tls.clone(),
            connections: Arc::clone(&api.connections),
            slots: Arc::clone(&slots),
            phase: watching.clone(),
            until: Phase::Draining,
        };
        let admin_loop = Accepting {
            router: admin::router(&api, admin.guard.clone(), backups),
            listener: admin,
            manner,
            tls: None,
            connections: Connections::new(ADMIN_CONNECTIONS_MAX, ADMIN_CONNECTIONS_MAX),
            slots: admin_slots,
            phase: watching,
            until: Phase::Closed,
        };
        let closing = async {
            shutdown.await;
            phase.send_replace(Phase::Draining);
            mcp_closing.inspect(CancellationToken::cancel);
            let drained =
                slots.acquire_many(u32::try_from(config.connections_max.0).unwrap_or(u32::MAX));
            if tokio::time::timeout(Duration::from_millis(config.drain_ms.0), drained)
                .await
                .is_err()
            {
                tracing::warn!("requests were still open when the time to end them was up");
            }
            phase.send_replace(Phase::Closed);
            Ok(())
        };
        let files = async {
            match tls {
                Some(tls) => tls.follow_files().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            ended = async { tokio::try_join!(main_loop.run(), admin_loop.run(), closing) } => ended.map(|_| ()),
            () = files => Ok(()),
        }
    }
}

/// How connections are served.
#[derive(Debug, Clone)]
struct Manner {
    /// HTTP/1.1 with limits. A head that does not arrive and an idle connection time out alike. Requests are handled one at a time;
    /// pipelined ones wait in the buffer.
    http: http1::Builder,
    /// How long a head or a handshake may take.
    head: Duration,
    /// How long a peer may leave a write blocked.
    write: Duration,
    /// How long a connection takes requests.
    age: Duration,
    /// How long requests in progress may then take to finish.
    rest: Duration,
}

impl Manner {
    fn new(config: &ServerConfig) -> Self {
        let head = Duration::from_millis(config.header_timeout_ms.0);
        let mut http = http1::Builder::new();
        http.timer(TokioTimer::new())
            .header_read_timeout(head)
            .max_headers(HEADERS_MAX)
            .max_buf_size(BUFFER_BYTES_MAX);
        Self {
            http,
            head,
            write: Duration::from_millis(config.write_timeout_ms.0),
            age: Duration::from_millis(config.connection_ms_max.0),
            rest: Duration::from_millis(config.stream_ms_max.0),
        }
    }
}

/// One listener that is being served.
struct Accepting {
    listener: Listener,
    router: Router,
    manner: Manner,
    tls: Option<Arc<TlsListener>>,
    connections: Arc<Connections>,
    slots: Arc<Semaphore>,
    phase: watch::Receiver<Phase>,
    /// The phase from which on it accepts no more connections.
    until: Phase,
}

impl Accepting {
    async fn run(self) -> Result<(), ServerError> {
        let mut over = pin!(reached(self.phase.clone(), self.until));
        loop {
            // A connection is taken only when there is a place for it; the others wait in the operating system's queue.
            let place = tokio::select! {
                place = Arc::clone(&self.slots).acquire_owned() => place,
                () = &mut over => return Ok(()),
            };
            let stream = tokio::select! {
                accepted = self.listener.socket.accept() => self.accepted(accepted).await?,
                () = &mut over => return Ok(()),
            };
            let Some((stream, peer)) = stream else { continue };
            // A connection above its address's limit is closed, and the next one in the queue is accepted.
            let Some(open) = self.connections.open(peer.ip()) else { continue };
            let connection = self.connection(stream, peer);
            drop(tokio::spawn(async move {
                connection.await;
                // Released first, so that the next holder of the slot does not find the address still counted.
                drop(open);
                drop(place);
            }));
        }
    }

    /// Running out of sockets, or a caller that is gone before it was taken, passes; a broken listener does not.
    async fn accepted(
        &self,
        accepted: io::Result<(TcpStream, SocketAddr)>,
    ) -> Result<Option<(TcpStream, SocketAddr)>, ServerError> {
        match accepted {
            Ok(taken) => Ok(Some(taken)),
            Err(source) if source.kind() == io::ErrorKind::InvalidInput => {
                Err(ServerError::Listener { address: self.listener.address, source })
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                Ok(None)
            }
        }
    }

    fn connection(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
    ) -> impl Future<Output = ()> + Send + 'static {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "a connection keeps its delay");
        }
        let (over, cut) =
            (reached(self.phase.clone(), self.until), reached(self.phase.clone(), Phase::Closed));
        let (manner, router) = (self.manner.clone(), self.router.clone());
        let acceptor = self.tls.as_ref().map(|tls| tls.acceptor());
        let from = Peer(connections::one(peer.ip()));
        async move {
            let Some(acceptor) = acceptor else {
                let shown = Shown { router, certificate: None, from };
                return exchange(&manner, stream, shown, over, cut).await;
            };
            match tokio::time::timeout(manner.head, acceptor.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let shown = Shown { router, certificate: shown_by(&stream), from };
                    exchange(&manner, stream, shown, over, cut).await;
                }
                Ok(Err(error)) => tracing::debug!(%error, "a handshake failed"),
                Err(_) => tracing::debug!("a handshake took too long"),
            }
        }
    }
}

/// The router, with the client certificate and the address of one connection.
struct Shown {
    router: Router,
    certificate: Option<ClientCertificate>,
    from: Peer,
}

/// Serves one connection until it ends, its time is up, or the listeners close.
async fn exchange<I>(
    manner: &Manner,
    stream: I,
    shown: Shown,
    over: impl Future<Output = ()>,
    cut: impl Future<Output = ()>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let routes = TowerToHyperService::new(shown.router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(shown.from);
        if let Some(certificate) = &shown.certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        routes.call(request)
    });
    let stream = TokioIo::new(Paced::new(stream, manner.write));
    let mut connection = pin!(manner.http.serve_connection(stream, service));
    let last_request = async {
        tokio::select! {
            () = over => {}
            () = tokio::time::sleep(manner.age) => {}
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = last_request => {
            connection.as_mut().graceful_shutdown();
            tokio::select! {
                ended = connection => ended,
                () = cut => Ok(()),
                () = tokio::time::sleep(manner.rest) => Ok(()),
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

#[cfg(test)]
mod tests;
