//! The credential of a permitted call: read or minted at this moment, as it was planned and approved.
//!
//! Owns the way from the plan to what the adapter is handed. Decides nothing and caches nothing itself. Invariant: what is asked for is the
//! plan of the binding, so that what people agreed to is what is sent; without it there is no call.

use placet_adapter::adapter::Credential;
use placet_broker::{BrokerError, CallTokens, GrantRequest, Remedy, origin_of};
use placet_identity::VerifiedCaller;
use placet_types::{
    binding::{CredentialPlan, CredentialUse, RequestBinding},
    contract::{
        credential::{ActorSource, CredentialFile, CredentialKind},
        file::TransportFile,
    },
    digest::Digest,
    error::{ErrorCode, Refusal},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::{
    call::{Brokered, Gated, Identity, Target},
    context::{Context, internal},
};

/// What a call is sent with.
#[derive(Debug, Default)]
pub(crate) struct Proof {
    /// For the adapter.
    pub(crate) credential: Option<Credential>,
    /// For the record.
    pub(crate) used: Option<CredentialUse>,
    /// For the broker, if the target refuses it.
    pub(crate) key: Option<Digest>,
}

/// The tokens of a caller, where they may be exchanged: whose authority it is, and who acts.
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
///
/// # Errors
/// Why no credential could be minted for it, whatever policy and people say.
pub(crate) fn plan_for(
    context: &Context,
    target: &Target,
    (caller, identity): (&VerifiedCaller, &Identity),
) -> Result<CredentialPlan, BrokerError> {
    let Some(file) = &target.contract.credential else { return Ok(CredentialPlan::default()) };
    let capability = target.capability.id.capability();
    let authority = caller.delegation.as_ref().unwrap_or(&caller.actor);
    let plan = file.plan_within(capability, authority.scopes()).map_err(|missing| {
        let needed = file.scopes_needed(capability).iter().cloned().collect();
        BrokerError::ScopeMissing { missing, needed }
    })?;
    match &identity.tokens {
        Some(tokens) => context.broker.check(&plan, tokens)?,
        None if plan.kind == CredentialKind::TokenExchange => {
            let problem = "the caller showed no token that could be exchanged";
            return Err(BrokerError::NoActor { problem });
        }
        None => {}
    }
    Ok(plan)
}

/// The plan for a call that was decided upon before, with the scopes that its caller's token had then.
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
    pub(crate) remedy: Remedy,
}

impl From<Refusal> for Unready {
    fn from(refusal: Refusal) -> Self {
        // What a target does not accept was configured here, and may be mended here.
        let refused = refusal.code == ErrorCode::CredentialRefused;
        Self { remedy: if refused { Remedy::Operator } else { Remedy::Time }, refusal }
    }
}

impl From<BrokerError> for Unready {
    fn from(error: BrokerError) -> Self {
        Self { refusal: error.refusal(), remedy: error.remedy() }
    }
}

/// Whether a call's credential is minted from its caller's tokens.
pub(crate) fn needs_tokens(stage: &Brokered) -> bool {
    stage.binding.credential.kind == CredentialKind::TokenExchange
}

/// The credential of a permitted call.
pub(crate) async fn prove(
    context: &Context,
    gated: &Gated,
    deadline: Instant,
) -> Result<Proof, Unready> {
    let brokered = &gated.brokered;
    let Some(file) = &brokered.built.target.contract.credential else {
        return Ok(Proof::default());
    };
    if file.kind == CredentialKind::StaticSecret {
        return Ok(of_secret(context, brokered, file)?);
    }
    let plan = &brokered.binding.credential;
    let (origin, request) = request_of(gated, (file, deadline))?;
    let granted = context.broker.mint(request).await;
    context.metrics.credential(match &granted {
        Ok(grant) if grant.used().reused => "reused",
        Ok(_) => "minted",
        Err(_) => "refused",
    });
    let grant = granted?;
    let value = grant.value_for(&origin, context.clock.now())?;
    tracing::debug!(source = plan.source.as_deref().unwrap_or_default(), expires_at = %grant.expires_at(), "a credential is ready");
    let header = file.header.to_ascii_lowercase();
    Ok(Proof {
        credential: Some(Credential {
            value: as_sent(&header, value),
            header,
            origin: Some(grant.origin().to_owned()),
        }),
        used: Some(grant.used()),
        key: Some(grant.key()),
    })
}

fn request_of(
    gated: &Gated,
    (file, deadline): (&CredentialFile, Instant),
) -> Result<(String, GrantRequest), Refusal> {
    let brokered = &gated.brokered;
    let target = &brokered.built.target;
    let TransportFile::McpHttp { url, private_network } = &target.contract.transport else {
        return Err(internal("a credential is minted for an adapter without a host"));
    };
    let origin = origin_of(url, *private_network).map_err(internal)?;
    let plan = &brokered.binding.credential;
    let request = GrantRequest {
        tenant: brokered.identity.chain.tenant().clone(),
        permit_id: gated.permit.decision().id.clone(),
        kind: plan.kind,
        service: plan.source.clone().unwrap_or_default(),
        tokens: brokered.identity.tokens.clone(),
        actor: plan.actor.unwrap_or(ActorSource::Nobody),
        audience: plan.audience.clone(),
        resource: plan.resource.clone(),
        scopes: plan.scopes.iter().cloned().collect(),
        scopes_needed: file.scopes_needed(target.capability.id.capability()).clone(),
        cache: file.cache,
        origin: origin.clone(),
        revision: target.contract.digest,
        deadline,
    };
    Ok((origin, request))
}

/// A static secret, read at this moment.
fn of_secret(
    context: &Context,
    brokered: &Brokered,
    file: &CredentialFile,
) -> Result<Proof, Refusal> {
    let name = file.secret.as_deref().unwrap_or_default();
    let value = context.secrets.get(name).map_err(|error| {
        Refusal::new(
            ErrorCode::CredentialRefused,
            "the credential for the tool is not available; nothing was executed",
        )
        .with_detail(error)
    })?;
    let header = file.header.to_ascii_lowercase();
    let plan = &brokered.binding.credential;
    Ok(Proof {
        credential: Some(Credential { value: as_sent(&header, value), header, origin: None }),
        used: Some(CredentialUse {
            kind: plan.kind,
            source: name.to_owned(),
            subject: None,
            actor: None,
            audience: plan.audience.clone(),
            resource: None,
            scopes: plan.scopes.clone(),
            expires_at: None,
            digest: None,
            reused: false,
        }),
        key: None,
    })
}

/// The value of the header.
fn as_sent(header: &str, value: SecretString) -> SecretString {
    if header == "authorization" {
        SecretString::from(format!("Bearer {}", value.expose_secret()))
    } else {
        value
    }
}
