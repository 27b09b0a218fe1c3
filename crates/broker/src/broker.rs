//! The broker: a credential for a call that is permitted.
//!
//! Owns the order: whose token, is it still good, is there one already, is one on its way, ask. Invariants: one request for a key at a time;
//! what fails, fails; a hit saves a request and never a decision, since only a permitted call asks.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use placet_egress::{Destination, EgressClient, Limits, PrivateRanges};
use placet_identity::Secrets;
use placet_types::{
    clock::{Clock, Timestamp},
    contract::credential::{ActorSource, CachePolicy, CredentialKind},
    digest::Digest,
};
use tokio::{sync::watch, time::timeout_at};
use tracing::Instrument as _;
use url::Url;

use crate::{
    answer::{ANSWER_BYTES_MAX, MARGIN_MS},
    cache::{Cache, CacheKey, Known, Purge, SubjectName},
    config::{ClientAuth, ConfigError, StsConfig, check_all},
    error::BrokerError,
    form::{ACCESS_TOKEN, Actor, Wanted},
    grant::{Grant, GrantRequest, Minted},
    service::{Means, Service},
};

type Outcome = Result<Arc<Minted>, BrokerError>;
type Flights = HashMap<Digest, watch::Receiver<Option<Outcome>>>;

/// How long a revocation is remembered: no token lives longer.
const REVOKED_MS: i64 = 24 * 60 * 60 * 1_000;

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
    flights: Mutex<Flights>,
    minted: AtomicU64,
    reused: AtomicU64,
    refused: AtomicU64,
}

/// How often what happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BrokerFigures {
    /// Credentials that a token service issued.
    pub minted: u64,
    /// Calls that were made with one that was there.
    pub reused: u64,
    /// Calls that got none.
    pub refused: u64,
}

impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker")
            .field("services", &self.inner.services.keys())
            .finish_non_exhaustive()
    }
}

/// The limits for the egress client of a broker.
#[must_use]
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
/// What makes it no place to send a credential to.
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
                flights: Mutex::default(),
                minted: AtomicU64::new(0),
                reused: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
        })
    }

    /// The credential for a permitted call.
    ///
    /// # Errors
    /// [`BrokerError`]; the call is not made then, with any other credential or none.
    pub async fn mint(&self, request: GrantRequest) -> Result<Grant, BrokerError> {
        let granted = self.mint_counted(request).await;
        let counter = match &granted {
            Ok(grant) if grant.reused => &self.inner.reused,
            Ok(_) => return granted,
            Err(_) => &self.inner.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        granted
    }

    async fn mint_counted(&self, request: GrantRequest) -> Result<Grant, BrokerError> {
        let unknown = || BrokerError::UnknownService { name: request.service.clone() };
        let service = Arc::clone(self.inner.services.get(&request.service).ok_or_else(unknown)?);
        let now = self.inner.clock.now();
        let wanted = wanted(&service.config, &request, now)?;
        let owner = owner_of(&service.config, &request);
        if self.inner.cache.is_revoked(&owner, now) {
            return Err(BrokerError::SubjectRevoked);
        }
        let key = key_of(&service, &request, &wanted).digest();
        let grant = |minted: Arc<Minted>, reused: bool| Grant {
            minted,
            origin: request.origin.clone(),
            key,
            reused,
        };
        let errand = Errand { inner: Arc::clone(&self.inner), service, wanted, key, owner };
        if request.cache == CachePolicy::Never {
            let asked = timeout_at(request.deadline, errand.ask()).await;
            let minted = asked.unwrap_or(Err(BrokerError::OutOfTime))?;
            return Ok(grant(minted, false));
        }
        let (mut progress, is_ours) = match self.board(errand, now) {
            Boarded::Known(Ok(minted)) => return Ok(grant(minted, true)),
            Boarded::Known(Err(error)) => return Err(error),
            Boarded::UnderWay(progress, is_ours) => (progress, is_ours),
        };
        let told = timeout_at(request.deadline, progress.wait_for(Option::is_some)).await;
        let outcome = match told {
            Err(_elapsed) => Err(BrokerError::OutOfTime),
            Ok(Err(_gone)) => Err(gone()),
            Ok(Ok(outcome)) => outcome.clone().unwrap_or_else(|| Err(gone())),
        };
        outcome.map(|minted| grant(minted, !is_ours))
    }

    /// Finds the credential in the cache, joins the request that is under way, or begins one.
    fn board(&self, errand: Errand, now: Timestamp) -> Boarded {
        let mut flights = self.inner.flights();
        // Under the lock: a request that ends puts its outcome into the cache before it leaves the flights.
        match self.inner.cache.look(&errand.key, now) {
            Known::Granted(minted) => return Boarded::Known(Ok(minted)),
            Known::Refused(error) => return Boarded::Known(Err(error)),
            Known::Nothing => {}
        }
        if let Some(progress) = flights.get(&errand.key) {
            return Boarded::UnderWay(progress.clone(), false);
        }
        let (told, progress) = watch::channel(None);
        flights.insert(errand.key, progress.clone());
        // In a task of its own: whoever waits may run out of time before it, others not.
        drop(tokio::spawn(errand.fly(told).in_current_span()));
        Boarded::UnderWay(progress, true)
    }

    /// Drops the credential that a target has refused.
    pub fn forget(&self, key: &Digest) {
        self.inner.cache.forget(key);
    }

    /// Drops what a purge is about, and says how much that was.
    pub fn purge(&self, purge: &Purge) -> usize {
        self.inner.cache.purge(purge)
    }

    /// Drops what was minted for a subject, and exchanges its tokens no more for as long as any of them can live. Where too many are
    /// revoked to remember each, that is so of its whole tenant.
    pub fn revoke(&self, subject: &SubjectName) -> usize {
        let now = self.inner.clock.now();
        if self.inner.cache.revoke(subject.clone(), now.plus_ms(REVOKED_MS), now) {
            return self.purge(&Purge::Subject(subject.clone()));
        }
        tracing::error!(tenant = %subject.tenant, "too many subjects are revoked to remember each: no token of the tenant is exchanged");
        self.purge(&Purge::Tenant(subject.tenant.clone()))
    }

    /// Overwrites what has expired; to be called now and then.
    pub fn sweep(&self) {
        self.inner.cache.sweep(self.inner.clock.now());
    }

    /// The names of the token services.
    pub fn services(&self) -> impl Iterator<Item = &str> {
        self.inner.services.keys().map(String::as_str)
    }

    /// How often what happened so far.
    #[must_use]
    pub fn figures(&self) -> BrokerFigures {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let inner = &self.inner;
        BrokerFigures {
            minted: of(&inner.minted),
            reused: of(&inner.reused),
            refused: of(&inner.refused),
        }
    }

    #[cfg(test)]
    pub(crate) fn cached(&self) -> usize {
        self.inner.cache.count()
    }
}

