//! The limits of one client: times, sizes and counts. Every input that crosses a socket has one.
//!
//! It owns the numbers and their defaults, not their enforcement (see `client`, `connect` and `body`).

/// The limits of an [`EgressClient`](crate::EgressClient).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Resolving, connecting and the TLS handshake together.
    pub connect_timeout_ms: u64,
    /// One whole exchange of `send`, or the time until the response head of `stream`.
    pub request_timeout_ms: u64,
    /// The longest silence between two pieces of a streamed body.
    pub idle_timeout_ms: u64,
    /// How long an unused connection is kept for the next request: shorter than the keep-alive of servers (five seconds for Node.js), so
    /// that no request meets a connection that is being closed.
    pub pool_idle_timeout_ms: u64,
    /// Unused connections kept for one destination.
    pub pool_idle_connections_max: usize,
    /// The body of a request.
    pub request_bytes_max: usize,
    /// The body of a response that is read whole.
    pub response_bytes_max: usize,
    /// The body of a response that is streamed.
    pub stream_bytes_max: usize,
    /// The names and values of all headers of a request or a response.
    pub header_bytes_max: usize,
    /// The number of headers of a response.
    pub headers_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connect_timeout_ms: 5_000,
            request_timeout_ms: 30_000,
            idle_timeout_ms: 60_000,
            pool_idle_timeout_ms: 2_000,
            pool_idle_connections_max: 8,
            request_bytes_max: 4 * 1024 * 1024,
            response_bytes_max: 4 * 1024 * 1024,
            stream_bytes_max: 64 * 1024 * 1024,
            header_bytes_max: 32 * 1024,
            headers_max: 100,
        }
    }
}
