//! The only crate of Placet that opens client sockets.
//!
//! It owns the allow-list of destinations, the classification of addresses, name resolution, dialling, TLS and the
//! limits of an HTTP exchange. It does not know tools, credentials or policy: callers hand it a finished request.
//!
//! Invariants, written as absences:
//! - nothing is dialled that no [`Destination`] names by scheme, host and port;
//! - no address is dialled that was not classified, and the classified address is the dialled one;
//! - no redirect is followed, no proxy is used, no cookie is kept, no request is sent twice;
//! - no text of a response reaches an error;
//! - no client certificate is shown to a destination that it is not for.

mod address;
mod body;
mod bounded_file;
mod client;
mod connect;
mod destination;
mod dial;
mod error;
mod http1;
mod identity;
mod limits;
mod request;
mod resolve;
mod stream;
mod tls;

pub use address::{AddressClass, PrivateRanges};
pub use body::EgressBody;
pub use bounded_file::{file_digest, read_bounded};
pub use client::EgressClient;
pub use connect::{Connecting, EgressConnector};
pub use destination::{Destination, EgressPolicy, Scheme};
pub use error::EgressError;
pub use identity::{ClientIdentity, Trust};
pub use limits::Limits;
pub use request::join_segments;
pub use stream::EgressStream;

#[cfg(test)]
mod tests;
