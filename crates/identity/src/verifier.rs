//! The verifier: a bearer token in, verified facts or a refusal out.
//!
//! Owns the order of the checks: form, issuer, algorithm, type, key, signature, claims. Does not own any single rule.
//! Invariant: nothing in the claims but the issuer's name is used before the signature was checked, and that only to choose
//! the key set.

use std::{collections::BTreeMap, fmt, sync::Arc};

use placet_egress::EgressClient;
use placet_types::{clock::Clock, principal::PrincipalKind};

use crate::{
    claims::{Judge, check_id_token},
    config::{IdentityConfig, IssuerConfig, KindRule},
    error::{IdentityError, KeyError, SetupError, echo},
    jws::Jws,
    key_cache::KeyCache,
    token::{TokenRole, VerifiedToken},
};

/// Verifies bearer tokens. Clones share their keys.
#[derive(Clone)]
pub struct Verifier {
    inner: Arc<Inner>,
}

struct Inner {
    issuers: BTreeMap<String, Issuer>,
    leeway_s: u64,
    clock: Arc<dyn Clock>,
}

struct Issuer {
    config: IssuerConfig,
    keys: Arc<KeyCache>,
}

/// What an ID token must say beyond what its issuer's configuration asks for.
#[derive(Clone, Copy)]
pub(crate) struct IdTokenRules<'a> {
    /// For whom it is.
    pub(crate) client_id: &'a str,
    /// For which sign-in.
    pub(crate) nonce: &'a str,
}

/// An issuer whose keys could not be loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshFailure {
    /// The issuer.
    pub issuer: String,
    /// Why.
    pub cause: KeyError,
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("issuers", &self.inner.issuers.keys())
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// A verifier for these issuers. Keys in files are read now, keys behind URLs by the first [`Verifier::refresh`] or
    /// the first token.
    ///
    /// # Errors
    /// [`SetupError`] when the configuration is not sound, keys cannot be read, or there is a URL and no client for it.
    pub fn new(
        config: IdentityConfig,
        clock: Arc<dyn Clock>,
        egress: Option<EgressClient>,
    ) -> Result<Self, SetupError> {
        config.check()?;
        for warning in config.warnings() {
            tracing::warn!("{warning}");
        }
        let mut issuers = BTreeMap::new();
        for issuer in &config.issuers {
            let keys = Arc::new(KeyCache::new(issuer, &config, egress.as_ref())?);
            issuers.insert(issuer.issuer.clone(), Issuer { config: issuer.clone(), keys });
        }
        Ok(Self { inner: Arc::new(Inner { issuers, leeway_s: config.leeway_s, clock }) })
    }

    /// Verifies a token that was presented in the place of `role`.
    ///
    /// # Errors
    /// [`IdentityError`] for the first check that fails.
    pub async fn verify(
        &self,
        token: &str,
        role: TokenRole,
    ) -> Result<VerifiedToken, IdentityError> {
        let jws = Jws::parse(token)?;
        let issuer = self.issuer_of(&jws)?;
        jws.algorithm(&issuer.config)?;
        jws.check_type(&issuer.config)?;
        check_signature(&jws, issuer).await?;
        self.judge(&issuer.config, role).token(jws.claims(), jws.signed())
    }

    /// Verifies the ID token of a sign-in (OpenID Connect Core, section 3.1.3.7): signed by the issuer, for this client, of this
    /// attempt. The person it is about stands for themselves.
    pub(crate) async fn verify_id_token(
        &self,
        token: &str,
        rules: &IdTokenRules<'_>,
    ) -> Result<VerifiedToken, IdentityError> {
        let jws = Jws::parse(token)?;
        let issuer = self.issuer_of(&jws)?;
        jws.algorithm(&issuer.config)?;
        jws.check_id_token_type(&issuer.config)?;
        check_signature(&jws, issuer).await?;
        // An ID token is about a person and for a client, whatever the issuer's access tokens are about and for.
        let mut config = issuer.config.clone();
        config.audiences = [rules.client_id.to_owned()].into();
        config.kinds = KindRule::Fixed(PrincipalKind::User);
        let verified = self.judge(&config, TokenRole::Actor).token(jws.claims(), jws.signed())?;
        check_id_token(jws.claims(), rules, &verified)?;
        Ok(verified)
    }

    fn issuer_of(&self, jws: &Jws<'_>) -> Result<&Issuer, IdentityError> {
        let claimed = jws.claimed_issuer()?;
        let unknown = || IdentityError::UnknownIssuer { issuer: echo(claimed) };
        self.inner.issuers.get(claimed).ok_or_else(unknown)
    }

    fn judge<'a>(&self, issuer: &'a IssuerConfig, role: TokenRole) -> Judge<'a> {
        Judge { issuer, role, now: self.inner.clock.now(), leeway_s: self.inner.leeway_s }
    }

    /// Loads every issuer's keys again, all at the same time. Keys that cannot be loaded stay in use for a while.
    pub async fn refresh(&self) -> Vec<RefreshFailure> {
        let mut tasks = Vec::new();
        for (name, issuer) in &self.inner.issuers {
            let keys = Arc::clone(&issuer.keys);
            tasks.push((name.clone(), tokio::spawn(async move { keys.refresh().await })));
        }
        let mut failures = Vec::new();
        for (issuer, task) in tasks {
            if let Err(cause) = task.await.unwrap_or(Err(KeyError::Interrupted)) {
                tracing::warn!(issuer = %issuer, error = %cause, "the issuer's keys could not be refreshed");
                failures.push(RefreshFailure { issuer, cause });
            }
        }
        failures
    }

    /// The issuers whose tokens cannot be verified at present, for readiness.
    #[must_use]
    pub fn issuers_without_keys(&self) -> Vec<String> {
        let without = self.inner.issuers.iter().filter(|(_, issuer)| !issuer.keys.is_usable());
        without.map(|(name, _)| name.clone()).collect()
    }
}

async fn check_signature(jws: &Jws<'_>, issuer: &Issuer) -> Result<(), IdentityError> {
    let algorithm = jws.algorithm(&issuer.config)?;
    let key = issuer.keys.find(jws.kid()?, algorithm).await?;
    jws.check_signature(&key, algorithm, &issuer.config)
}
