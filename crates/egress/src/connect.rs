//! From a destination to an open connection.
//!
//! It owns the order: allow-list, resolve once, classify every address, dial exactly those, check the peer, TLS. It
//! does not speak HTTP. Invariant: no socket is opened to an address that `checked_addresses` did not return, and
//! nothing is written to a connection whose peer is another one.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;

use crate::address::AddressClass;
use crate::destination::{Destination, EgressPolicy, Scheme};
use crate::error::EgressError;
use crate::limits::Limits;
use crate::request;
use crate::resolve::Resolve;
use crate::stream::EgressStream;
use crate::tls::{Handshakes, Protocol};

/// A host with more addresses than this is refused, as all of them have to be checked.
const ADDRESSES_MAX: usize = 64;

/// A pending connection.
pub type Connecting =
    Pin<Box<dyn Future<Output = Result<TokioIo<EgressStream>, EgressError>> + Send>>;

/// A `tower` service from a URI to an open connection, for SDKs that bring their own protocol.
///
/// Over TLS the connector of [`EgressClient::connector`](crate::EgressClient::connector) offers and demands HTTP/2;
/// over plain `http:` the protocol is the user's choice.
#[derive(Clone)]
pub struct EgressConnector {
    pub(crate) dialling: Arc<Dialling>,
    pub(crate) tls: Arc<Handshakes>,
    pub(crate) protocol: Protocol,
}

impl fmt::Debug for EgressConnector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { dialling, tls: _, protocol } = self;
        formatter
            .debug_struct("EgressConnector")
            .field("dialling", dialling)
            .field("protocol", protocol)
            .finish()
    }
}

impl tower_service::Service<Uri> for EgressConnector {
    type Response = TokioIo<EgressStream>;
    type Error = EgressError;
    type Future = Connecting;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), EgressError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let connector = self.clone();
        Box::pin(async move {
            let destination = request::destination_of(&uri, &connector.dialling.policy)?;
            connector.connect(&destination).await.map(TokioIo::new)
        })
    }
}

impl EgressConnector {
    pub(crate) async fn connect(
        &self,
        destination: &Destination,
    ) -> Result<EgressStream, EgressError> {
        let timeout_ms = self.dialling.limits.connect_timeout_ms;
        let connected = timeout(Duration::from_millis(timeout_ms), self.open(destination)).await;
        connected.unwrap_or_else(|_elapsed| {
            Err(EgressError::ConnectTimeout { destination: destination.to_string(), timeout_ms })
        })
    }

    async fn open(&self, destination: &Destination) -> Result<EgressStream, EgressError> {
        let addresses = self.dialling.checked_addresses(destination).await?;
        let stream = self.dialling.dial_checked(destination, &addresses).await?;
        match destination.scheme {
            Scheme::Http => Ok(EgressStream::plain(stream)),
            Scheme::Https => self.secure(destination, stream).await,
        }
    }

    pub(crate) async fn secure(
        &self,
        destination: &Destination,
        stream: TcpStream,
    ) -> Result<EgressStream, EgressError> {
        let failed =
            |reason| EgressError::TlsFailed { destination: destination.to_string(), reason };
        let name = match destination.literal() {
            Some(address) => ServerName::from(address),
            None => ServerName::try_from(destination.host.clone())
                .map_err(|_invalid| failed("the host is not a name that a certificate can hold"))?,
        };
        let connecting = TlsConnector::from(self.tls.with(destination).await).connect(name, stream);
        let stream = connecting.await.map_err(|error| failed(tls_failure(&error)))?;
        let (_, session) = stream.get_ref();
        if self.protocol == Protocol::Http2
            && session.alpn_protocol() != Some(Protocol::Http2.alpn())
        {
            return Err(failed("the peer does not speak http/2"));
        }
        Ok(EgressStream::tls(stream))
    }
}

/// What a connection attempt needs, shared by all connectors of a client.
#[derive(Clone)]
pub(crate) struct Dialling {
    pub(crate) policy: EgressPolicy,
    pub(crate) limits: Limits,
    pub(crate) resolver: Arc<dyn Resolve>,
    pub(crate) dialler: Arc<dyn Dial>,
}

impl fmt::Debug for Dialling {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Dialling")
            .field("policy", &self.policy)
            .field("limits", &self.limits)
            .field("resolver", &self.resolver)
            .finish_non_exhaustive()
    }
}

impl Dialling {
    /// Resolves the host, once, and returns its addresses if every one of them may be dialled.
    pub(crate) async fn checked_addresses(
        &self,
        destination: &Destination,
    ) -> Result<Vec<SocketAddr>, EgressError> {
        let addresses = match destination.literal() {
            Some(address) => vec![address],
            None => self.resolve(destination).await?,
        };
        let mut checked = Vec::with_capacity(addresses.len());
        for address in addresses {
            let address = SocketAddr::new(address.to_canonical(), destination.port);
            self.check_address(destination, address)?;
            if !checked.contains(&address) {
                checked.push(address);
            }
        }
        Ok(checked)
    }

