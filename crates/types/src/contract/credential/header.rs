//! The header that a credential is sent in.
//!
//! Owns which names it may have. Knows no values. Invariant: no invalid header name is accepted, nor one that belongs to the
//! transport, to the protocol above it or to a single connection.

/// Names that a contract may not use: those of the transport and of traces, and those that HTTP reserves for one connection or for proxies.
const OWNED: [&str; 20] = [
    "accept",
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "last-event-id",
    "origin",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
];
/// The prefix of the headers of MCP itself.
const OWNED_PREFIX: &str = "mcp-";
const NAME_BYTES_MAX: usize = 128;

/// Checks the name of a credential's header, in any case.
///
/// # Errors
/// Why no credential can be sent in it. The name is not repeated: it may be a value in the place of a name.
pub fn check_header(name: &str) -> Result<(), &'static str> {
    // A token of RFC 9110, section 5.6.2.
    let is_name_byte =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_name_byte) {
        return Err(
            "it is no name of a header: letters, digits and `-` are expected, such as `authorization` or `x-api-key`; \
             what is sent in it is the value of the secret",
        );
    }
    let name = name.to_ascii_lowercase();
    if OWNED.contains(&name.as_str()) || name.starts_with(OWNED_PREFIX) {
        return Err(
            "a header of this name belongs to the transport, and no credential is sent in it",
        );
    }
    Ok(())
}
