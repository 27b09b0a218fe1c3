//! Sign-in of people by OpenID Connect: authorization code with PKCE, state and nonce.
//!
//! Owns one round trip to the provider: where the browser is sent, what is remembered of it, and what has to be true when it comes
//! back. The ID token is verified by [`Verifier`], so that tenant, names, groups and algorithms are those of the issuer's
//! configuration. Does not keep sessions. Invariants: a code is only ever sent to the provider that was asked, with the verifier that
//! was made for it; neither code, token nor secret is kept, printed or logged.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_egress::EgressClient;
use placet_types::{
    clock::{Clock, Timestamp},
    digest::Digest,
};
use tokio::{sync::Mutex, time::Instant};
use url::Url;

use crate::{
    dev::fill_random,
    error::{IdentityError, SetupError},
    secrets::Secrets,
    token::VerifiedToken,
    verifier::{IdTokenRules, Verifier},
};
use metadata::Metadata;

pub use config::SignInConfig;

mod config;
mod exchange;
mod metadata;

/// How long what the provider says about itself is believed.
const METADATA_AGE_MAX: Duration = Duration::from_secs(3_600);
/// Bytes of a fresh text: 256 bits.
const FRESH_BYTES: usize = 32;
/// How much earlier than our clock the provider's may put a fresh proof of identity.
const FRESH_LEEWAY_MS: i64 = 5_000;
/// The longest code or state that is looked at.
const PARAMETER_BYTES_MAX: usize = 2_048;

/// Why somebody could not be signed in. `Display` is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SignInError {
    /// The provider cannot be used at present.
    #[error("the provider `{issuer}` cannot be used: {problem}")]
    Unavailable {
        /// The provider.
        issuer: String,
        /// What is wrong.
        problem: String,
    },
    /// What came back does not belong to what was asked.
    #[error("what the browser brought back is refused: {problem}")]
    Refused {
        /// What does not fit.
        problem: &'static str,
    },
    /// The provider proved who the person is, but not just now.
    #[error("the provider did not ask the person again, though it was asked to")]
    NotFresh,
    /// The ID token is not accepted.
    #[error("the ID token is not accepted: {0}")]
    Identity(#[from] IdentityError),
}

/// A provider that people sign in with.
#[derive(Clone)]
pub struct Provider {
    inner: Arc<Inner>,
}

struct Inner {
    config: SignInConfig,
    secrets: Secrets,
    verifier: Verifier,
    egress: EgressClient,
    clock: Arc<dyn Clock>,
    metadata: Mutex<Option<(Instant, Arc<Metadata>)>>,
}

impl fmt::Debug for Provider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("issuer", &self.inner.config.issuer)
            .finish_non_exhaustive()
    }
}

/// What is remembered of a sign-in while the browser is at the provider. No `Debug` of what is secret in it.
#[derive(Clone)]
pub struct Attempt {
    state: String,
    nonce: String,
    verifier: String,
    redirect_uri: String,
    started_at: Timestamp,
    fresh: bool,
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("fresh", &self.fresh).finish_non_exhaustive()
    }
}

impl Attempt {
    /// The text by which the browser's return is recognised.
    #[must_use]
    pub fn state(&self) -> &str {
        &self.state
    }
}

/// What the browser brought back. It has no `Debug`: it holds the code.
#[derive(Clone)]
pub struct Callback {
    /// `code`.
    pub code: Option<String>,
    /// `state`.
    pub state: Option<String>,
    /// `iss` (RFC 9207).
    pub issuer: Option<String>,
    /// `error`, where the provider refused.
    pub error: Option<String>,
}

impl fmt::Debug for Callback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Callback").field("issuer", &self.issuer).finish_non_exhaustive()
    }
}

impl Provider {
    /// The provider of a configuration. It is not asked anything before the first sign-in.
    #[must_use]
    pub fn new(
        config: SignInConfig,
        (verifier, secrets): (Verifier, Secrets),
        egress: EgressClient,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let metadata = Mutex::new(None);
        Self { inner: Arc::new(Inner { config, secrets, verifier, egress, clock, metadata }) }
    }

    /// The name people know it by: its host.
    #[must_use]
    pub fn name(&self) -> String {
        let url = Url::parse(&self.inner.config.issuer).ok();
        let host = url.as_ref().and_then(Url::host_str).map(str::to_owned);
        host.unwrap_or_else(|| self.inner.config.issuer.clone())
    }

