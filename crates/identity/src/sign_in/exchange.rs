//! Exchanging the code for the ID token: one request to the token endpoint, and a second one after a rotation of the client's secret.
//!
//! Owns the request's form. Invariant: the provider's response reaches only the verifier; not even its error text is kept.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, header};
use placet_types::json::{JsonLimits, parse_strict};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::form_urlencoded::{Serializer, byte_serialize};
use zeroize::Zeroizing;

use super::{Attempt, Metadata, Provider, SignInError};
use crate::secrets::LiveSecret;

const ANSWER_BYTES_MAX: usize = 128 * 1024;

impl Provider {
    pub(super) async fn exchange(
        &self,
        metadata: &Metadata,
        code: &str,
        attempt: &Attempt,
    ) -> Result<Zeroizing<String>, SignInError> {
        let live = self.secret().await?;
        let newest = live.as_ref().map(|live| &live.newest.value);
        let mut response = self.ask(metadata, code, attempt, newest).await?;
        if let Some(previous) = live.as_ref().and_then(|live| live.previous.as_ref())
            && is_client_refused(&response)
        {
            // The secret is rotated here, but not there yet. A client that is not recognised has not used up the code.
            response = self.ask(metadata, code, attempt, Some(&previous.value)).await?;
        }
        if response.status() != StatusCode::OK {
            let status = response.status();
            // It was used already, or is too old.
            if status == StatusCode::BAD_REQUEST && is_error(&response, "invalid_grant") {
                return Err(SignInError::Refused("the provider does not accept its code"));
            }
            return Err(self.unavailable(format!("it answers the code with {status}")));
        }
        let problem = || self.unavailable("its answer to the code is not the JSON that it must be");
        let answer = parsed(&response).ok_or_else(problem)?;
        let token = answer.get("id_token").and_then(Value::as_str);
        token
            .map(|token| Zeroizing::new(token.to_owned()))
            .ok_or(SignInError::Refused("the provider's answer holds no ID token"))
    }

    /// The client's current secret, and the previous one.
    async fn secret(&self) -> Result<Option<LiveSecret>, SignInError> {
        let Some(name) = &self.inner.config.client_secret else { return Ok(None) };
        let read = self.inner.secrets.live_soon(name).await;
        read.map(Some).map_err(|error| self.unavailable(error.to_string()))
    }

    async fn ask(
        &self,
        metadata: &Metadata,
        code: &str,
        attempt: &Attempt,
        secret: Option<&SecretString>,
    ) -> Result<Response<Bytes>, SignInError> {
        let request = self.request(metadata, code, attempt, secret)?;
        let response = self.inner.egress.send(request).await;
        response.map_err(|error| self.unavailable(error.to_string()))
    }

    fn request(
        &self,
        metadata: &Metadata,
        code: &str,
        attempt: &Attempt,
        secret: Option<&SecretString>,
    ) -> Result<Request<Bytes>, SignInError> {
        let client_id = self.inner.config.client_id.as_str();
        let mut form = Serializer::new(String::new());
        form.append_pair("grant_type", "authorization_code")
            .append_pair("code", code)
            .append_pair("redirect_uri", &attempt.redirect_uri)
            .append_pair("code_verifier", &attempt.verifier);
        let mut request = Request::post(metadata.token_endpoint.as_str())
            .header(header::ACCEPT, "application/json")
            .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
        match secret {
            Some(secret) if !metadata.secret_in_body => {
                let basic = basic_authorization(client_id, secret);
                let problem = || self.unavailable("its client's secret cannot be sent");
                request = request.header(header::AUTHORIZATION, basic.ok_or_else(problem)?);
            }
            secret => {
                let secret = secret.map(|secret| ("client_secret", secret.expose_secret()));
                form.append_pair("client_id", client_id).extend_pairs(secret);
            }
        }
        let request = request.body(Bytes::from(form.finish()));
        request.map_err(|error| self.unavailable(error.to_string()))
    }
}

/// The header in which a client authenticates with its secret (RFC 6749, section 2.3.1); `None` if a header cannot hold it.
pub fn basic_authorization(client_id: &str, secret: &SecretString) -> Option<HeaderValue> {
    // Both parts are form-encoded before they are joined.
    let encode = |text: &str| Zeroizing::new(byte_serialize(text.as_bytes()).collect::<String>());
    let (name, secret) = (encode(client_id), encode(secret.expose_secret()));
    let pair = Zeroizing::new([name.as_str(), ":", &secret].concat());
    let basic = Zeroizing::new(format!("Basic {}", STANDARD.encode(pair.as_bytes())));
    let mut value = HeaderValue::from_str(&basic).ok()?;
    value.set_sensitive(true);
    Some(value)
}

fn parsed(response: &Response<Bytes>) -> Option<Value> {
    let limits = JsonLimits { bytes_max: ANSWER_BYTES_MAX, ..JsonLimits::default() };
    parse_strict(response.body(), &limits).ok()
}

/// Whether the provider does not accept the client's authentication (RFC 6749, section 5.2).
fn is_client_refused(response: &Response<Bytes>) -> bool {
    response.status() == StatusCode::UNAUTHORIZED
        || (response.status() == StatusCode::BAD_REQUEST && is_error(response, "invalid_client"))
}

/// Whether this is the error that an answer names (RFC 6749, section 5.2).
fn is_error(response: &Response<Bytes>, code: &str) -> bool {
    parsed(response)
        .is_some_and(|answer: Value| answer.get("error").is_some_and(|error| error == code))
}
