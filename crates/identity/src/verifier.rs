//! The verifier: a bearer token in, verified facts or a refusal out.
//!
//! Owns the order of the checks: form, issuer, algorithm, type, key, signature, claims. Owns none of the rules. Invariant: before the
//! signature is checked, claims only select the key set and the checks, or refuse the token.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use placet_egress::EgressClient;
use placet_types::{
    clock::{Clock, Timestamp},
    ids::TenantId,
};
use tokio::sync::Mutex;

use crate::{
    certificate::{ClientAuthorities, ClientCertificate},
    claims::{IdTokenRules, Judge, check_id_token},
    config::{IdentityConfig, IssuerConfig, KeySource, TrustDomainConfig},
    error::{IdentityError, KeyError, SetupError, echo},
    jws::Jws,
    key_cache::{KeyCache, Loaded},
    key_set::KeyUse,
    remembered::{Name, Remembered, RememberedTokens, name_of},
    sign_in_proof::SignInProof,
    spiffe::{SPIFFE_SCHEME, SpiffeId},
    token::{TokenRole, VerifiedToken},
    workload_api::WorkloadApi,
};

/// How long to wait for the files of client authorities.
const AUTHORITIES_WAIT: Duration = Duration::from_secs(5);

/// Verifies bearer tokens. Clones share their keys.
#[derive(Clone)]
pub struct Verifier {
    inner: Arc<Inner>,
}

struct Inner {
    /// By their names; a trust domain's is its own SPIFFE id.
    issuers: ArcSwap<Issuers>,
    authorities: Option<ClientAuthorities>,
    /// Held while their files are read.
    reads_authorities: Arc<Mutex<()>>,
    leeway_s: u64,
    clock: Arc<dyn Clock>,
    remembered: RememberedTokens<Basis>,
}

/// By name.
type Issuers = BTreeMap<String, Arc<Issuer>>;

struct Issuer {
    config: IssuerConfig,
    /// The trust domain, if its tokens are JWT-SVIDs.
    domain: Option<TrustDomainConfig>,
    keys: Arc<KeyCache>,
    /// Whether it was logged that its tokens are for other services too.
    told_of_others: AtomicBool,
}

impl Issuer {
    fn new(config: IssuerConfig, domain: Option<TrustDomainConfig>, keys: KeyCache) -> Arc<Self> {
        Arc::new(Self {
            config,
            domain,
            keys: Arc::new(keys),
            told_of_others: AtomicBool::default(),
        })
    }

    /// Logs once that tokens of the issuer are for other services too. The record of each call names the audiences.
    fn tell_of_others(&self, verified: &VerifiedToken) {
        let audiences = verified.audiences.len();
        if audiences > 1 && !self.told_of_others.swap(true, Ordering::Relaxed) {
            tracing::info!(issuer = %self.config.issuer, audiences, token_ref = %verified.token_ref(), "an issuer gives tokens that are for other services too; the audit names the audiences of each");
        }
    }
}

/// Issuers that are ready to take the place of those of a [`Verifier`].
pub struct NextIssuers(Issuers);

impl fmt::Debug for NextIssuers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NextIssuers").field(&self.0.keys()).finish()
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("issuers", &self.inner.issuers.load().keys())
            .finish_non_exhaustive()
    }
}

