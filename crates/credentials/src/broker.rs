//! The broker: a credential for a call that is permitted.
//!
//! Owns the order: whose token, is it still valid, is a credential cached, is a request in flight, ask. Invariants: one request per key at
//! a time; a failure has no fallback; a cache hit saves a request and never a decision, since only a permitted call asks.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
};

use futures::{
    FutureExt as _,
    future::{BoxFuture, Shared},
};
use parking_lot::Mutex;

use placet_egress::{Destination, EgressClient, Limits, PrivateRanges};
use placet_identity::{Secrets, VerifiedCaller};
use placet_types::{
    clock::{Clock, Timestamp},
    contract::credential::{CachePolicy, CredentialKind, CredentialPlan},
    digest::Digest,
    ids::TenantId,
};
use tokio::{task::AbortHandle, time::timeout_at};
use tracing::Instrument as _;
use url::Url;

use crate::{
    answer::ANSWER_BYTES_MAX,
    cache::{Cache, Known, Owner, Purge},
    config::{ConfigError, StsConfig, check_all},
    error::BrokerError,
    form::Wanted,
    grant::{CallTokens, Grant, GrantRequest, Minted},
    request::{Keys, RidesOn, actor_of, bearer_of, keys_of, owner_of, wanted},
    revocation::{Bearer, Revocations, Revoked},
    service::{Means, Service},
};

type Outcome = Result<Arc<Minted>, BrokerError>;
type Flights = HashMap<Digest, Flight>;

/// A request that is under way, and since when.
#[derive(Clone)]
struct Flight {
    outcome: Shared<BoxFuture<'static, Outcome>>,
    task: AbortHandle,
    begun: Timestamp,
}

/// Mints credentials. Clones share the cache.
#[derive(Clone)]
pub struct Broker {
    inner: Arc<Inner>,
}

struct Inner {
    services: BTreeMap<String, Arc<Service>>,
    secrets: Secrets,
    egress: Option<EgressClient>,
    clock: Arc<dyn Clock>,
    cache: Cache,
    revocations: Revocations,
    flights: Mutex<Flights>,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("services", &self.inner.services.keys())
            .finish_non_exhaustive()
    }
}

/// The limits for the egress client of a broker.
pub fn egress_limits() -> Limits {
    Limits {
        request_timeout_ms: 10_000,
        request_bytes_max: 256 * 1024,
        response_bytes_max: ANSWER_BYTES_MAX,
        ..Limits::default()
    }
}

/// The origin of a URL, in the form that a credential is bound to: `https://host:port`.
///
/// # Errors
/// Why no credential may be sent to it.
pub fn origin_of(url: &str, private_network: bool) -> Result<String, String> {
    let private = if private_network { PrivateRanges::Allowed } else { PrivateRanges::Refused };
    let url = Url::parse(url).map_err(|error| error.to_string())?;
    let destination = Destination::from_url(&url, private).map_err(|error| error.to_string())?;
    Ok(destination.to_string())
}

