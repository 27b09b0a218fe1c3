//! One token service, and when a request to it is repeated.
//!
//! Owns the attempts: with which version of the client's secret, when again, when not at all. Invariant: a second request is made only
//! where the service was unavailable, or another version of the secret is live; nothing else stands in for a response.

use std::time::Duration;

use parking_lot::Mutex;

use http::StatusCode;
use placet_egress::{EgressClient, EgressError};
use placet_identity::{LiveSecret, Secrets};
use placet_types::{
    clock::{Clock, Timestamp},
    digest::Digest,
};
use rand::Rng as _;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::timeout;

use crate::{
    answer::{self, Check},
    config::StsConfig,
    error::BrokerError,
    form::{self, Wanted},
    grant::Minted,
    shown::Shown,
};

/// The pause between the two attempts, in milliseconds.
const PAUSE_MS: std::ops::Range<u64> = 40..160;
/// For how long a client that was refused is not presented again with the same secret.
const CLOSED_MS: i64 = 30_000;
/// The same where a certificate authenticates us, since a renewal is not noticed here.
const CLOSED_UNSEEN_MS: i64 = 5_000;

/// A token service, and whether it currently refuses us.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) config: StsConfig,
    /// The section as a digest: what was minted under another one is not used.
    pub(crate) revision: Digest,
    /// Until when, and with which secret, the service counts as refusing us.
    refused: Mutex<Option<Refused>>,
}

#[derive(Debug, Clone, Copy)]
struct Refused {
    secret: Digest,
    until: Timestamp,
}

/// What a request needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Means<'a> {
    pub(crate) secrets: &'a Secrets,
    pub(crate) egress: &'a EgressClient,
    pub(crate) clock: &'a dyn Clock,
}

impl Service {
    pub(crate) fn new(config: StsConfig) -> Self {
        let section = serde_json::to_vec(&config).unwrap_or_default();
        Self { config, revision: Digest::of(&section), refused: Mutex::default() }
    }

    /// Asks for a credential.
    pub(crate) async fn ask(
        &self,
        wanted: &Wanted,
        means: Means<'_>,
    ) -> Result<Minted, BrokerError> {
        let live = self.secret(means.secrets).await?;
        self.check_known(&live.newest.value, means.clock.now())?;
        let first = self.ask_with(wanted, &live.newest.value, means).await;
        let Err(BrokerError::ClientRefused(code)) = first else { return first };
        // Rotated while we asked, or here before there: the other live version, once.
        let again = self.secret(means.secrets).await?;
        let (newest, previous) = again.into_values();
        let is_newer = newest.expose_secret() != live.newest.value.expose_secret();
        let other = if is_newer { Some(newest) } else { previous };
        if let Some(other) = other {
            let second = self.ask_with(wanted, &other, means).await;
            if !matches!(second, Err(BrokerError::ClientRefused(_))) {
                tracing::warn!(sts = %self.config.name, "a token service knows only one of the two live versions of its client's secret");
                return second;
            }
        }
        if is_about_the_grant(code) {
            tracing::error!(sts = %self.config.name, code, "a token service refuses us, and names as the reason what one caller asked for");
        } else {
            self.note_refused(&live.newest.value, means.clock.now());
            let (sts, closed_ms) = (&self.config.name, self.closed_ms());
            if self.config.client_auth.secret().is_some() {
                tracing::error!(%sts, code, closed_ms, "a token service refuses us; nothing is exchanged there for a while, or until the secret changes");
            } else {
                tracing::error!(%sts, code, closed_ms, "a token service refuses us and our certificate; nothing is exchanged there for a moment");
            }
        }
        Err(BrokerError::ClientRefused(code))
    }

    /// Asks with one version of the secret; a second time where the service was unavailable.
    async fn ask_with(
        &self,
        wanted: &Wanted,
        secret: &SecretString,
        means: Means<'_>,
    ) -> Result<Minted, BrokerError> {
        let first = self.try_once(wanted, secret, means).await;
        let Err(BrokerError::Unavailable(problem)) = &first else { return first };
        tracing::debug!(sts = %self.config.name, problem, "a token service is asked once more");
        let pause_ms = rand::rng().random_range(PAUSE_MS);
        tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        self.try_once(wanted, secret, means).await
    }

