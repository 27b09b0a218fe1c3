//! The HTTP interface of the vault, as far as it is needed: entries, leases, tokens.
//!
//! Owns the form of requests and answers. Does not own when they are made. Invariants: nothing is asked but of the configured address; of an
//! answer only what is read here goes on, and nothing of one that is no success.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, header};
use placet_egress::{EgressClient, EgressError, join_segments};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use url::Url;

use super::{VaultConfig, VaultError};

/// The largest answer that is read.
pub(super) const ANSWER_BYTES_MAX: usize = 256 * 1024;
/// A longer life is none that anybody means: it is bounded here, so that times can be added without overflow.
const LIFE_S_MAX: u64 = 10 * 365 * 86_400;

/// The way to the vault.
#[derive(Debug)]
pub(super) struct Wire {
    address: Url,
    namespace: Option<HeaderValue>,
    client: EgressClient,
}

/// A request that needs our token.
#[derive(Debug, Clone)]
pub(super) enum Ask<'a> {
    Read { path: &'a str },
    Renew { lease: &'a str, increment: Duration },
    Revoke { lease: &'a str },
    LookUpSelf,
    RenewSelf,
    RevokeSelf,
}

/// A lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lease {
    pub(super) id: String,
    pub(super) life: Duration,
    pub(super) renewable: bool,
}

/// What an answer says. Its values are kept for as long as it takes to pick ours out of them.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) lease: Option<Lease>,
    pub(super) fields: Fields,
    pub(super) token: Option<Granted>,
}

/// The fields of an entry.
#[derive(Default)]
pub(super) struct Fields(pub(super) BTreeMap<String, Value>);

impl std::fmt::Debug for Fields {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.keys()).finish()
    }
}

/// A token that was granted or renewed.
#[derive(Debug)]
pub(super) struct Granted {
    pub(super) value: SecretString,
    /// Nothing: it does not end.
    pub(super) life: Option<Duration>,
    pub(super) renewable: bool,
}

#[derive(Deserialize)]
struct Document {
    #[serde(default)]
    lease_id: String,
    #[serde(default)]
    renewable: bool,
    #[serde(default)]
    lease_duration: u64,
    #[serde(default)]
    data: Option<Map<String, Value>>,
    #[serde(default)]
    auth: Option<AuthDocument>,
}

#[derive(Deserialize)]
struct AuthDocument {
    client_token: String,
    #[serde(default)]
    lease_duration: u64,
    #[serde(default)]
    renewable: bool,
}

impl Wire {
    pub(super) fn new(config: &VaultConfig, client: EgressClient) -> Result<Self, VaultError> {
        let unusable = |_error| {
            VaultError::Unreachable(EgressError::RequestUnusable {
                reason: "the namespace is no header",
            })
        };
        let namespace =
            config.namespace.as_deref().map(HeaderValue::from_str).transpose().map_err(unusable)?;
        Ok(Self { address: config.address.clone(), namespace, client })
    }

    /// Asks what needs our token.
    pub(super) async fn ask(
        &self,
        ask: &Ask<'_>,
        token: &SecretString,
    ) -> Result<Answer, VaultError> {
        let (method, path, body) = ask.parts();
        let segments: Vec<&str> = path.split('/').collect();
        match self.send(method, &segments, Some(token), body).await? {
            (StatusCode::OK, body) => read(&body),
            (StatusCode::NO_CONTENT, _) => Ok(Answer::default()),
            (status, _) => Err(ask.refused(status)),
        }
    }

    /// Exchanges a JWT for a token.
    pub(super) async fn log_in(
        &self,
        mount: &str,
        role: &str,
        jwt: &SecretString,
    ) -> Result<Granted, VaultError> {
        let body = json!({ "role": role, "jwt": jwt.expose_secret() });
        let segments: Vec<&str> =
            std::iter::once("auth").chain(mount.split('/')).chain(["login"]).collect();
        let (status, body) = self.send(Method::POST, &segments, None, Some(body)).await?;
        if status != StatusCode::OK {
            if let Some(passing) = not_ready(status) {
                return Err(passing);
            }
            let (mount, role) = (mount.to_owned(), role.to_owned());
            return Err(VaultError::LoginRefused { mount, role, status: status.as_u16() });
        }
        let granted = read(&body)?.token;
        granted.ok_or(VaultError::Malformed { problem: "a log-in gave no token" })
    }

