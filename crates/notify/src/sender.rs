//! Delivering a message: by HTTP or by mail, through the only crate that opens sockets.
//!
//! Owns what a delivery needs: secrets at the moment of use, the form for the channel, one request. Does not retry. Invariants: messages
//! go only to configured hosts; no text of an answer is kept; no secret is in an error.

use std::{collections::BTreeMap, fmt, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Method, Request, StatusCode, header};
use placet_egress::{EgressClient, EgressPolicy, Limits, Trust};
use placet_identity::Secrets;
use placet_types::{clock::Timestamp, ids::ChannelName};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use url::Url;

use crate::{
    config::{
        ChannelConfig, ConfigError, HookTarget, HookUrl, NotifyConfig, Target, WebhookTarget,
    },
    message::Letter,
    render,
    signature::SigningKey,
    smtp,
};

pub use crate::outbox::Failure;

/// Delivers messages.
#[async_trait]
pub trait MessageSender: Send + Sync + fmt::Debug {
    /// Delivers a letter, once; returns the receiver's answer, in a word.
    ///
    /// # Errors
    /// [`Failure`] when it was not accepted, or the outcome is unknown.
    async fn deliver(
        &self,
        channel: &ChannelName,
        letter: &Letter,
        now: Timestamp,
    ) -> Result<String, Failure>;
}

/// Delivers over sockets.
#[derive(Debug)]
pub struct Post {
    channels: BTreeMap<ChannelName, ChannelConfig>,
    secrets: Arc<Secrets>,
    egress: EgressClient,
    console: Option<Url>,
}

impl Post {
    /// For the channels of a configuration, with further roots if `trust` has some; links lead to `console`.
    ///
    /// # Errors
    /// [`ConfigError`] when a channel's target is invalid, or TLS is not available.
    pub fn new(
        config: &NotifyConfig,
        secrets: Arc<Secrets>,
        console: Option<Url>,
        own_listeners: Vec<std::net::SocketAddr>,
        trust: &Trust,
    ) -> Result<Self, ConfigError> {
        let policy = EgressPolicy::new(config.destinations()?).refusing_listeners(own_listeners);
        let limits = Limits {
            request_timeout_ms: 15_000,
            connect_timeout_ms: 10_000,
            response_bytes_max: 64 * 1024,
            ..Limits::default()
        };
        let egress =
            EgressClient::with_trust(policy, limits, trust).map_err(|error| ConfigError {
                key: "channels".to_owned(),
                problem: format!("cannot be reached: {error}"),
            })?;
        Ok(Self { channels: config.channels.clone(), secrets, egress, console })
    }

    /// Whether a channel has what it needs: readable secrets, usable signing keys, a valid address. Contacts nobody.
    ///
    /// # Errors
    /// [`Failure`] for the first thing that is missing.
    pub async fn check(&self, channel: &ChannelName) -> Result<(), Failure> {
        let Some(config) = self.channels.get(channel) else {
            return Err(Failure::passing("there is no such channel"));
        };
        match &config.to {
            Target::Webhook(target) => {
                for name in std::iter::once(&target.key).chain(&target.old_key) {
                    drop(self.key(name).await?);
                }
                self.address(&target.url).await.map(drop)
            }
            Target::Slack(target) | Target::Teams(target) => {
                self.address(&target.url).await.map(drop)
            }
            Target::Email(target) => match &target.password {
                Some(name) => self.secret(name).await.map(drop),
                None => Ok(()),
            },
        }
    }

    async fn key(&self, name: &str) -> Result<SigningKey, Failure> {
        SigningKey::read(&self.secret(name).await?)
            .map_err(|error| Failure::passing(format!("the secret `{name}`: {error}")))
    }

    async fn secret(&self, name: &str) -> Result<SecretString, Failure> {
        let read = self.secrets.live_soon(name).await;
        read.map(|live| live.newest.value).map_err(|error| Failure::passing(error.to_string()))
    }

    async fn address(&self, url: &HookUrl) -> Result<Url, Failure> {
        match url {
            HookUrl::Plain(url) => Ok(url.clone()),
            HookUrl::Secret { secret, origin } => {
                let text = self.secret(secret).await?;
                let wrong = || {
                    Failure::passing(format!(
                        "the secret `{secret}` is no address below its `origin`"
                    ))
                };
                let url = Url::parse(text.expose_secret()).map_err(|_invalid| wrong())?;
                if url.origin() == origin.origin() { Ok(url) } else { Err(wrong()) }
            }
        }
    }

    async fn webhook(
        &self,
        target: &WebhookTarget,
        letter: &Letter,
        now: Timestamp,
    ) -> Result<String, Failure> {
        let body = render::webhook(letter, self.console.as_ref());
        let body = Bytes::from(body.to_string());
        let timestamp_s = now.as_ms().div_euclid(1_000);
        let mut signatures = Vec::new();
        for name in std::iter::once(&target.key).chain(&target.old_key) {
            signatures.push(self.key(name).await?.sign(&letter.message.id, timestamp_s, &body));
        }
        let request = Request::builder()
            .header("webhook-id", &letter.message.id)
            .header("webhook-timestamp", timestamp_s)
            .header("webhook-signature", signatures.join(" "));
        self.post(&self.address(&target.url).await?, request, body).await
    }

    async fn hook(&self, target: &HookTarget, payload: &Value) -> Result<String, Failure> {
        let url = self.address(&target.url).await?;
        self.post(&url, Request::builder(), Bytes::from(payload.to_string())).await
    }

    async fn post(
        &self,
        url: &Url,
        request: http::request::Builder,
        body: Bytes,
    ) -> Result<String, Failure> {
        let request = request
            .method(Method::POST)
            .uri(url.as_str())
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("placet/", env!("CARGO_PKG_VERSION")))
            .body(body)
            .map_err(|_invalid| Failure::passing("the address cannot be asked"))?;
        let answer = self.egress.send(request).await;
        let answer = answer.map_err(|error| Failure::passing(error.to_string()))?;
        let status = answer.status();
        if status.is_success() {
            return Ok(format!("HTTP {}", status.as_u16()));
        }
        let seconds = answer.headers().get(header::RETRY_AFTER);
        let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse::<u64>().ok());
        Err(Failure {
            why: format!("the receiver answered HTTP {}", status.as_u16()),
            retry_after_ms: seconds.map(|seconds| seconds.saturating_mul(1_000)),
            is_permanent: status == StatusCode::GONE,
        })
    }
}

#[async_trait]
impl MessageSender for Post {
    async fn deliver(
        &self,
        channel: &ChannelName,
        letter: &Letter,
        now: Timestamp,
    ) -> Result<String, Failure> {
        let Some(config) = self.channels.get(channel) else {
            return Err(Failure::passing("there is no such channel"));
        };
        let console = self.console.as_ref();
        match &config.to {
            Target::Webhook(target) => self.webhook(target, letter, now).await,
            Target::Slack(target) => self.hook(target, &render::slack(letter, console)).await,
            Target::Teams(target) => self.hook(target, &render::teams(letter, console)).await,
            Target::Email(target) => {
                let password = match &target.password {
                    Some(name) => Some(self.secret(name).await?),
                    None => None,
                };
                let text = render::mail(letter, console);
                smtp::send(&self.egress, target, password, letter.message.id.as_str(), &text, now)
                    .await
            }
        }
    }
}