impl Verifier {
    /// A verifier for these issuers. Keys in files are read now, keys behind URLs and with the agent of the Workload API by the first
    /// [`Verifier::refresh`] or the first token.
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
            let cache = KeyCache::new(issuer, KeyUse::Signatures, &config, egress.as_ref())?;
            issuers.insert(issuer.issuer.clone(), Issuer::new(issuer.clone(), None, cache));
        }
        let watched = config.of_workload_api().next().and(config.workload_api.as_deref());
        let agent = watched.map(|socket| Arc::new(WorkloadApi::at(socket)));
        for domain in &config.trust_domains {
            let issuer = domain.as_issuer();
            let cache = match agent.as_ref().filter(|_| domain.bundle == KeySource::WorkloadApi) {
                Some(agent) => KeyCache::of_agent(&issuer, agent, &domain.trust_domain, &config),
                None => KeyCache::new(&issuer, KeyUse::JwtSvids, &config, egress.as_ref())?,
            };
            let name = issuer.issuer.clone();
            issuers.insert(name, Issuer::new(issuer, Some(domain.clone()), cache));
        }
        let stale_age = Duration::from_secs(config.keys_stale_s_max);
        let inner = Inner {
            issuers: ArcSwap::from_pointee(issuers),
            authorities: ClientAuthorities::load(&config.client_authorities, stale_age)?,
            reads_authorities: Arc::default(),
            leeway_s: config.leeway_s,
            clock,
            remembered: RememberedTokens::new(),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The issuers of `config`, checked, and with their keys if those are in files, ready to replace the current ones. An issuer whose
    /// configuration is unchanged keeps its keys. Nothing changes before [`Verifier::replace`].
    ///
    /// # Errors
    /// [`SetupError`] as for [`Verifier::new`].
    pub fn prepare(
        &self,
        config: &IdentityConfig,
        egress: Option<&EgressClient>,
    ) -> Result<NextIssuers, SetupError> {
        config.check()?;
        let before = self.inner.issuers.load();
        let domains = before.iter().filter(|(_, issuer)| issuer.domain.is_some());
        let mut next: Issuers =
            domains.map(|(name, issuer)| (name.clone(), Arc::clone(issuer))).collect();
        for issuer in &config.issuers {
            let known = before.get(&issuer.issuer).filter(|known| known.config == *issuer);
            let ready = match known {
                Some(known) => Arc::clone(known),
                None => {
                    let cache = KeyCache::new(issuer, KeyUse::Signatures, config, egress)?;
                    Issuer::new(issuer.clone(), None, cache)
                }
            };
            next.insert(issuer.issuer.clone(), ready);
        }
        Ok(NextIssuers(next))
    }

    /// Replaces the issuers that tokens are verified by, here and in every clone.
    pub fn replace(&self, next: NextIssuers) {
        self.inner.issuers.store(Arc::new(next.0));
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
        Ok(self.verify_in(Some(role), token).await?.0)
    }

    /// The facts remembered about a token, if its basis still holds.
    fn remembered(&self, name: &Name, now: Timestamp) -> Option<Arc<Remembered<Basis>>> {
        let known = self.inner.remembered.find(name, now)?;
        let Basis { issuer, keys } = &known.basis;
        let issuers = self.inner.issuers.load();
        let present = issuers.get(&issuer.config.issuer)?;
        let present_keys = present.keys.fresh()?;
        let is_same = Arc::ptr_eq(present, issuer) && Arc::ptr_eq(&present_keys, keys);
        is_same.then_some(known)
    }

    /// The basis on which a token is about to be verified; `None` if keys have to be fetched first, or if the token is undated, since each
    /// verification dates it.
    fn basis(&self, jws: &Jws<'_>) -> Option<Basis> {
        let issuer = self.issuer_of(jws).ok().filter(|_| jws.claims().contains_key("iat"))?;
        let keys = issuer.keys.fresh()?;
        Some(Basis { issuer, keys })
    }

    /// Verifies the proof of a development sign-in, as of that moment.
    ///
    /// # Errors
    /// [`IdentityError`] for the first check that fails.
    pub async fn verify_proof(&self, proof: &SignInProof) -> Result<VerifiedToken, IdentityError> {
        self.verify_jws(&Jws::parse(proof.token())?, TokenRole::Actor, proof.at()).await
    }

    /// Verifies a token in its place; without a role, in `Authorization`, where it may name a user as well.
    pub(crate) async fn verify_in(
        &self,
        role: Option<TokenRole>,
        token: &str,
    ) -> Result<(VerifiedToken, Option<VerifiedToken>), IdentityError> {
        let now = self.inner.clock.now();
        let name = name_of(token, role);
        if let Some(known) = name.and_then(|name| self.remembered(&name, now)) {
            return Ok(sealing_either(token, known.token.clone(), known.user.clone()));
        }
        let jws = Jws::parse(token)?;
        let basis = self.basis(&jws);
        let (actor, user) = match role {
            Some(role) => (self.verify_jws(&jws, role, now).await?, None),
            None => self.verify_parties(&jws, now).await?,
        };
        let remembered = basis.map(|basis| basis.remembering(actor.clone(), user.clone(), now));
        if let (Some(name), Some(remembered)) = (name, remembered) {
            self.inner.remembered.insert(name, remembered);
        }
        Ok(sealing_either(token, actor, user))
    }

    async fn verify_parties(
        &self,
        jws: &Jws<'_>,
        now: Timestamp,
    ) -> Result<(VerifiedToken, Option<VerifiedToken>), IdentityError> {
        // Not believed yet: whichever way is taken verifies the token, and refuses it where the other was meant.
        let issuer = self.issuer_of(jws)?;
        let rule = issuer.config.act.as_ref();
        match rule.filter(|_| jws.claims().contains_key("act")) {
            None => {
                let token = self.verify_jws(jws, TokenRole::Actor, now).await?;
                let by_client = issuer.config.act.as_ref().filter(|rule| rule.clients);
                match by_client.and_then(|rule| token.acting_by_client(rule)) {
                    Some(agent) => Ok((agent, Some(token.as_delegation()))),
                    None => Ok((token, None)),
                }
            }
            Some(rule) => {
                let user = self.verify_jws(jws, TokenRole::Delegation, now).await?;
                let actor = user.acting(rule)?;
                issuer.config.check_agents_client(actor.kind(), actor.subject(), actor.client())?;
                Ok((actor, Some(user)))
            }
        }
    }

    /// Identifies the owner of a connection's certificate.
    pub(crate) fn verify_certificate(
        &self,
        certificate: &ClientCertificate,
    ) -> Result<VerifiedToken, IdentityError> {
        let problem = "no authority is configured";
        let authorities =
            self.inner.authorities.as_ref().ok_or(IdentityError::CertificateRefused(problem))?;
        authorities.verify(certificate, self.inner.clock.now())
    }

    /// The authorities whose client certificates name agents, for the API's handshakes.
    pub fn client_authorities(&self) -> Option<&ClientAuthorities> {
        self.inner.authorities.as_ref()
    }

    async fn verify_jws(
        &self,
        jws: &Jws<'_>,
        role: TokenRole,
        now: Timestamp,
    ) -> Result<VerifiedToken, IdentityError> {
        let issuer = self.issuer_of(jws)?;
        jws.algorithm(&issuer.config)?;
        match &issuer.domain {
            None => jws.check_type(&issuer.config)?,
            Some(_) => jws.check_svid_header(&issuer.config)?,
        }
        check_signature(jws, &issuer).await?;
        let judge = self.judge(&issuer.config, role, now);
        let verified = match &issuer.domain {
            None => {
                let verified = judge.token(jws.claims(), jws.signed())?;
                let (kind, client) = (verified.kind(), verified.client());
                issuer.config.check_agents_client(kind, verified.subject(), client)?;
                verified
            }
            Some(domain) => judge.svid(domain, jws.claims(), jws.signed())?,
        };
        issuer.tell_of_others(&verified);
        Ok(verified)
    }

    /// Verifies the ID token of a sign-in (OpenID Connect Core, section 3.1.3.7): signed by the issuer, for this client, for this attempt.
    /// The person it is about acts for themselves.
    pub(crate) async fn verify_id_token(
        &self,
        token: &str,
        rules: &IdTokenRules<'_>,
        now: Timestamp,
    ) -> Result<VerifiedToken, IdentityError> {
        let jws = Jws::parse(token)?;
        let issuer = self.issuer_of(&jws)?;
        if issuer.domain.is_some() {
            let issuer = echo(&issuer.config.issuer);
            return Err(IdentityError::UnknownIssuer(issuer));
        }
        jws.algorithm(&issuer.config)?;
        jws.check_id_token_type(&issuer.config)?;
        check_signature(&jws, &issuer).await?;
        // An ID token is for a client, whatever the issuer's access tokens are for. In all else it is judged like them.
        let mut config = issuer.config.clone();
        config.audiences = [rules.client_id.to_owned()].into();
        let judge = self.judge(&config, TokenRole::Actor, now);
        let mut verified = judge.token(jws.claims(), jws.signed())?;
        // Anyone who comes back from the provider with it sits before this browser, whichever clients agents have.
        verified.is_held = false;
        check_id_token(jws.claims(), rules, &verified)?;
        Ok(verified)
    }

    /// Whose keys the token has to be checked with: those of its issuer; else, where the subject is a SPIFFE id, those of its
    /// trust domain, since an SVID need not name an issuer.
    fn issuer_of(&self, jws: &Jws<'_>) -> Result<Arc<Issuer>, IdentityError> {
        let claimed = jws.claimed_issuer();
        let issuers = self.inner.issuers.load();
        let named = claimed.as_ref().ok().and_then(|name| issuers.get(*name));
        if let Some(issuer) = named.filter(|issuer| issuer.domain.is_none()) {
            return Ok(Arc::clone(issuer));
        }
        if let Some(domain) = self.domain_of(jws) {
            return Ok(domain);
        }
        claimed.and_then(|name| Err(IdentityError::UnknownIssuer(echo(name))))
    }

    fn domain_of(&self, jws: &Jws<'_>) -> Option<Arc<Issuer>> {
        let id = SpiffeId::parse(jws.claims().get("sub")?.as_str()?)?;
        let issuers = self.inner.issuers.load();
        let domain = issuers.get(&format!("{SPIFFE_SCHEME}{}", id.trust_domain()))?;
        domain.domain.is_some().then(|| Arc::clone(domain))
    }

    fn judge<'a>(&self, issuer: &'a IssuerConfig, role: TokenRole, now: Timestamp) -> Judge<'a> {
        Judge { issuer, role, now, leeway_s: self.inner.leeway_s }
    }

    /// Reloads every issuer's keys, all at the same time. Keys that cannot be reloaded stay in use for a while; returns their issuers and
    /// the causes.
    pub async fn refresh(&self) -> Vec<(String, KeyError)> {
        let mut tasks = Vec::new();
        for (name, issuer) in self.inner.issuers.load().iter() {
            let keys = Arc::clone(&issuer.keys);
            tasks.push((name.clone(), tokio::spawn(async move { keys.refresh().await })));
        }
        self.refresh_authorities().await;
        let mut failures = Vec::new();
        for (issuer, task) in tasks {
            if let Err(cause) = task.await.unwrap_or_else(|_gone| Err(KeyError::interrupted())) {
                failures.push((issuer, cause));
            }
        }
        failures
    }

    /// Reloads the files of client authorities if they have changed; on a single blocking thread, since a mount may hang.
    async fn refresh_authorities(&self) {
        let Some(authorities) = self.inner.authorities.clone() else { return };
        let Ok(reads) = Arc::clone(&self.inner.reads_authorities).try_lock_owned() else {
            authorities.are_silent();
            tracing::warn!("the files of the client authorities do not answer still");
            return;
        };
        let read = authorities.clone();
        let reading = tokio::task::spawn_blocking(move || {
            let _reads = reads;
            read.reload_if_changed()
        });
        match tokio::time::timeout(AUTHORITIES_WAIT, reading).await {
            Ok(Ok(Ok(_changed))) => {}
            Ok(Ok(Err(error))) => {
                tracing::warn!(%error, "the client authorities could not be read again");
            }
            Ok(Err(_)) | Err(_) => {
                authorities.are_silent();
                tracing::warn!("the files of the client authorities do not answer");
            }
        }
    }

    /// Whether callers of the tenant can have tokens or certificates of this issuer.
    pub fn has_issuer(&self, tenant: &TenantId, name: &str) -> bool {
        let issuers = self.inner.issuers.load();
        issuers.get(name).is_some_and(|issuer| issuer.config.tenant == *tenant)
            || self.inner.authorities.iter().any(|all| all.has_issuer(tenant, name))
    }

    /// The issuers and client authorities whose keys could not be reloaded, and stay in use for a while, for readiness.
    pub fn issuers_with_old_keys(&self) -> Vec<String> {
        let issuers = self.inner.issuers.load();
        let old = issuers.iter().filter(|(_, issuer)| issuer.keys.is_failing());
        let authorities = self.inner.authorities.iter().flat_map(|all| all.without_files(true));
        old.map(|(name, _)| name.clone()).chain(authorities).collect()
    }

    /// The issuers and client authorities whose tokens or certificates cannot be verified at present, for readiness.
    pub fn issuers_without_keys(&self) -> Vec<String> {
        let issuers = self.inner.issuers.load();
        let without = issuers.iter().filter(|(_, issuer)| !issuer.keys.is_usable());
        let authorities = self.inner.authorities.iter().flat_map(|all| all.without_files(false));
        without.map(|(name, _)| name.clone()).chain(authorities).collect()
    }
}