    async fn send(
        &self,
        method: Method,
        segments: &[&str],
        token: Option<&SecretString>,
        body: Option<Value>,
    ) -> Result<(StatusCode, Bytes), VaultError> {
        let unusable = |reason| VaultError::Unreachable(EgressError::RequestUnusable { reason });
        let versioned: Vec<&str> = std::iter::once("v1").chain(segments.iter().copied()).collect();
        let url = join_segments(&self.address, &versioned).map_err(VaultError::Unreachable)?;
        let mut request = Request::builder()
            .method(method)
            .uri(url.as_str())
            .header(header::ACCEPT, "application/json")
            // An agent in between may ask for it, to tell programs from pages that a browser was led to.
            .header(HeaderName::from_static("x-vault-request"), "true");
        if let Some(namespace) = &self.namespace {
            request = request.header(HeaderName::from_static("x-vault-namespace"), namespace);
        }
        if let Some(token) = token {
            let value = HeaderValue::from_str(token.expose_secret());
            let mut value = value.map_err(|_error| unusable("the token is no header"))?;
            value.set_sensitive(true);
            request = request.header(HeaderName::from_static("x-vault-token"), value);
        }
        let bytes = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        if !bytes.is_empty() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let request = request.body(bytes).map_err(|_error| unusable("it cannot be requested"))?;
        let response = self.client.send(request).await?;
        Ok((response.status(), response.into_body()))
    }
}

impl Ask<'_> {
    fn parts(&self) -> (Method, String, Option<Value>) {
        match self {
            Self::Read { path } => (Method::GET, (*path).to_owned(), None),
            Self::Renew { lease, increment } => {
                let body = json!({ "lease_id": lease, "increment": increment.as_secs() });
                (Method::PUT, "sys/leases/renew".to_owned(), Some(body))
            }
            Self::Revoke { lease } => {
                (Method::PUT, "sys/leases/revoke".to_owned(), Some(json!({ "lease_id": lease })))
            }
            Self::LookUpSelf => (Method::GET, "auth/token/lookup-self".to_owned(), None),
            Self::RenewSelf => (Method::POST, "auth/token/renew-self".to_owned(), Some(json!({}))),
            Self::RevokeSelf => (Method::POST, "auth/token/revoke-self".to_owned(), None),
        }
    }

    /// What a status that is no success means.
    fn refused(&self, status: StatusCode) -> VaultError {
        if let Some(passing) = not_ready(status) {
            return passing;
        }
        let (path, what) = match self {
            Self::Read { path } => ((*path).to_owned(), format!("read `{path}`")),
            Self::Renew { .. } => ("a lease of ours".to_owned(), "renew a lease".to_owned()),
            Self::Revoke { .. } => ("a lease of ours".to_owned(), "revoke a lease".to_owned()),
            Self::LookUpSelf | Self::RenewSelf | Self::RevokeSelf => {
                ("our token".to_owned(), "maintain our token".to_owned())
            }
        };
        match status {
            // Of a token that is not valid any more it says the same: the session finds out which it is.
            StatusCode::FORBIDDEN | StatusCode::UNAUTHORIZED => VaultError::Denied { what },
            StatusCode::NOT_FOUND => VaultError::Absent { path },
            other => VaultError::Unusable {
                path,
                problem: format!("the vault answers {}", other.as_u16()),
            },
        }
    }
}

/// A vault that cannot serve, whatever it was asked.
fn not_ready(status: StatusCode) -> Option<VaultError> {
    // 412: a standby has not caught up; 472 and 473: standbys of other kinds.
    let passing = status.is_server_error() || matches!(status.as_u16(), 412 | 429 | 472 | 473);
    passing.then_some(VaultError::NotReady { status: status.as_u16() })
}

