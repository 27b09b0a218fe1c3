//! The checks of an outgoing request, and the safe way to build its URL.
//!
//! It owns what a request may look like before anything is resolved or dialled. It does not send. Invariant: the
//! host that is compared with the allow-list is the host in the form a URL parser gives it, so two readers of one URL
//! cannot disagree about where it leads.

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Uri, Version};
use url::Url;

use crate::destination::{Destination, EgressPolicy, Scheme};
use crate::error::EgressError;
use crate::limits::Limits;

/// Bytes of one path segment before it is encoded.
const SEGMENT_BYTES_MAX: usize = 4096;

/// Appends path segments to a URL, each encoded on its own, so that a segment stays one segment. If the last one is empty,
/// the path ends with a slash.
///
/// # Errors
///
/// Refuses segments that are empty and not the last, `.` or `..`, too long, or hold control characters: a parser would
/// drop or move them without a word.
pub fn join_segments(base: &Url, segments: &[&str]) -> Result<Url, EgressError> {
    let mut url = base.clone();
    let mut path = url
        .path_segments_mut()
        .map_err(|()| EgressError::UrlUnusable { reason: "it cannot hold a path" })?;
    path.pop_if_empty();
    let mut left = segments.iter().peekable();
    while let Some(segment) = left.next() {
        let reason = match *segment {
            "" if left.peek().is_some() => "a path segment is empty",
            "." | ".." => "a path segment is `.` or `..`",
            long if long.len() > SEGMENT_BYTES_MAX => "a path segment is too long",
            text if text.chars().any(char::is_control) => {
                "a path segment holds a control character"
            }
            usable => {
                path.push(usable);
                continue;
            }
        };
        return Err(EgressError::UrlUnusable { reason });
    }
    drop(path);
    Ok(url)
}

/// Headers that the connection owns. A caller that sets one is wrong or hostile.
const OWNED_HEADERS: [HeaderName; 10] = [
    header::HOST,
    header::CONNECTION,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::TE,
    header::TRAILER,
    header::EXPECT,
    header::PROXY_AUTHORIZATION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

/// Checks a request, puts it into the form in which it is sent, and returns its destination.
pub(crate) fn check(
    request: &mut Request<Bytes>,
    policy: &EgressPolicy,
    limits: &Limits,
) -> Result<Destination, EgressError> {
    let unusable = |reason| Err(EgressError::RequestUnusable { reason });
    let destination = destination_of(request.uri(), policy)?;
    if request.method() == Method::CONNECT {
        return unusable("`CONNECT` would open a tunnel");
    }
    if OWNED_HEADERS.iter().any(|name| request.headers().contains_key(name)) {
        return unusable("it sets a header that belongs to the connection");
    }
    if request.body().len() > limits.request_bytes_max {
        return Err(EgressError::RequestTooLarge { bytes_max: limits.request_bytes_max });
    }
    if header_bytes(request.headers()) > limits.header_bytes_max {
        return Err(EgressError::RequestTooLarge { bytes_max: limits.header_bytes_max });
    }
    let length = request.body().len().to_string();
    let lengths = request.headers().get_all(header::CONTENT_LENGTH);
    if lengths.iter().any(|value| value.as_bytes() != length.as_bytes()) {
        return unusable("its content length is not the length of its body");
    }
    request.headers_mut().remove(header::CONTENT_LENGTH);
    *request.version_mut() = Version::HTTP_11;
    let host = host_of(request.uri(), &destination)
        .ok_or(EgressError::RequestUnusable { reason: "its host cannot be a header" })?;
    request.headers_mut().insert(header::HOST, host);
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = path.map_or_else(Uri::default, Uri::from);
    Ok(destination)
}

/// The `Host` header (RFC 9112, section 3.2): as the URL has it, without the scheme's own port.
fn host_of(uri: &Uri, destination: &Destination) -> Option<HeaderValue> {
    let host = uri.host()?;
    let is_implied = destination.port == destination.scheme.default_port();
    let port = uri.port_u16().filter(|_| !is_implied);
    let host = port.map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
    HeaderValue::try_from(host).ok()
}

/// The allow-list entry of a URI, or the refusal.
pub(crate) fn destination_of(uri: &Uri, policy: &EgressPolicy) -> Result<Destination, EgressError> {
    let unusable = |reason| EgressError::RequestUnusable { reason };
    let scheme = uri
        .scheme_str()
        .and_then(Scheme::parse)
        .ok_or(unusable("its scheme is neither `https` nor `http`"))?;
    let authority = uri.authority().ok_or(unusable("it names no host"))?;
    if authority.as_str().contains('@') {
        return Err(unusable("its url holds a user or a password"));
    }
    let url =
        Url::parse(&uri.to_string()).map_err(|_error| unusable("its url cannot be parsed"))?;
    let host = url.host_str().ok_or(unusable("it names no host"))?;
    if !authority.host().eq_ignore_ascii_case(host) {
        return Err(unusable("its host is not in canonical form"));
    }
    let port = authority.port_u16().unwrap_or(scheme.default_port());
    if url.port_or_known_default() != Some(port) {
        return Err(unusable("its port is not in canonical form"));
    }
    if url.path() != uri.path() {
        return Err(unusable("its path is not in canonical form"));
    }
    policy.find(scheme, host, port)
}

/// The size of names and values.
pub(crate) fn header_bytes(headers: &HeaderMap) -> usize {
    headers.iter().fold(0_usize, |sum, (name, value)| {
        sum.saturating_add(name.as_str().len()).saturating_add(value.as_bytes().len())
    })
}
