//! A provider's metadata: its discovery document, parsed strictly.
//!
//! Owns which members are read. Invariant: a document of another issuer, or of a provider without PKCE with SHA-256, is refused.

use bytes::Bytes;
use http::{Request, StatusCode, header};
use placet_egress::{Destination, EgressClient, PrivateRanges};
use placet_types::json::{JsonLimits, parse_strict};
use serde_json::Value;
use url::Url;

use super::SignInConfig;

const DOCUMENT_BYTES_MAX: usize = 128 * 1024;

/// A provider's endpoints and preferences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Metadata {
    pub(super) authorization_endpoint: Url,
    pub(super) token_endpoint: Url,
    pub(super) end_session_endpoint: Option<Url>,
    /// Whether it takes the client's secret only in the body.
    pub(super) secret_in_body: bool,
    /// Whether each of its authorization responses has an `iss` (RFC 9207).
    pub(super) names_itself: bool,
}

/// Fetches the document.
pub(super) async fn fetch(
    config: &SignInConfig,
    egress: &EgressClient,
) -> Result<Metadata, String> {
    let request = Request::get(config.discovery())
        .header(header::ACCEPT, "application/json")
        .body(Bytes::new())
        .map_err(|error| error.to_string())?;
    let response = egress.send(request).await.map_err(|error| error.to_string())?;
    if response.status() != StatusCode::OK {
        return Err(format!("its discovery document is answered with {}", response.status()));
    }
    read(config, response.body())
}

/// Parses the document.
pub(super) fn read(config: &SignInConfig, bytes: &[u8]) -> Result<Metadata, String> {
    let limits = JsonLimits { bytes_max: DOCUMENT_BYTES_MAX, ..JsonLimits::default() };
    let document = parse_strict(bytes, &limits).map_err(|error| error.to_string())?;
    let text = |name: &str| document.get(name).and_then(Value::as_str);
    if text("issuer") != Some(config.issuer.as_str()) {
        return Err("its discovery document names another issuer".to_owned());
    }
    let lists = |name: &str, word: &str| {
        let words = document.get(name).and_then(Value::as_array);
        words.map(|words| words.iter().any(|listed| listed.as_str() == Some(word)))
    };
    if lists("code_challenge_methods_supported", "S256") == Some(false) {
        return Err("it does not take PKCE with S256".to_owned());
    }
    let endpoint = |name: &str| {
        let url = text(name).and_then(|url| Url::parse(url).ok());
        url.filter(|url| is_usable(config, url))
    };
    let needed = |name: &str| {
        endpoint(name).ok_or_else(|| format!("its discovery document has no usable `{name}`"))
    };
    let methods = "token_endpoint_auth_methods_supported";
    Ok(Metadata {
        authorization_endpoint: needed("authorization_endpoint")?,
        token_endpoint: needed("token_endpoint")?,
        end_session_endpoint: endpoint("end_session_endpoint"),
        // Without a list the default is the header (OpenID Connect Discovery, section 3).
        secret_in_body: lists(methods, "client_secret_basic") == Some(false)
            && lists(methods, "client_secret_post") == Some(true),
        names_itself: document.get("authorization_response_iss_parameter_supported")
            == Some(&Value::Bool(true)),
    })
}

/// Browsers and codes are only sent over TLS, except inside a private network.
fn is_usable(config: &SignInConfig, url: &Url) -> bool {
    let private =
        if config.private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
    Destination::from_url(url, private).is_ok()
}
