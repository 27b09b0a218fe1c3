//! Ports of loopback for processes that are ended and started again on the same one.
//!
//! Owns the choice. Invariant: where there is room, it is none of those that the system gives to outgoing connections: a process that
//! is down for a moment would find its port taken by somebody's client.

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    ops::Range,
};

use anyhow::{Context as _, Result};

/// Lower ones have names, or are those of servers that people run.
const LOWEST: u16 = 10_000;
/// Where Linux begins with outgoing connections if it says nothing else.
const OUTGOING_FROM: u16 = 32_768;
/// How many are looked at before any other has to do.
const TRIES: usize = 64;

/// A port that nobody listens on.
///
/// # Errors
/// None is free.
pub fn free_port() -> Result<u16> {
    let lasting = lasting();
    let tried = (0..TRIES)
        .filter(|_| !lasting.is_empty())
        .map(|_| rand::random_range(lasting.clone()))
        .find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok());
    if let Some(port) = tried {
        return Ok(port);
    }
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("no port is free")?;
    Ok(listener.local_addr()?.port())
}

/// Those that no outgoing connection is given.
fn lasting() -> Range<u16> {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let from = text.split_whitespace().next().and_then(|first| first.parse().ok());
    LOWEST..from.unwrap_or(OUTGOING_FROM)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::{free_port, lasting};

    #[test]
    fn a_port_is_free_and_not_one_of_outgoing_connections() {
        let port = free_port().unwrap();
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).unwrap();
        assert!(lasting().is_empty() || lasting().contains(&port), "{port}");
    }
}