    async fn try_once(
        &self,
        wanted: &Wanted,
        secret: &SecretString,
        means: Means<'_>,
    ) -> Result<Minted, BrokerError> {
        let now = means.clock.now();
        let request = form::request(&self.config, wanted, secret, now)?;
        let shown = Shown::of(&request, wanted, &self.config.client_id, secret);
        let limit = Duration::from_millis(self.config.timeout_ms);
        let response = match timeout(limit, means.egress.send(request)).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => return Err(unanswered(&error)),
            Err(_elapsed) => {
                let problem = "it did not answer in time".to_owned();
                return Err(BrokerError::Unavailable(problem));
            }
        };
        if response.status() != StatusCode::OK {
            return Err(answer::refusal(response.status(), response.body(), wanted.kind));
        }
        let answered = means.clock.now();
        let check = Check { service: &self.config, wanted, shown: &shown, now, answered };
        check.success(response.body())
    }

    /// The client's current secret.
    async fn secret(&self, secrets: &Secrets) -> Result<LiveSecret, BrokerError> {
        let Some(name) = self.config.client_auth.secret() else {
            // The connection authenticates us.
            return Ok(LiveSecret::endless(SecretString::from(""), None));
        };
        let read = secrets.live_soon(name).await;
        read.map_err(|error| BrokerError::ClientSecret(error.to_string()))
    }

    fn check_known(&self, secret: &SecretString, now: Timestamp) -> Result<(), BrokerError> {
        let mut refused = self.refused.lock();
        let Some(known) = *refused else { return Ok(()) };
        if known.until > now && known.secret == Digest::of(secret.expose_secret().as_bytes()) {
            return Err(BrokerError::ClientRefused("refused a moment ago"));
        }
        *refused = None;
        Ok(())
    }

    /// For how long a refusal of us holds if the secret does not change.
    fn closed_ms(&self) -> i64 {
        if self.config.client_auth.secret().is_some() { CLOSED_MS } else { CLOSED_UNSEEN_MS }
    }

    fn note_refused(&self, secret: &SecretString, now: Timestamp) {
        let secret = Digest::of(secret.expose_secret().as_bytes());
        let until = now.plus_ms(self.closed_ms());
        *self.refused.lock() = Some(Refused { secret, until });
    }
}

/// Whether a code is about one caller's request. Then it does not close the service to everybody, even with a status about us.
fn is_about_the_grant(code: &str) -> bool {
    matches!(
        code,
        "invalid_grant"
            | "invalid_target"
            | "invalid_scope"
            | "access_denied"
            | "insufficient_user_authentication"
    )
}

/// The error for a request without a response.
fn unanswered(error: &EgressError) -> BrokerError {
    if matches!(error, EgressError::Redirected { .. }) {
        return BrokerError::Puzzling("it redirects, which is not followed");
    }
    let too_large = matches!(
        error,
        EgressError::ResponseTooLarge { .. } | EgressError::ResponseHeadTooLarge { .. }
    );
    if too_large {
        return BrokerError::Puzzling("its answer is too large");
    }
    // In all other cases the text names the destination, and nothing of the response.
    BrokerError::Unavailable(error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_client_that_a_certificate_proves_is_presented_again_soon() {
        for (auth, closed_ms) in [
            (json!({ "method": "tls_client_auth" }), CLOSED_UNSEEN_MS),
            (json!({ "method": "client_secret_basic", "secret": "sts" }), CLOSED_MS),
        ] {
            let config = serde_json::from_value(json!({
                "name": "corp", "issuer": "https://login.example", "client_id": "placet",
                "token_endpoint": "https://login.example/token", "client_auth": auth,
            }));
            let service = Service::new(config.unwrap());
            let (secret, now) = (SecretString::from(""), Timestamp::from_ms(1_000_000));
            service.note_refused(&secret, now);
            assert!(service.check_known(&secret, now.plus_ms(closed_ms - 1)).is_err(), "{auth}");
            assert!(service.check_known(&secret, now.plus_ms(closed_ms)).is_ok(), "{auth}");
        }
    }
}
