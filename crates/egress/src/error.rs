//! Why an exchange failed, and whether anything of the request can have reached the peer.
//!
//! It owns the causes. `Display` is for the log and names the destination. It holds no text of a response, a header or a path, so an error
//! can be logged as it is.

use std::io;
use std::net::IpAddr;

use crate::address::AddressClass;

/// Why a name has no addresses. The system's library for names says it in codes that are no kind of their own.
fn of_resolving(kind: io::ErrorKind) -> String {
    let said = kind.to_string();
    match said.as_str() {
        "uncategorized error" | "other error" => {
            "the name is not known, or no name server answers".to_owned()
        }
        _ => said,
    }
}

/// Why an exchange failed.
///
/// The enum is exhaustive on purpose: a new cause must make every place that decides about outcomes look at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// A URL cannot be a destination.
    #[error("the url is not usable: {reason}")]
    UrlUnusable {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The request has a form that is never sent.
    #[error("the request is not usable: {reason}")]
    RequestUnusable {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The body or the headers of the request are above the limit.
    #[error("the request is larger than {bytes_max} bytes")]
    RequestTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// No entry of the allow-list names this scheme, host and port.
    #[error("destination `{destination}` is not on the allow-list")]
    DestinationRefused {
        /// Scheme, host and port.
        destination: String,
    },
    /// Plain `http:` would leave the private ranges, or its destination does not name them.
    #[error(
        "plain http to `{destination}` is refused: it is only for private addresses that are named explicitly"
    )]
    PlainHttpRefused {
        /// Scheme, host and port.
        destination: String,
    },
    /// One of the addresses of the host may not be dialled.
    #[error(
        "destination `{destination}` has the address {address} ({class}), which may not be dialled"
    )]
    AddressRefused {
        /// Scheme, host and port.
        destination: String,
        /// The refused address.
        address: IpAddr,
        /// The class of the refused address.
        class: AddressClass,
    },
    /// The host did not resolve to a usable list of addresses.
    #[error("the host of `{destination}` could not be resolved: {}", of_resolving(*kind))]
    ResolveFailed {
        /// Scheme, host and port.
        destination: String,
        /// The kind of failure.
        kind: io::ErrorKind,
    },
    /// No address of the host accepted a connection.
    #[error("no connection to `{destination}`: {kind}")]
    ConnectFailed {
        /// Scheme, host and port.
        destination: String,
        /// The kind of the last failure.
        kind: io::ErrorKind,
    },
    /// Resolving, connecting and the TLS handshake took too long.
    #[error("no connection to `{destination}` within {timeout_ms} ms")]
    ConnectTimeout {
        /// Scheme, host and port.
        destination: String,
        /// The limit.
        timeout_ms: u64,
    },
    /// The socket is connected to another address than the one that was checked.
    #[error(
        "the connection to `{destination}` ended at {peer}, which is not the address that was checked"
    )]
    PeerMismatch {
        /// Scheme, host and port.
        destination: String,
        /// The address at the other end.
        peer: IpAddr,
    },
    /// The TLS handshake failed.
    #[error("no tls session with `{destination}`: {reason}")]
    TlsFailed {
        /// Scheme, host and port.
        destination: String,
        /// The cause, in our words.
        reason: &'static str,
    },
    /// The trust roots or the TLS settings cannot be used.
    #[error("the trust roots are not usable: {reason}")]
    TrustRootsUnusable {
        /// What is wrong with them.
        reason: &'static str,
    },
    /// A client certificate or its key cannot be used.
    #[error("the client certificate is not usable: {reason}")]
    IdentityUnusable {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The connection was gone before the request was written to it.
    #[error("the connection closed before the request was sent")]
    ClosedBeforeRequest,
    /// The exchange had no connection when its time ran out.
    #[error("no connection within the {timeout_ms} ms of the request")]
    DeadlineBeforeRequest {
        /// The limit.
        timeout_ms: u64,
    },
    /// The exchange took too long, and the request may have been sent.
    #[error("no complete response within {timeout_ms} ms")]
    DeadlineExceeded {
        /// The limit.
        timeout_ms: u64,
    },
    /// The connection was lost, and the request may have been sent.
    #[error("the connection was lost before the response was complete")]
    ConnectionLost,
    /// The peer answered with a redirect, which is never followed.
    #[error("the response is a redirect with status {status}, which is not followed")]
    Redirected {
        /// The status of the response.
        status: u16,
    },
    /// The peer answered with something that is not a response.
    #[error("the response is not usable: {reason}")]
    ResponseUnusable {
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The head of the response is above the limit.
    #[error("the response head is larger than {bytes_max} bytes or has too many headers")]
    ResponseHeadTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The body of the response is above the limit.
    #[error("the response body is larger than {bytes_max} bytes")]
    ResponseTooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// A streamed body was silent for too long.
    #[error("the response body was silent for {timeout_ms} ms")]
    IdleTimeout {
        /// The limit.
        timeout_ms: u64,
    },
}

impl EgressError {
    /// Whether it is certain that no byte of the request was written to a connection.
    ///
    /// `true` is a pre-effect failure. `false` means the outcome at the peer is unknown to this crate.
    pub fn nothing_was_sent(&self) -> bool {
        match self {
            Self::UrlUnusable { .. }
            | Self::RequestUnusable { .. }
            | Self::RequestTooLarge { .. }
            | Self::DestinationRefused { .. }
            | Self::PlainHttpRefused { .. }
            | Self::AddressRefused { .. }
            | Self::ResolveFailed { .. }
            | Self::ConnectFailed { .. }
            | Self::ConnectTimeout { .. }
            | Self::PeerMismatch { .. }
            | Self::TlsFailed { .. }
            | Self::TrustRootsUnusable { .. }
            | Self::IdentityUnusable { .. }
            | Self::ClosedBeforeRequest
            | Self::DeadlineBeforeRequest { .. } => true,
            Self::DeadlineExceeded { .. }
            | Self::ConnectionLost
            | Self::Redirected { .. }
            | Self::ResponseUnusable { .. }
            | Self::ResponseHeadTooLarge { .. }
            | Self::ResponseTooLarge { .. }
            | Self::IdleTimeout { .. } => false,
        }
    }
}
