//! The verifier: a bearer token in, verified facts or a refusal out.
//!
//! Owns the order of the checks: form, issuer, algorithm, type, key, signature, claims. Does not own any single rule.
//! Invariant: nothing in the claims but the issuer's name is used before the signature was checked, and that only to choose
//! the key set.

use std::{collections::BTreeMap, fmt, sync::Arc};

use placet_egress::EgressClient;
use placet_types::clock::Clock;

use crate::{
    claims::Judge,
    config::{IdentityConfig, IssuerConfig},
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
        let claimed = jws.claimed_issuer()?;
        let unknown = || IdentityError::UnknownIssuer { issuer: echo(claimed) };
        let Issuer { config, keys } = self.inner.issuers.get(claimed).ok_or_else(unknown)?;
        let algorithm = jws.algorithm(config)?;
        jws.check_type(config)?;
        let key = keys.find(jws.kid()?, algorithm).await?;
        jws.check_signature(&key, algorithm, config)?;
        let judge = Judge {
            issuer: config,
            role,
            now: self.inner.clock.now(),
            leeway_s: self.inner.leeway_s,
        };
        judge.token(jws.claims(), jws.signed())
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
