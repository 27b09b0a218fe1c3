//! Sign-in of people by OpenID Connect: authorization code with PKCE, state and nonce.
//!
//! Owns one round trip to the provider: where the browser is sent, what is remembered of it, and what has to be true when it comes
//! back. The ID token is verified by [`Verifier`], so that tenant, names, groups and algorithms are those of the issuer's
//! configuration. Does not keep sessions: what is remembered of a sign-in under way goes with the browser, sealed, so that it may come back
//! to another process. Invariants: a code is only ever sent to the provider that was asked, with the verifier that was made for it; neither
//! code, token nor secret is printed, logged, or kept in a form that can be read without the browser.

use std::{fmt, sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use placet_egress::EgressClient;
use placet_types::{
    clock::{Clock, Timestamp},
    digest::Digest,
};
use serde::{Deserialize, Serialize};
use tokio::{sync::Mutex, time::Instant};
use url::Url;

use crate::{
    claims::IdTokenRules,
    dev::fill_random,
    error::{IdentityError, SetupError},
    sealing,
    secrets::Secrets,
    sign_in_proof::SignInProof,
    token::VerifiedToken,
    verifier::Verifier,
};
use metadata::Metadata;

pub use config::SignInConfig;
pub use exchange::basic_authorization;

mod config;
mod exchange;
mod metadata;

/// How long the provider's metadata is cached.
const METADATA_AGE_MAX: Duration = Duration::from_secs(3_600);
/// Bytes of a fresh text: 256 bits.
const FRESH_BYTES: usize = 32;
/// How much earlier than our clock the provider's may put a fresh proof of identity.
const FRESH_LEEWAY_MS: i64 = 5_000;
/// How far the clocks of two nodes may be apart, in milliseconds.
const CLOCKS_APART_MS: i64 = 60_000;
/// How long a sign-in may take, in milliseconds.
const ATTEMPT_AGE_MS_MAX: i64 = 600_000;
/// The longest code that is accepted.
const PARAMETER_BYTES_MAX: usize = 2_048;
/// The longest state that is accepted.
const STATE_BYTES_MAX: usize = 4_096;
/// The purpose for which an attempt is sealed.
const ATTEMPT: &str = "placet.sign-in.v1";

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
    #[error("what the browser brought back is refused: {0}")]
    Refused(&'static str),
    /// The provider proved who the person is, but not just now.
    #[error("the provider did not ask the person again, though it was asked to")]
    NotFresh,
    /// The ID token is not accepted.
    #[error("the ID token is not accepted: {0}")]
    Identity(#[from] IdentityError),
}

impl SignInError {
    /// Whether the same may be accepted in a moment: nothing was found wrong with it.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::Unavailable { .. } => true,
            Self::Identity(error) => error.is_transient(),
            Self::Refused(_) | Self::NotFresh => false,
        }
    }
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

/// The parameters of a new sign-in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beginning {
    /// The URL to which the provider sends the browser back.
    pub redirect_uri: String,
    /// Whether the provider is to ask the person again.
    pub fresh: bool,
    /// Where the person wants to go afterwards.
    pub to: String,
}

/// Somebody who has signed in.
#[derive(Debug, Clone)]
pub struct SignedIn {
    /// Who it is.
    pub token: VerifiedToken,
    /// The proof of the sign-in, to be stored with their session.
    pub proof: SignInProof,
    /// Where they wanted to go.
    pub to: String,
}

/// What is remembered of a sign-in while the browser is at the provider. It goes with the browser as the `state`, sealed under a secret in
/// another place of the same browser. It has no `Debug`.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Attempt {
    nonce: String,
    verifier: String,
    redirect_uri: String,
    started_at: Timestamp,
    fresh: bool,
    to: String,
}

impl Attempt {
    /// The text by which the browser's return is recognised.
    fn state(&self, browser: &str) -> Result<String, SetupError> {
        Ok(URL_SAFE_NO_PAD.encode(sealing::seal(browser, ATTEMPT, self)?))
    }