impl Broker {
    /// A broker for these token services. `egress` may dial what [`StsConfig::destination`] says of each, within [`egress_limits`].
    ///
    /// # Errors
    /// [`ConfigError`] for a section that cannot be used.
    pub fn new(
        services: Vec<StsConfig>,
        secrets: Secrets,
        egress: Option<EgressClient>,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, ConfigError> {
        check_all(&services)?;
        let services = services
            .into_iter()
            .map(|config| (config.name.clone(), Arc::new(Service::new(config))));
        Ok(Self {
            inner: Arc::new(Inner {
                services: services.collect(),
                secrets,
                egress,
                clock,
                cache: Cache::default(),
                revocations: Revocations::default(),
                flights: Mutex::default(),
            }),
        })
    }

    /// The credential for a permitted call.
    ///
    /// # Errors
    /// [`BrokerError`]; the call is then not made, neither with another credential nor with none.
    pub async fn mint(&self, request: GrantRequest) -> Result<Grant, BrokerError> {
        let unknown = || BrokerError::UnknownService(request.service.clone());
        let service = Arc::clone(self.inner.services.get(&request.service).ok_or_else(unknown)?);
        let now = self.inner.clock.now();
        let wanted = wanted(&service.config, &request, now)?;
        let owner = owner_of(&service.config, &request);
        let mut rides_on = RidesOn::of(&service.config, &request.tenant, &wanted, now);
        rides_on.check(&self.inner.revocations)?;
        let Keys { key, holder } = keys_of(&service, &request, &wanted);
        let grant = |minted: Arc<Minted>, reused: bool| Grant {
            minted,
            origin: request.origin.clone(),
            key,
            holder,
            reused,
        };
        let errand = TokenRequest { inner: Arc::clone(&self.inner), service, wanted, key, owner };
        if request.cache == CachePolicy::Never {
            let asked = timeout_at(request.deadline, errand.ask()).await;
            let minted = asked.unwrap_or(Err(BrokerError::OutOfTime))?;
            // What was revoked in the meantime is thrown away.
            rides_on.check(&self.inner.revocations)?;
            return Ok(grant(minted, false));
        }
        let (Flight { outcome, begun, .. }, is_ours) = match self.board(errand, now) {
            Ok(joined) => joined,
            Err(known) => return known.map(|minted| grant(minted, true)),
        };
        rides_on.since(begun);
        let told = timeout_at(request.deadline, outcome).await;
        let outcome = told.unwrap_or(Err(BrokerError::OutOfTime));
        rides_on.check(&self.inner.revocations)?;
        outcome.map(|minted| grant(minted, !is_ours))
    }

    /// Joins the request in flight, or starts one; the flag says whether it started one. The error is the cached outcome.
    fn board(&self, errand: TokenRequest, now: Timestamp) -> Result<(Flight, bool), Outcome> {
        let mut flights = self.inner.flights.lock();
        // Under the lock: a request puts its outcome into the cache before it ends.
        match self.inner.cache.look(&errand.owner.tenant, &errand.key, now) {
            Some(Known::Granted(minted)) => return Err(Ok(minted)),
            Some(Known::Refused(error, _)) => return Err(Err(error)),
            None => {}
        }
        flights.retain(|_, flight| !flight.task.is_finished());
        if let Some(flight) = flights.get(&errand.key) {
            return Ok((flight.clone(), false));
        }
        // In a task of its own: anyone who waits may run out of time before it, others not.
        let key = errand.key;
        let asking = tokio::spawn(errand.fly().in_current_span());
        let task = asking.abort_handle();
        let outcome = asking.map(|outcome| outcome.unwrap_or_else(|_panicked| Err(gone())));
        let flight = Flight { outcome: outcome.boxed().shared(), task, begun: now };
        flights.insert(key, flight.clone());
        Ok((flight, true))
    }

    /// Drops the credential that a target has refused, by its key and its own digest: what was minted in its place meanwhile stays.
    pub fn forget(&self, key: &Digest, refused: Digest) {
        self.inner.cache.forget(key, refused);
    }

    /// Drops what the purge names, and returns how many credentials that were.
    pub fn purge(&self, purge: &Purge) -> usize {
        self.inner.cache.purge(purge)
    }

    /// Replaces the revocations in force, and drops the credentials minted earlier for new ones. Returns how many were dropped, or `None`
    /// where no revocation is new. A response in flight for a revoked subject is not used, and nobody joins that request any more.
    pub fn enforce(&self, revoked: Vec<Revoked>) -> Option<usize> {
        let fresh = self.inner.revocations.replace(revoked);
        if !fresh.is_empty() {
            // Those already waiting go on waiting; a new caller asks again.
            self.inner.flights.lock().clear();
        }
        let dropped = |one: Revoked| self.purge(&Purge::Subject(one.name));
        (!fresh.is_empty()).then(|| fresh.into_iter().map(dropped).sum())
    }

    /// Whether this authority is revoked.
    pub fn is_revoked(&self, tenant: &TenantId, bearer: Bearer<'_>) -> bool {
        self.inner.revocations.hit(tenant, bearer)
    }

    /// Whether a token of this caller is revoked.
    pub fn is_caller_revoked(&self, caller: &VerifiedCaller) -> bool {
        std::iter::once(&caller.actor).chain(&caller.delegation).any(|token| {
            token.subjects().any(|subject| {
                let (issuer, issued_at) = (token.issuer(), token.said_issued_at());
                self.is_revoked(caller.tenant(), Bearer { issuer, subject, issued_at })
            })
        })
    }

    /// Whether the tokens of a call are revoked.
    pub fn are_revoked(&self, tenant: &TenantId, tokens: &CallTokens) -> bool {
        std::iter::once(&tokens.subject)
            .chain(&tokens.actor)
            .any(|token| self.is_revoked(tenant, bearer_of(token)))
    }

    /// Whether a credential of this plan could be minted with these tokens at all, so that nobody is asked to approve a call that cannot be
    /// made.
    ///
    /// # Errors
    /// [`BrokerError`] for what waiting does not fix.
    pub fn check(&self, plan: &CredentialPlan, tokens: &CallTokens) -> Result<(), BrokerError> {
        if plan.kind == CredentialKind::StaticSecret {
            return Ok(());
        }
        let name = plan.source.as_deref().unwrap_or_default();
        let unknown = || BrokerError::UnknownService(name.to_owned());
        let service = self.inner.services.get(name).ok_or_else(unknown)?;
        if plan.kind == CredentialKind::TokenExchange {
            let source = plan.actor.unwrap_or_default();
            actor_of(&service.config, source, tokens.actor.as_ref(), &tokens.subject)?;
        }
        Ok(())
    }

    /// Overwrites what has expired; call it periodically.
    pub fn sweep(&self) {
        self.inner.cache.sweep(self.inner.clock.now());
    }

    /// How many subjects have revoked tokens now.
    pub fn subjects_revoked(&self) -> usize {
        self.inner.revocations.count()
    }

    /// How many credentials are cached now.
    #[cfg(test)]
    pub(crate) fn cached(&self) -> usize {
        self.inner.cache.count()
    }
}

fn gone() -> BrokerError {
    BrokerError::Unavailable("asking it was interrupted".to_owned())
}

/// One request to a token service, on behalf of all who wait for it.
struct TokenRequest {
    inner: Arc<Inner>,
    service: Arc<Service>,
    wanted: Wanted,
    key: Digest,
    owner: Owner,
}

impl TokenRequest {
    async fn ask(&self) -> Outcome {
        let nobody = || BrokerError::Unavailable("there is no way out".to_owned());
        let egress = self.inner.egress.as_ref().ok_or_else(nobody)?;
        let means =
            Means { secrets: &self.inner.secrets, egress, clock: self.inner.clock.as_ref() };
        self.service.ask(&self.wanted, means).await.map(Arc::new)
    }

    async fn fly(self) -> Outcome {
        let begun = self.inner.cache.turn();
        let outcome = self.ask().await;
        let now = self.inner.clock.now();
        self.inner.cache.keep(self.key, self.owner, &outcome, begun, now);
        outcome
    }
}