    /// Where to send the browser, and what to remember until it is back. With `fresh` the provider is to ask the person again.
    ///
    /// # Errors
    /// [`SignInError::Unavailable`] when the provider does not say how it is used.
    pub async fn begin(
        &self,
        redirect_uri: &str,
        fresh: bool,
    ) -> Result<(Url, Attempt), SignInError> {
        let metadata = self.metadata().await?;
        let text = || fresh_text().map_err(|error| self.unavailable(error.to_string()));
        let attempt = Attempt {
            state: text()?,
            nonce: text()?,
            verifier: text()?,
            redirect_uri: redirect_uri.to_owned(),
            started_at: self.inner.clock.now(),
            fresh,
        };
        let challenge = URL_SAFE_NO_PAD.encode(Digest::of(attempt.verifier.as_bytes()).as_bytes());
        let mut url = metadata.authorization_endpoint.clone();
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &self.inner.config.client_id)
                .append_pair("redirect_uri", redirect_uri)
                .append_pair("scope", &self.inner.config.scope())
                .append_pair("state", &attempt.state)
                .append_pair("nonce", &attempt.nonce)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256");
            if fresh {
                query.append_pair("prompt", "login").append_pair("max_age", "0");
            }
        }
        Ok((url, attempt))
    }

    /// Who the person is, if everything that came back belongs to the attempt.
    ///
    /// # Errors
    /// [`SignInError`] for the first thing that does not fit.
    pub async fn finish(
        &self,
        attempt: Attempt,
        callback: Callback,
    ) -> Result<VerifiedToken, SignInError> {
        let refused = |problem| Err(SignInError::Refused { problem });
        let same = |text: &str| Digest::of(text.as_bytes()) == Digest::of(attempt.state.as_bytes());
        if !callback.state.as_deref().is_some_and(same) {
            return refused("the `state` is another");
        }
        let metadata = self.metadata().await?;
        let issuer_fits = match callback.issuer.as_deref() {
            Some(issuer) => issuer == self.inner.config.issuer,
            None => !metadata.names_itself,
        };
        if !issuer_fits {
            return refused("it comes from another provider, or one that does not say which it is");
        }
        if callback.error.is_some() {
            return refused("the provider says no");
        }
        let code = match callback.code {
            Some(code) if (1..=PARAMETER_BYTES_MAX).contains(&code.len()) => code,
            Some(_) | None => return refused("there is no code"),
        };
        let id_token = self.exchange(&metadata, &code, &attempt).await?;
        let rules = IdTokenRules { client_id: &self.inner.config.client_id, nonce: &attempt.nonce };
        let token = self.inner.verifier.verify_id_token(&id_token, &rules).await?;
        if token.issuer() != self.inner.config.issuer {
            return refused("the ID token is of another issuer");
        }
        let earliest = attempt.started_at.plus_ms(FRESH_LEEWAY_MS.saturating_neg());
        if attempt.fresh && token.authenticated_at().is_none_or(|at| at < earliest) {
            return Err(SignInError::NotFresh);
        }
        Ok(token)
    }

    /// Where the person can sign out of the provider as well, where it offers that (RP-initiated logout).
    pub async fn sign_out_url(&self, back_to: &str) -> Option<Url> {
        let mut url = self.metadata().await.ok()?.end_session_endpoint.clone()?;
        url.query_pairs_mut()
            .append_pair("client_id", &self.inner.config.client_id)
            .append_pair("post_logout_redirect_uri", back_to);
        Some(url)
    }

    /// What the provider says about itself, asked again when it is old.
    async fn metadata(&self) -> Result<Arc<Metadata>, SignInError> {
        let mut known = self.inner.metadata.lock().await;
        if let Some((at, metadata)) = known.as_ref()
            && at.elapsed() < METADATA_AGE_MAX
        {
            return Ok(Arc::clone(metadata));
        }
        let read = metadata::fetch(&self.inner.config, &self.inner.egress).await;
        let metadata = Arc::new(read.map_err(|problem| self.unavailable(problem))?);
        *known = Some((Instant::now(), Arc::clone(&metadata)));
        Ok(metadata)
    }

    fn unavailable(&self, problem: impl Into<String>) -> SignInError {
        SignInError::Unavailable {
            issuer: self.inner.config.issuer.clone(),
            problem: problem.into(),
        }
    }
}

/// 256 random bits as text, for sessions and the like.
///
/// # Errors
/// [`SetupError::NoRandomness`] when the operating system gives no random bytes.
pub fn fresh_text() -> Result<String, SetupError> {
    let mut bytes = [0_u8; FRESH_BYTES];
    fill_random(&mut bytes)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}