enum Boarded {
    Known(Outcome),
    UnderWay(watch::Receiver<Option<Outcome>>, bool),
}

fn gone() -> BrokerError {
    BrokerError::Unavailable { problem: "asking it was interrupted".to_owned() }
}

impl Inner {
    // Nothing can panic while the lock is held, so a poisoned lock still guards sound values.
    fn flights(&self) -> MutexGuard<'_, Flights> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One request to a token service, for everybody who waits for it.
struct Errand {
    inner: Arc<Inner>,
    service: Arc<Service>,
    wanted: Wanted,
    key: Digest,
    owner: SubjectName,
}

impl Errand {
    async fn ask(&self) -> Outcome {
        let nobody = || BrokerError::Unavailable { problem: "there is no way out".to_owned() };
        let egress = self.inner.egress.as_ref().ok_or_else(nobody)?;
        let means =
            Means { secrets: &self.inner.secrets, egress, clock: self.inner.clock.as_ref() };
        let minted = self.service.ask(&self.wanted, means).await?;
        self.inner.minted.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::new(minted))
    }

    async fn fly(self, told: watch::Sender<Option<Outcome>>) {
        // Whatever becomes of it, nobody waits for it afterwards.
        let landing = Landing { inner: Arc::clone(&self.inner), key: self.key };
        let begun = self.inner.cache.turn();
        let outcome = self.ask().await;
        let now = self.inner.clock.now();
        match &outcome {
            Ok(minted) => {
                self.inner.cache.keep(self.key, self.owner.clone(), minted, (begun, now));
            }
            Err(error) => self.inner.cache.keep_refusal(self.key, error, now),
        }
        drop(landing);
        told.send_replace(Some(outcome));
    }
}

/// Takes a request off the flights when it ends, also by a panic.
struct Landing {
    inner: Arc<Inner>,
    key: Digest,
}

impl Drop for Landing {
    fn drop(&mut self) {
        self.inner.flights().remove(&self.key);
    }
}

