//! The headers of one call: its trace and its credential.
//!
//! Owns how a credential becomes a header. Invariant: the credential of a call is on the requests of that call, on those of its owner's
//! session, and on no other, and cannot be printed.

use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::ExposeSecret;
use tokio::time::Instant;

use placet_adapter::{
    adapter::{Credential, TraceHeaders},
    outcome::AdapterError,
};
use placet_types::contract::credential::check_header;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// What one call adds to its requests. Travels with the message, so that it cannot be on another.
#[derive(Debug, Clone)]
pub(crate) struct CallHeaders {
    map: HeaderMap,
    /// The only origin that the credential may be sent to.
    origin: Option<String>,
    /// When the credential expires.
    ends: Option<Instant>,
}

impl CallHeaders {
    /// The headers of a call.
    pub(crate) fn of(
        trace: &TraceHeaders,
        credential: Option<&Credential>,
    ) -> Result<Self, AdapterError> {
        let mut headers = HeaderMap::new();
        for (name, value) in [(TRACEPARENT, &trace.traceparent), (TRACESTATE, &trace.tracestate)] {
            // An invalid trace is no reason not to call.
            if let Some(Ok(value)) = value.as_deref().map(HeaderValue::from_str) {
                headers.insert(name, value);
            }
        }
        if let Some(credential) = credential {
            let (name, value) =
                secret_header(&credential.header, credential.value.expose_secret())?;
            headers.insert(name, value);
        }
        let origin = credential.and_then(|credential| credential.origin.clone());
        let ends = credential.and_then(|credential| credential.ends).map(Instant::from_std);
        Ok(Self { map: headers, origin, ends })
    }

    /// When the credential expires.
    pub(super) const fn ends(&self) -> Option<Instant> {
        self.ends
    }

    /// The part that goes with the other requests of its session: the credential, without the trace.
    pub(super) fn for_session(&self) -> Self {
        let mut session = self.clone();
        session.map.remove(TRACEPARENT);
        session.map.remove(TRACESTATE);
        session
    }

    /// The headers, for a request to `origin`; `None` for another origin than the credential's.
    pub(super) fn map_for(&self, origin: &str) -> Option<&HeaderMap> {
        self.origin.as_deref().is_none_or(|bound| bound == origin).then_some(&self.map)
    }
}

/// A header with a secret value, which is never printed.
pub(super) fn secret_header(
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), AdapterError> {
    let unusable =
        |why: &str| AdapterError::Misconfigured(format!("the credential's header {why}"));
    // Every contract is checked for this when it is loaded; here it also has to hold for contracts from elsewhere.
    check_header(name).map_err(|_problem| unusable("has a name that is not for credentials"))?;
    let name =
        HeaderName::from_bytes(name.as_bytes()).map_err(|_error| unusable("has no usable name"))?;
    let mut value =
        HeaderValue::from_str(value).map_err(|_error| unusable("has no usable value"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::{AdapterError, CallHeaders, Credential, TraceHeaders};

    fn credential(header: &str, value: &str) -> Credential {
        Credential { header: header.to_owned(), value: value.into(), origin: None, ends: None }
    }

    #[test]
    fn a_credential_is_carried_and_never_printed() {
        let headers = CallHeaders::of(
            &TraceHeaders::default(),
            Some(&credential("authorization", "Bearer c4nary")),
        )
        .unwrap();
        assert_eq!(headers.map.get("authorization").unwrap().as_bytes(), b"Bearer c4nary");
        assert!(!format!("{headers:?}").contains("c4nary"));
    }

    #[test]
    fn a_credential_cannot_replace_a_header_of_the_transport() {
        for name in [
            "Host",
            "content-type",
            "Mcp-Session-Id",
            "traceparent",
            "Transfer-Encoding",
            "connection",
            "proxy-authorization",
            "bad name",
            "",
        ] {
            let refused = CallHeaders::of(&TraceHeaders::default(), Some(&credential(name, "x")))
                .unwrap_err();
            assert!(matches!(refused, AdapterError::Misconfigured(_)), "{name}");
        }
    }

    #[test]
    fn a_value_cannot_smuggle_a_second_header() {
        let refused =
            CallHeaders::of(&TraceHeaders::default(), Some(&credential("x-key", "a\r\nx-b: c")))
                .unwrap_err();
        assert!(!refused.to_string().contains("x-b"));
    }
}
