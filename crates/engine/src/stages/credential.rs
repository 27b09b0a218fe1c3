//! The credential of a permitted call: read or minted at this moment, as it was planned and approved.
//!
//! Owns the way from the plan to the credential for the adapter. Decides nothing and caches nothing itself. Invariant: what is requested is
//! the plan of the binding, so that what was approved is what is sent; without a credential there is no call.

use std::{collections::BTreeSet, time::Duration};

use placet_adapter::adapter::{Credential, SessionOwner};
use placet_credentials::{BrokerError, CallTokens, GrantRequest, Remedy, origin_of};
use placet_identity::{LiveSecret, LiveVersion, VerifiedCaller};
use placet_ledger::refusal::internal;
use placet_policy::catalog::Target;
use placet_types::{
    binding::{CredentialUse, RequestBinding},
    clock::Timestamp,
    contract::{
        credential::{ActorSource, CredentialFile, CredentialKind, CredentialPlan},
        file::{HttpTarget, TransportFile},
    },
    digest::Digest,
    error::{ErrorCode, Refusal},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::{
    adapters::errors::{FORBIDDEN, NOT_ALLOWED, NOT_TAKEN},
    call::{Brokered, Gated, Identity},
    context::Context,
    credentials::Credentials,
    lifecycle::codes::Cause,
};

/// What a call is sent with.
#[derive(Debug)]
pub(crate) struct Proof {
    /// For the adapter.
    pub(crate) credential: Option<Credential>,
    /// The owner of the session that it may use.
    pub(crate) owner: SessionOwner,
    /// For the record.
    pub(crate) used: Option<CredentialUse>,
    /// The broker's cache key, if the target refuses it.
    pub(crate) key: Option<Digest>,
    /// The static secret's value, if it is one.
    secret: Option<SecretString>,
}

impl Proof {
    /// Whether its credential has expired; nothing may be started with it then.
    pub(crate) fn is_over(&self) -> bool {
        let now = Instant::now().into_std();
        self.credential.as_ref().is_some_and(|credential| credential.is_over_at(now))
    }

    /// For a target that needs no credential.
    fn of_nobody(brokered: &Brokered) -> Self {
        let owner = SessionOwner::shared(brokered.identity.chain.tenant(), None);
        Self { credential: None, owner, used: None, key: None, secret: None }
    }
}

/// The tokens of a caller, where they may be exchanged: the subject's, and the actor's.
pub(crate) fn tokens_of(caller: &VerifiedCaller) -> Option<CallTokens> {
    match &caller.delegation {
        None => Some(CallTokens { subject: caller.actor.sealed()?.clone(), actor: None }),
        Some(user) => Some(CallTokens {
            subject: user.sealed()?.clone(),
            actor: caller.actor.sealed().cloned(),
        }),
    }
}

/// The plan for a call of this caller.
pub(crate) fn plan_for(
    credentials: &Credentials,
    target: &Target,
    caller: &VerifiedCaller,
    identity: &Identity,
) -> Result<CredentialPlan, BrokerError> {
    let Some(file) = &target.contract.credential else { return Ok(CredentialPlan::default()) };
    let capability = target.capability.id.capability();
    let authority = caller.delegation.as_ref().unwrap_or(&caller.actor);
    let plan = file.plan_within(capability, authority.scopes()).map_err(|missing| {
        let needed: Vec<String> = file.scopes_needed(capability).iter().cloned().collect();
        let needed = if needed.is_empty() { missing.clone() } else { needed };
        BrokerError::ScopeMissing { missing, needed }
    })?;
    match &identity.tokens {
        Some(tokens) => credentials.broker.check(&plan, tokens)?,
        None if plan.kind == CredentialKind::TokenExchange => {
            let problem = "the caller showed no token that could be exchanged";
            return Err(BrokerError::NoActor(problem));
        }
        None => {}
    }
    Ok(plan)
}

/// The plan for a call that was decided before, with the scopes that its caller's token had then. A token that the caller came back with
/// may have fewer: see [`scopes_for`].
pub(crate) fn plan_again(target: &Target, bound: &RequestBinding) -> CredentialPlan {
    match &target.contract.credential {
        Some(file) if file.scopes_of_caller => bound.credential.clone(),
        Some(_) | None => target.contract.credential_plan(&target.capability.id),
    }
}

/// Why a permitted call is not ready to be sent.
#[derive(Debug)]
pub(crate) struct Unready {
    pub(crate) refusal: Refusal,
    /// What becomes of the call, together with the code.
    pub(crate) cause: Cause,
    /// What an operator has to fix, in our words.
    pub(crate) fault: Option<&'static str>,
}

impl From<Refusal> for Unready {
    fn from(refusal: Refusal) -> Self {
        // A credential that a target does not accept was configured here, and can be fixed here.
        let refused = refusal.code.lacks_credential();
        let cause = if refused { Cause::Credential(Remedy::Operator) } else { Cause::Code };
        let fault = if refusal.message == FORBIDDEN { NOT_ALLOWED } else { NOT_TAKEN };
        Self { cause, fault: refused.then_some(fault), refusal }
    }
}

impl From<BrokerError> for Unready {
    fn from(error: BrokerError) -> Self {
        let cause = Cause::Credential(error.remedy());
        Self { refusal: error.refusal(), cause, fault: error.for_operators() }
    }
}

/// Whether a call's credential is minted from its caller's tokens.
pub(crate) fn needs_tokens(stage: &Brokered) -> bool {
    stage.binding.credential.kind == CredentialKind::TokenExchange
}

/// The credential of a permitted call.
pub(crate) async fn prove(
    credentials: &Credentials,
    gated: &Gated,
    deadline: Instant,
) -> Result<Proof, Unready> {
    let brokered = &gated.brokered;
    let Some(file) = &brokered.built.target.contract.credential else {
        return Ok(Proof::of_nobody(brokered));
    };
    if file.kind == CredentialKind::StaticSecret {
        return of_secret(credentials, brokered, file).await;
    }
    Box::pin(minted(credentials, brokered, file, deadline)).await
}

/// Notes that a target refused a credential, and returns whether the next attempt has another one: a new token instead of a cached one, or
/// another live version of a static secret.
pub(crate) async fn refused(credentials: &Credentials, brokered: &Brokered, proof: &Proof) -> bool {
    let contract = &brokered.built.target.contract;
    let (Some(file), Some(used)) = (&contract.credential, &proof.used) else { return false };
    if let (Some(key), Some(digest)) = (proof.key, used.digest) {
        // The target decides how long a token is valid, not its stated lifetime.
        credentials.broker.forget(&key, digest);
        return used.reused;
    }
    let (Some(name), Some(sent)) = (&file.secret, &proof.secret) else { return false };
    let Ok(live) = own_secret(credentials, brokered, name).await else { return false };
    if let Some(port) = brokered.built.active.ports.of(&contract.adapter) {
        port.overlap.refused(sent, &live.newest.value);
    }
    let mut versions = std::iter::once(live.newest).chain(live.previous);
    versions.any(|version| version.value.expose_secret() != sent.expose_secret())
}

async fn minted(
    credentials: &Credentials,
    brokered: &Brokered,
    file: &CredentialFile,
    deadline: Instant,
) -> Result<Proof, Unready> {
    let plan = &brokered.binding.credential;
    let scopes = scopes_for(plan, file, brokered)?;
    let (origin, request) = request_of(brokered, file, scopes, deadline)?;
    let granted = credentials.broker.mint(request).await;
    credentials.metrics.count_credential(match &granted {
        Ok(grant) if grant.used().reused => "reused",
        Ok(_) => "minted",
        Err(_) => "refused",
    });
    let grant = granted?;
    if grant.is_untyped() {
        credentials.metrics.count_credential("untyped");
    }
    let now = credentials.clock.now();
    let value = grant.value_for(&origin, now)?;
    // By the monotonic clock, since starting the session takes time.
    let ends = in_ms(grant.expires_at().since_ms(now));
    if let Some(handed) = credentials.known.to(&brokered.built.target.contract) {
        // From now on it is removed from everything that this target returns, in any call.
        let left_ms = grant.good_until().map(|until| until.since_ms(now));
        let left_ms = left_ms.and_then(|left_ms| u64::try_from(left_ms).ok());
        handed.hand(&value, left_ms.map(Duration::from_millis));
    }
    tracing::debug!(source = plan.source.as_deref().unwrap_or_default(), expires_at = %grant.expires_at(), "a credential is ready");
    let header = file.header.to_ascii_lowercase();
    Ok(Proof {
        credential: Some(Credential {
            value: as_sent(&header, value),
            header,
            origin: Some(grant.origin().to_owned()),
            ends: ends.map(Instant::into_std),
        }),
        owner: SessionOwner::minted(brokered.identity.chain.tenant(), grant.holder()),
        used: Some(grant.used()),
        key: Some(grant.key()),
        secret: None,
    })
}

/// The scopes to request: those that were planned and approved. Where they must be within the caller's token, they are also within the
/// token that is exchanged, which is a different one if the caller has come back: never more than either.
fn scopes_for(
    plan: &CredentialPlan,
    file: &CredentialFile,
    brokered: &Brokered,
) -> Result<BTreeSet<String>, BrokerError> {
    let needed = file.scopes_needed(brokered.built.target.capability.id.capability());
    let granted = brokered.identity.tokens.as_ref().map(|tokens| &tokens.subject.facts().scopes);
    within(plan, needed, granted.filter(|_| file.scopes_of_caller))
}

fn within(
    plan: &CredentialPlan,
    needed: &BTreeSet<String>,
    granted: Option<&BTreeSet<String>>,
) -> Result<BTreeSet<String>, BrokerError> {
    let mut scopes: BTreeSet<String> = plan.scopes.iter().cloned().collect();
    let Some(granted) = granted else { return Ok(scopes) };
    scopes.retain(|scope| granted.contains(scope));
    let missing: Vec<String> = needed.difference(&scopes).cloned().collect();
    if !missing.is_empty() {
        let needed = needed.iter().cloned().collect();
        return Err(BrokerError::ScopeMissing { missing, needed });
    }
    if scopes.is_empty() && !plan.scopes.is_empty() {
        // To request no scopes would be to request the service's default scopes.
        let (missing, needed) = (plan.scopes.clone(), plan.scopes.clone());
        return Err(BrokerError::ScopeMissing { missing, needed });
    }
    Ok(scopes)
}

fn request_of(
    brokered: &Brokered,
    file: &CredentialFile,
    scopes: BTreeSet<String>,
    deadline: Instant,
) -> Result<(String, GrantRequest), Refusal> {
    let target = &brokered.built.target;
    let Some(HttpTarget { url, private_network }) = target.contract.transport.http() else {
        return Err(internal("a credential is minted for an adapter without a host"));
    };
    let origin = origin_of(url, private_network).map_err(internal)?;
    let plan = &brokered.binding.credential;
    let request = GrantRequest {
        tenant: brokered.identity.chain.tenant().clone(),
        kind: plan.kind,
        service: plan.source.clone().unwrap_or_default(),
        tokens: brokered.identity.tokens.clone(),
        actor: plan.actor.unwrap_or(ActorSource::Nobody),
        audience: plan.audience.clone(),
        resource: plan.resource.clone(),
        scopes,
        scopes_needed: file.scopes_needed(target.capability.id.capability()).clone(),
        cache: file.cache,
        origin: origin.clone(),
        revision: target.contract.digest,
        deadline,
    };
    Ok((origin, request))
}

/// A static secret, read now.
async fn of_secret(
    credentials: &Credentials,
    brokered: &Brokered,
    file: &CredentialFile,
) -> Result<Proof, Unready> {
    let name = file.secret.as_deref().unwrap_or_default();
    let live = own_secret(credentials, brokered, name).await?;
    let port = brokered.built.active.ports.of(&brokered.built.target.contract.adapter);
    let newest = &live.newest.value;
    let previous = live
        .previous
        .filter(|_| port.is_some_and(|port| port.overlap.begins_with_previous(newest)));
    Ok(proof_of(credentials, brokered, file, name, previous.unwrap_or(live.newest)))
}

/// The contract's own secret, as far as it can be sent.
async fn own_secret(
    credentials: &Credentials,
    brokered: &Brokered,
    name: &str,
) -> Result<LiveSecret, Unready> {
    let unready = |fault, detail: String| {
        let refusal = Refusal::new(
            ErrorCode::CredentialMisconfigured,
            "the credential for the tool is not available; nothing was executed",
        );
        Unready {
            refusal: refusal.with_detail(detail),
            cause: Cause::Credential(Remedy::Operator),
            fault: Some(fault),
        }
    };
    let live = credentials.secrets.live_soon(name).await;
    let live = live.map_err(|error| unready("the secret cannot be read", error.to_string()))?;
    sendable(live, &brokered.built.target.contract.transport).ok_or_else(|| {
        let problem = "holds what no header can, such as a line break or more than 16 KiB";
        unready("the secret cannot be sent", format!("the secret `{name}` {problem}"))
    })
}

/// The versions of a secret that can be sent to a target: those that fit a header, so possibly only the previous one or none. A child
/// process has no such limits.
fn sendable(live: LiveSecret, transport: &TransportFile) -> Option<LiveSecret> {
    if transport.http().is_none() {
        return Some(live);
    }
    let LiveSecret { newest, previous } = live;
    let previous = previous.filter(|one| fits_header(&one.value));
    if fits_header(&newest.value) {
        return Some(LiveSecret { newest, previous });
    }
    previous.map(|newest| LiveSecret { newest, previous: None })
}

/// The longest secret that is sent in a header, in bytes: half of what all headers of a request may have together.
const HEADER_BYTES_MAX: usize = 16 * 1024;

/// Whether a header can hold this value (RFC 9110, section 5.5, limited to ASCII as clients are).
fn fits_header(value: &SecretString) -> bool {
    let value = value.expose_secret();
    let is_sent = |byte| matches!(byte, b'\t' | b' '..=b'~');
    value.len() <= HEADER_BYTES_MAX && value.bytes().all(is_sent)
}

/// Why a call is not ready when its target cannot be reached: the cause may be the secret that the contract's listings and sessions
/// present, and then an operator has to be told about that.
pub(crate) async fn blamed(
    credentials: &Credentials,
    brokered: &Brokered,
    unready: Unready,
) -> Unready {
    let file = brokered.built.target.contract.credential.as_ref();
    let Some(name) = file.and_then(|file| file.secret.as_deref()) else { return unready };
    if unready.refusal.code != ErrorCode::AdapterUnavailable {
        return unready;
    }
    own_secret(credentials, brokered, name).await.err().unwrap_or(unready)
}

fn proof_of(
    credentials: &Credentials,
    brokered: &Brokered,
    file: &CredentialFile,
    name: &str,
    sent: LiveVersion,
) -> Proof {
    let header = file.header.to_ascii_lowercase();
    let plan = &brokered.binding.credential;
    let mark = credentials.secrets.mark(name, &sent.value);
    Proof {
        credential: Some(Credential {
            value: as_sent(&header, sent.value.clone()),
            header,
            origin: None,
            ends: sent.ends.map(Instant::into_std),
        }),
        owner: SessionOwner::shared(brokered.identity.chain.tenant(), Some((name, mark))),
        used: Some(CredentialUse {
            kind: plan.kind,
            source: name.to_owned(),
            subject: None,
            actor: None,
            audience: plan.audience.clone(),
            resource: None,
            scopes: plan.scopes.clone(),
            expires_at: end_of(&sent, (credentials.clock.now(), Instant::now())),
            digest: mark,
            reused: false,
        }),
        key: None,
        secret: Some(sent.value),
    }
}

/// When a value expires, by the clock of all other times on the record; both times of `now` are of the same moment.
fn end_of(version: &LiveVersion, now: (Timestamp, Instant)) -> Option<Timestamp> {
    let left_ms = version.ends?.saturating_duration_since(now.1).as_millis();
    Some(now.0.plus_ms(i64::try_from(left_ms).unwrap_or(i64::MAX)))
}

/// The instant in `left_ms`; `None` where it is too far ahead to be represented.
fn in_ms(left_ms: i64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_millis(u64::try_from(left_ms).unwrap_or(0)))
}

/// The value of the header.
fn as_sent(header: &str, value: SecretString) -> SecretString {
    if header == "authorization" {
        SecretString::from(format!("Bearer {}", value.expose_secret()))
    } else {
        value
    }
}

/// Notes a call whose credential somebody has to fix.
pub(crate) async fn note_fault(
    context: &Context,
    brokered: &Brokered,
    code: ErrorCode,
    problem: &'static str,
) {
    if let Some(event) = context.credentials.faults.event(brokered, code, problem) {
        context.note(event).await;
    }
}

#[cfg(test)]
mod tests;