/// What is asked for, once it is clear whose tokens are shown.
fn wanted(
    service: &StsConfig,
    request: &GrantRequest,
    now: Timestamp,
) -> Result<Wanted, BrokerError> {
    let (tokens, actor) = match request.kind {
        CredentialKind::TokenExchange => {
            let tokens = request.tokens.clone().ok_or(BrokerError::SubjectMissing)?;
            let soon = now.plus_ms(MARGIN_MS);
            if tokens.subject.expires_at() <= soon {
                return Err(BrokerError::SubjectExpired);
            }
            let actor = actor_of(service, request.actor, (tokens.actor.as_ref(), &tokens.subject))?;
            if actor == Actor::Token
                && tokens.actor.as_ref().is_none_or(|token| token.expires_at() <= now)
            {
                return Err(BrokerError::SubjectExpired);
            }
            (Some(tokens), actor)
        }
        CredentialKind::ClientCredentials => (None, Actor::Nobody),
        CredentialKind::StaticSecret => {
            return Err(BrokerError::Misconfigured { code: "a static secret is not minted" });
        }
    };
    Ok(Wanted {
        kind: request.kind,
        tokens,
        actor,
        audience: request.audience.clone(),
        resource: request.resource.clone(),
        scopes: request.scopes.clone(),
        scopes_needed: request.scopes_needed.clone(),
    })
}

/// Who is named as acting: by another token than the subject's, or not at all.
fn actor_of(
    service: &StsConfig,
    source: ActorSource,
    (actor, subject): (Option<&placet_identity::SubjectToken>, &placet_identity::SubjectToken),
) -> Result<Actor, BrokerError> {
    match source {
        ActorSource::Nobody => Ok(Actor::Nobody),
        ActorSource::Gateway => {
            if !matches!(service.client_auth, ClientAuth::PrivateKeyJwt { .. }) {
                let problem = "Placet can only act by name where it signs with a key";
                return Err(BrokerError::NoActor { problem });
            }
            Ok(Actor::Assertion)
        }
        ActorSource::Agent => match actor {
            None => Err(BrokerError::NoActor { problem: "the call has no agent's token" }),
            Some(actor)
                if actor == subject
                    || (actor.issuer() == subject.issuer()
                        && actor.subject() == subject.subject()) =>
            {
                Err(BrokerError::NoActor { problem: "the agent's token is the subject's own" })
            }
            Some(_) => Ok(Actor::Token),
        },
    }
}

/// Whose credential it is.
fn owner_of(service: &StsConfig, request: &GrantRequest) -> SubjectName {
    let subject = request.tokens.as_ref().map(|tokens| &tokens.subject);
    let subject = subject.filter(|_| request.kind == CredentialKind::TokenExchange);
    SubjectName {
        tenant: request.tenant.clone(),
        issuer: subject.map_or(service.issuer.as_str(), |one| one.issuer()).to_owned(),
        subject: subject.map_or(service.client_id.as_str(), |one| one.subject()).to_owned(),
    }
}

fn key_of(service: &Service, request: &GrantRequest, wanted: &Wanted) -> CacheKey {
    let owner = owner_of(&service.config, request);
    let tokens = wanted.tokens.as_ref();
    let actor = tokens.and_then(|tokens| tokens.actor.as_ref());
    let actor = actor.filter(|_| wanted.actor == Actor::Token);
    let named = match wanted.actor {
        Actor::Token => actor.map_or_else(String::new, |one| {
            format!("token:{}:{}:{}", one.issuer().len(), one.issuer(), one.subject())
        }),
        Actor::Assertion => "gateway".to_owned(),
        Actor::Nobody => "nobody".to_owned(),
    };
    CacheKey {
        tenant: request.tenant.clone(),
        service: service.config.name.clone(),
        issuer: service.config.issuer.clone(),
        client_id: service.config.client_id.clone(),
        kind: wanted.kind,
        subject_issuer: owner.issuer,
        subject: owner.subject,
        subject_token: tokens.map(|tokens| tokens.subject.digest()),
        actor: named,
        actor_token: actor.map(placet_identity::SubjectToken::digest),
        audience: wanted.audience.clone(),
        resource: wanted.resource.clone(),
        scopes: wanted.scopes.iter().cloned().collect(),
        scopes_needed: wanted.scopes_needed.iter().cloned().collect(),
        requested_type: ACCESS_TOKEN.to_owned(),
        origin: request.origin.clone(),
        revision: (request.revision, service.revision),
    }
}
