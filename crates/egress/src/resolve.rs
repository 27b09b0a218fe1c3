//! Name resolution: the trait, and the resolver of the operating system.
//!
//! It owns the step from a host name to addresses. It judges nothing: every address it returns is classified by
//! `connect`, and only a classified address is dialled.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;

/// The pending answer of a resolver.
pub(crate) type Resolving = Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send>>;

/// Turns a host name into addresses. It is asked once for each new connection and never for an IP literal.
pub(crate) trait Resolve: fmt::Debug + Send + Sync {
    /// All addresses of a host.
    fn resolve(&self, host: &str) -> Resolving;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, host: &str) -> Resolving {
        let host = host.to_owned();
        Box::pin(async move {
            let found = tokio::net::lookup_host((host.as_str(), 0)).await?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }
}
