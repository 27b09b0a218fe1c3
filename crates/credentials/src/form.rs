//! The request to a token service, exactly.
//!
//! Owns the parameters of RFC 8693 and RFC 6749 as they are sent, and how the client proves itself. Sends nothing. Invariant: a parameter
//! is in a request because of the list in here or of the configuration, never because a caller sent it.

use std::collections::BTreeSet;

use bytes::Bytes;
use http::{Request, header};
use placet_identity::{SubjectToken, basic_authorization};
use placet_types::{clock::Timestamp, contract::credential::CredentialKind};
use secrecy::{ExposeSecret as _, SecretString};
use url::form_urlencoded::Serializer;
use zeroize::Zeroizing;

use crate::{
    assertion::{self, Assertion},
    config::{ACCESS_TOKEN, AssertionAudience, ClientAuth, JWT, StsConfig},
    error::BrokerError,
    grant::CallTokens,
};

const TOKEN_EXCHANGE: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const JWT_SPIFFE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-spiffe";
/// Room for two tokens, percent-encoded.
const FORM_BYTES: usize = 80 * 1024;
const JWT_BEARER: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// What is requested, no matter by whom and how often.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) kind: CredentialKind,
    pub(crate) tokens: Option<CallTokens>,
    pub(crate) actor: Actor,
    pub(crate) audience: Option<String>,
    pub(crate) resource: Option<String>,
    pub(crate) scopes: BTreeSet<String>,
    pub(crate) scopes_needed: BTreeSet<String>,
}

impl Wanted {
    /// When the first of the presented tokens expires, and with it what is exchanged for them; `None` where none is presented.
    pub(crate) fn over_at(&self) -> Option<Timestamp> {
        let tokens = self.tokens.as_ref()?;
        let actor = tokens.actor.as_ref().filter(|_| self.actor == Actor::Token);
        let subject = tokens.subject.facts().expires_at;
        Some(actor.map_or(subject, |actor| subject.min(actor.facts().expires_at)))
    }
}

/// Who is named as acting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The agent, by the actor's token of [`CallTokens`].
    Token,
    /// Placet, by an assertion.
    Assertion,
    /// Nobody.
    Nobody,
}

/// The request of one try at `now`, with this version of the client's secret.
pub(crate) fn request(
    service: &StsConfig,
    wanted: &Wanted,
    secret: &SecretString,
    now: Timestamp,
) -> Result<Request<Bytes>, BrokerError> {
    // Enough capacity from the start: a string that grows leaves copies behind that are not overwritten.
    let mut form = Serializer::new(String::with_capacity(FORM_BYTES));
    match wanted.kind {
        CredentialKind::TokenExchange => exchange(&mut form, service, wanted, secret, now)?,
        CredentialKind::ClientCredentials => {
            form.append_pair("grant_type", "client_credentials");
        }
        CredentialKind::StaticSecret => {
            return Err(BrokerError::Misconfigured("a static secret is not minted"));
        }
    }
    for (name, value) in [("audience", &wanted.audience), ("resource", &wanted.resource)] {
        if let Some(value) = value {
            form.append_pair(name, value);
        }
    }
    if !wanted.scopes.is_empty() {
        let scopes: Vec<&str> = wanted.scopes.iter().map(String::as_str).collect();
        form.append_pair("scope", &scopes.join(" "));
    }
    for (name, value) in &service.params {
        form.append_pair(name, value);
    }
    let mut request = Request::post(service.token_endpoint.as_str())
        .header(header::ACCEPT, "application/json")
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    match &service.client_auth {
        ClientAuth::ClientSecretBasic { .. } => {
            let value = basic_authorization(&service.client_id, secret);
            let value = value.ok_or_else(|| unusable("header"))?;
            request = request.header(header::AUTHORIZATION, value);
        }
        ClientAuth::ClientSecretPost { .. } => {
            form.append_pair("client_id", &service.client_id)
                .append_pair("client_secret", secret.expose_secret());
        }
        ClientAuth::TlsClientAuth {} => {
            form.append_pair("client_id", &service.client_id);
        }
        ClientAuth::SpiffeJwt { .. } => {
            form.append_pair("client_id", &service.client_id)
                .append_pair("client_assertion_type", JWT_SPIFFE)
                .append_pair("client_assertion", secret.expose_secret());
        }
        ClientAuth::PrivateKeyJwt { .. } => {
            let proof = assertion_of(service, secret, now)?;
            form.append_pair("client_id", &service.client_id)
                .append_pair("client_assertion_type", JWT_BEARER)
                .append_pair("client_assertion", &proof);
        }
    }
    // Overwritten when the last holder drops it.
    let body = Bytes::from_owner(Zeroizing::new(form.finish().into_bytes()));
    request.body(body).map_err(|_error| unusable("request"))
}

fn unusable(what: &str) -> BrokerError {
    BrokerError::ClientSecret(format!("the {what} cannot be made with it"))
}

/// The parameters of RFC 8693, section 2.1.
fn exchange(
    form: &mut Serializer<'_, String>,
    service: &StsConfig,
    wanted: &Wanted,
    secret: &SecretString,
    now: Timestamp,
) -> Result<(), BrokerError> {
    let tokens = wanted.tokens.as_ref().ok_or(BrokerError::SubjectMissing)?;
    form.append_pair("grant_type", TOKEN_EXCHANGE)
        .append_pair("subject_token", tokens.subject.expose_to_token_service())
        .append_pair("subject_token_type", service.subject_token_type.uri());
    match wanted.actor {
        Actor::Token => {
            let none = BrokerError::NoActor("the call has no agent's token");
            let actor = tokens.actor.as_ref().ok_or(none)?;
            form.append_pair("actor_token", actor.expose_to_token_service())
                .append_pair("actor_token_type", actor_type(service, actor));
        }
        Actor::Assertion => {
            let proof = assertion_of(service, secret, now)?;
            form.append_pair("actor_token", &proof).append_pair("actor_token_type", JWT);
        }
        Actor::Nobody => {}
    }
    if !service.omit_requested_token_type {
        form.append_pair("requested_token_type", ACCESS_TOKEN);
    }
    Ok(())
}

/// The type of an agent's token: a JWT-SVID is not an access token, whatever the users' tokens are.
fn actor_type(service: &StsConfig, actor: &SubjectToken) -> &'static str {
    if actor.is_svid() { JWT } else { service.subject_token_type.uri() }
}

fn assertion_of(
    service: &StsConfig,
    secret: &SecretString,
    now: Timestamp,
) -> Result<Zeroizing<String>, BrokerError> {
    if matches!(service.client_auth, ClientAuth::SpiffeJwt { .. }) {
        return Ok(Zeroizing::new(secret.expose_secret().to_owned()));
    }
    let ClientAuth::PrivateKeyJwt { key_id, audience, .. } = &service.client_auth else {
        let problem = "Placet can only act by name where it signs with a key";
        return Err(BrokerError::NoActor(problem));
    };
    let audience = match audience {
        AssertionAudience::TokenEndpoint => &service.token_endpoint,
        AssertionAudience::Issuer => &service.issuer,
    };
    assertion::sign(
        secret,
        &Assertion { client_id: &service.client_id, audience, key_id: key_id.as_deref() },
        now,
    )
}