    async fn resolve(&self, destination: &Destination) -> Result<Vec<IpAddr>, EgressError> {
        let failed =
            |kind| EgressError::ResolveFailed { destination: destination.to_string(), kind };
        let addresses =
            self.resolver.resolve(&destination.host).await.map_err(|error| failed(error.kind()))?;
        match addresses.len() {
            0 => Err(failed(io::ErrorKind::NotFound)),
            1..=ADDRESSES_MAX => Ok(addresses),
            _ => Err(failed(io::ErrorKind::InvalidData)),
        }
    }

    fn check_address(
        &self,
        destination: &Destination,
        address: SocketAddr,
    ) -> Result<(), EgressError> {
        let class = AddressClass::of(address.ip());
        let permitted = class.may_be_dialled(destination.private, destination.naming());
        if !permitted || self.policy.is_own_listener(address) {
            let destination = destination.to_string();
            return Err(EgressError::AddressRefused { destination, address: address.ip(), class });
        }
        if destination.scheme == Scheme::Http && class == AddressClass::Global {
            return Err(EgressError::PlainHttpRefused { destination: destination.to_string() });
        }
        Ok(())
    }

    /// Dials the addresses in turn. Each gets a fair share of the time that is left, so a dead one cannot eat it all.
    pub(crate) async fn dial_checked(
        &self,
        destination: &Destination,
        addresses: &[SocketAddr],
    ) -> Result<TcpStream, EgressError> {
        let failed =
            |kind| EgressError::ConnectFailed { destination: destination.to_string(), kind };
        let mut budget = Duration::from_millis(self.limits.connect_timeout_ms);
        let mut last = failed(io::ErrorKind::NotFound);
        for (tried, address) in addresses.iter().enumerate() {
            let left = u32::try_from(addresses.len().saturating_sub(tried)).unwrap_or(u32::MAX);
            let started = Instant::now();
            let share = budget.checked_div(left).unwrap_or(budget);
            match timeout_at(
                started.checked_add(share).unwrap_or(started),
                self.dialler.dial(*address),
            )
            .await
            {
                Ok(Ok(stream)) => return self.check_peer(destination, *address, stream),
                Ok(Err(error)) => last = failed(error.kind()),
                Err(_elapsed) => last = failed(io::ErrorKind::TimedOut),
            }
            budget = budget.saturating_sub(started.elapsed());
        }
        Err(last)
    }

    /// Whatever is between us and the peer, the socket must end at the address that was checked, and not at ourselves.
    fn check_peer(
        &self,
        destination: &Destination,
        checked: SocketAddr,
        stream: TcpStream,
    ) -> Result<TcpStream, EgressError> {
        let failed = |error: &io::Error| EgressError::ConnectFailed {
            destination: destination.to_string(),
            kind: error.kind(),
        };
        let peer = stream.peer_addr().map_err(|error| failed(&error))?;
        let local = stream.local_addr().map_err(|error| failed(&error))?;
        if peer.ip().to_canonical() != checked.ip() || peer.port() != checked.port() {
            return Err(EgressError::PeerMismatch {
                destination: destination.to_string(),
                peer: peer.ip(),
            });
        }
        if self.policy.is_own_connection(local, peer) {
            let class = AddressClass::of(checked.ip());
            let destination = destination.to_string();
            return Err(EgressError::AddressRefused { destination, address: checked.ip(), class });
        }
        stream.set_nodelay(true).map_err(|error| failed(&error))?;
        Ok(stream)
    }
}

/// The cause in our words: the text of a TLS error can quote the peer's certificate.
fn tls_failure(error: &io::Error) -> &'static str {
    let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<rustls::Error>());
    match cause {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "the certificate of the peer was not accepted"
        }
        Some(rustls::Error::AlertReceived(_)) => "the peer broke off the handshake",
        Some(rustls::Error::NoApplicationProtocol) => {
            "the peer speaks none of the offered protocols"
        }
        Some(_) => "the handshake failed",
        None => "the connection was lost in the handshake",
    }
}

/// Opens one TCP connection. The seam exists so that tests can lead a permitted address elsewhere.
pub(crate) trait Dial: Send + Sync {
    fn dial(
        &self,
        address: SocketAddr,
    ) -> Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>>;
}

/// Dials with a socket of the operating system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TcpDial;

impl Dial for TcpDial {
    fn dial(
        &self,
        address: SocketAddr,
    ) -> Pin<Box<dyn Future<Output = io::Result<TcpStream>> + Send>> {
        Box::pin(TcpStream::connect(address))
    }
}
