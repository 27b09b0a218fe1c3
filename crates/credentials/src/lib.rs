//! Outbound credentials: minted for one permitted call, for one host, with the narrowest scopes, and gone soon.
//!
//! Owns the requests to token services (RFC 8693, RFC 6749), the checks of their answers, the short-lived cache, and the binding of a
//! credential to its target. Does not decide whether a call is made, reads no clock and no environment, opens no socket itself.
//!
//! Invariants, written as absences:
//! - no inbound token leaves for anything but a token service, and none that comes back from there is used;
//! - no answer is used that grants more than was asked for, or something else;
//! - nothing falls back: without the credential that was planned there is no call;
//! - no text of a token service reaches a caller, and no type in here shows a token when it is printed.

mod answer;
mod assertion;
mod broker;
mod cache;
mod config;
mod error;
mod form;
mod grant;
mod request;
mod revocation;
mod service;
mod shown;

pub use broker::{Broker, egress_limits, origin_of};
pub use cache::Purge;
pub use config::{
    AssertionAudience, ClientAuth, ConfigError, Leniency, PresentedAs, StsConfig, check_all,
};
pub use error::{BrokerError, Remedy};
pub use grant::{CallTokens, Grant, GrantRequest};
pub use revocation::{Bearer, Revoked, SubjectName};

#[cfg(test)]
mod tests;