/// The basis on which tokens are verified.
struct Basis {
    issuer: Arc<Issuer>,
    keys: Arc<Loaded>,
}

impl Basis {
    /// The facts found on this basis at `from`, until time alone may refuse the token.
    fn remembering(
        self,
        token: VerifiedToken,
        user: Option<VerifiedToken>,
        from: Timestamp,
    ) -> Remembered<Self> {
        let dated = user.as_ref().unwrap_or(&token);
        let age_ms = self
            .issuer
            .config
            .auth_age_s_max
            .map(|age_s| i64::try_from(age_s.saturating_mul(1_000)).unwrap_or(i64::MAX));
        let signed_in = dated.authenticated_at.zip(age_ms).map(|(at, age_ms)| at.plus_ms(age_ms));
        let until = signed_in.map_or(dated.expires_at, |end| end.min(dated.expires_at));
        Remembered { basis: self, from, until, token, user }
    }
}

/// Seals the token into the party for whom a token service may be asked.
fn sealing_either(
    token: &str,
    actor: VerifiedToken,
    user: Option<VerifiedToken>,
) -> (VerifiedToken, Option<VerifiedToken>) {
    match user {
        None => (actor.sealing(token), None),
        Some(user) => (actor, Some(user.sealing(token))),
    }
}

async fn check_signature(jws: &Jws<'_>, issuer: &Issuer) -> Result<(), IdentityError> {
    let algorithm = jws.algorithm(&issuer.config)?;
    let key = issuer.keys.find(jws.kid()?, algorithm).await?;
    jws.check_signature(&key, algorithm, &issuer.config)
}