    /// The attempt of a browser that is back.
    fn of_state(browser: &str, state: &str) -> Option<Self> {
        if state.len() > STATE_BYTES_MAX {
            return None;
        }
        sealing::unseal(browser, ATTEMPT, &URL_SAFE_NO_PAD.decode(state).ok()?)
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
    pub fn new(
        config: SignInConfig,
        verifier: Verifier,
        secrets: Secrets,
        egress: EgressClient,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let metadata = Mutex::new(None);
        Self { inner: Arc::new(Inner { config, secrets, verifier, egress, clock, metadata }) }
    }

    /// The name people know it by: its host.
    pub fn name(&self) -> String {
        let url = Url::parse(&self.inner.config.issuer).ok();
        let host = url.as_ref().and_then(Url::host_str).map(str::to_owned);
        host.unwrap_or_else(|| self.inner.config.issuer.clone())
    }

    /// Where to send a browser that holds a secret of 256 random bits.
    ///
    /// # Errors
    /// [`SignInError::Unavailable`] when the provider's metadata cannot be loaded.
    pub async fn begin(&self, browser: &str, beginning: Beginning) -> Result<Url, SignInError> {
        let metadata = self.metadata().await?;
        let text = || fresh_text().map_err(|error| self.unavailable(error.to_string()));
        let Beginning { redirect_uri, fresh, to } = beginning;
        let started_at = self.inner.clock.now();
        let (nonce, verifier) = (text()?, text()?);
        let attempt = Attempt { nonce, verifier, redirect_uri, started_at, fresh, to };
        let state = attempt.state(browser).map_err(|error| self.unavailable(error.to_string()))?;
        let challenge = URL_SAFE_NO_PAD.encode(Digest::of(attempt.verifier.as_bytes()).as_bytes());
        let mut url = metadata.authorization_endpoint.clone();
        {
            let mut query = url.query_pairs_mut();
            query
                .append_pair("response_type", "code")
                .append_pair("client_id", &self.inner.config.client_id)
                .append_pair("redirect_uri", &attempt.redirect_uri)
                .append_pair("scope", &self.inner.config.scope())
                .append_pair("state", &state)
                .append_pair("nonce", &attempt.nonce)
                .append_pair("code_challenge", &challenge)
                .append_pair("code_challenge_method", "S256");
            if fresh {
                query.append_pair("prompt", "login").append_pair("max_age", "0");
            }
        }
        Ok(url)
    }

    /// Who the person is, if everything that came back belongs to a sign-in that this browser began, in whichever process. The provider
    /// ensures that it comes back only once, by accepting a code once.
    ///
    /// # Errors
    /// [`SignInError`] for the first thing that does not fit.
    pub async fn finish(&self, browser: &str, callback: Callback) -> Result<SignedIn, SignInError> {
        let refused = |problem| Err(SignInError::Refused(problem));
        let state = callback.state.as_deref();
        let Some(attempt) = state.and_then(|state| Attempt::of_state(browser, state)) else {
            return refused("the `state` is another");
        };
        let age_ms = self.inner.clock.now().since_ms(attempt.started_at);
        if !(CLOCKS_APART_MS.saturating_neg()..=ATTEMPT_AGE_MS_MAX).contains(&age_ms) {
            return refused("it was begun too long ago");
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
        let proof = SignInProof::of_provider(&id_token, &attempt.nonce, self.inner.clock.now());
        let token = self.again(&proof).await?;
        let earliest = attempt.started_at.plus_ms(FRESH_LEEWAY_MS.saturating_neg());
        if attempt.fresh && token.authenticated_at().is_none_or(|at| at < earliest) {
            return Err(SignInError::NotFresh);
        }
        Ok(SignedIn { token, proof, to: attempt.to })
    }

    /// Who a person is that signed in before, by the proof of that sign-in: verified in full, as of that moment.
    ///
    /// # Errors
    /// [`SignInError`] when it is not accepted, as where the provider has withdrawn the key.
    pub async fn again(&self, proof: &SignInProof) -> Result<VerifiedToken, SignInError> {
        let refused = |problem| Err(SignInError::Refused(problem));
        let Some(nonce) = proof.nonce() else { return refused("it is no sign-in of a provider") };
        let rules = IdTokenRules { client_id: &self.inner.config.client_id, nonce };
        let verified = self.inner.verifier.verify_id_token(proof.token(), &rules, proof.at());
        let token = verified.await?;
        if token.issuer() != self.inner.config.issuer {
            return refused("the ID token is of another issuer");
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

    /// The provider's metadata, fetched again when it is old.
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