fn read(body: &[u8]) -> Result<Answer, VaultError> {
    // The library's message can quote the text, so it is dropped.
    let malformed = |_error| VaultError::Malformed { problem: "it is not JSON of the right form" };
    let document: Document = serde_json::from_slice(body).map_err(malformed)?;
    let life = Duration::from_secs(document.lease_duration.min(LIFE_S_MAX));
    let lease = (!document.lease_id.is_empty()).then_some(Lease {
        id: document.lease_id,
        life,
        renewable: document.renewable,
    });
    let token = document.auth.map(|auth| Granted {
        value: SecretString::from(auth.client_token),
        life: (auth.lease_duration > 0)
            .then(|| Duration::from_secs(auth.lease_duration.min(LIFE_S_MAX))),
        renewable: auth.renewable,
    });
    let fields = Fields(entry(document.data.unwrap_or_default()).into_iter().collect());
    Ok(Answer { lease, fields, token })
}

/// What was written by the one who wrote the entry: version 2 of the key-value engine puts its own data around it.
fn entry(mut data: Map<String, Value>) -> Map<String, Value> {
    let versioned = data.get("metadata").and_then(|metadata| metadata.get("version")).is_some();
    match data.get_mut("data") {
        Some(Value::Object(inner)) if versioned => std::mem::take(inner),
        Some(_) | None => data,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(body: &Value) -> Answer {
        read(body.to_string().as_bytes()).unwrap()
    }

    fn field(answer: &Answer, name: &str) -> Option<String> {
        answer.fields.0.get(name).and_then(Value::as_str).map(str::to_owned)
    }

    #[test]
    fn the_fields_of_a_versioned_entry_are_those_inside_it() {
        let versioned = answer(&json!({
            "request_id": "r", "lease_id": "", "renewable": false, "lease_duration": 0,
            "data": { "data": { "key": "k", "metadata": "mine" }, "metadata": { "version": 3, "deletion_time": "" } },
            "wrap_info": null, "warnings": null, "auth": null
        }));
        assert_eq!(field(&versioned, "key").as_deref(), Some("k"));
        assert_eq!(field(&versioned, "metadata").as_deref(), Some("mine"));
        assert!(versioned.lease.is_none());
        // An entry of version 1 may have fields of those names.
        let plain =
            answer(&json!({ "data": { "data": { "key": "k" }, "metadata": "x", "other": "o" } }));
        assert_eq!(field(&plain, "other").as_deref(), Some("o"));
        assert_eq!(field(&plain, "key"), None);
    }

    #[test]
    fn a_lease_and_a_token_are_read_and_neither_is_shown() {
        let leased = answer(&json!({
            "lease_id": "database/creds/reader/abc", "renewable": true, "lease_duration": 3_600,
            "data": { "username": "u", "password": "kanarienvogel" }, "auth": null
        }));
        let lease = leased.lease.clone().unwrap();
        assert_eq!((lease.life, lease.renewable), (Duration::from_secs(3_600), true));
        let logged_in = answer(&json!({
            "lease_id": "", "data": null,
            "auth": { "client_token": "kanarienvogel", "lease_duration": u64::MAX, "renewable": true, "policies": ["a"] }
        }));
        assert!(!format!("{leased:?}{logged_in:?}").contains("kanarienvogel"));
        let granted = logged_in.token.unwrap();
        assert_eq!(granted.value.expose_secret(), "kanarienvogel");
        assert_eq!(granted.life, Some(Duration::from_secs(LIFE_S_MAX)));
    }

    #[test]
    fn words_of_the_vault_are_in_no_error() {
        let error = read(br#"{ "lease_id": ["kanarienvogel"] }"#).unwrap_err();
        assert_eq!(error, VaultError::Malformed { problem: "it is not JSON of the right form" });
        let ask = Ask::Read { path: "secret/data/x" };
        assert!(matches!(ask.refused(StatusCode::FORBIDDEN), VaultError::Denied { .. }));
        assert!(matches!(ask.refused(StatusCode::NOT_FOUND), VaultError::Absent { .. }));
        assert!(matches!(ask.refused(StatusCode::BAD_REQUEST), VaultError::Unusable { .. }));
        for passing in [429, 473, 500, 503] {
            let error = ask.refused(StatusCode::from_u16(passing).unwrap());
            assert_eq!(error, VaultError::NotReady { status: passing });
        }
    }
}
