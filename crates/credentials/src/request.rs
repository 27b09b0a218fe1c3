//! What a request comes to: whose tokens are shown, who is named as acting, and what the credential depends on.
//!
//! Owns the reading of a [`GrantRequest`] against a token service's section. Asks nobody. Invariant: an actor's token is never the subject's
//! own.

use placet_identity::{Acting, SubjectToken};
use placet_types::{
    clock::Timestamp,
    contract::credential::{ActorSource, CredentialKind},
    ids::TenantId,
};

use crate::{
    answer::MARGIN_MS,
    cache::{CacheKey, Owner},
    config::{ACCESS_TOKEN, StsConfig},
    error::BrokerError,
    form::{Actor, Wanted},
    grant::{CallTokens, GrantRequest},
    revocation::{Bearer, Revocations},
    service::Service,
};

/// What is asked for, once it is clear whose tokens are shown.
pub(crate) fn wanted(
    service: &StsConfig,
    request: &GrantRequest,
    now: Timestamp,
) -> Result<Wanted, BrokerError> {
    let soon = now.plus_ms(MARGIN_MS);
    let (tokens, actor) = match request.kind {
        CredentialKind::TokenExchange => {
            let tokens = request.tokens.clone().ok_or(BrokerError::SubjectMissing)?;
            if tokens.subject.expires_at() <= soon {
                return Err(BrokerError::SubjectExpired);
            }
            let actor = actor_of(service, request.actor, tokens.actor.as_ref(), &tokens.subject)?;
            (Some(tokens), actor)
        }
        CredentialKind::ClientCredentials => (None, Actor::Nobody),
        CredentialKind::StaticSecret => {
            return Err(BrokerError::Misconfigured { code: "a static secret is not minted" });
        }
    };
    let wanted = Wanted {
        kind: request.kind,
        tokens,
        actor,
        audience: request.audience.clone(),
        resource: request.resource.clone(),
        scopes: request.scopes.clone(),
        scopes_needed: request.scopes_needed.clone(),
    };
    // The agent's token counts as the user's does: what is exchanged ends with whichever ends first.
    if wanted.over_at().is_some_and(|over_at| over_at <= soon) {
        return Err(BrokerError::SubjectExpired);
    }
    Ok(wanted)
}

/// Who is named as acting: by another token than the subject's, or not at all. Where the subject's token says who alone may act, that is
/// anyone who is named, and nobody else is (RFC 8693, section 4.4).
pub(crate) fn actor_of(
    service: &StsConfig,
    source: ActorSource,
    actor: Option<&SubjectToken>,
    subject: &SubjectToken,
) -> Result<Actor, BrokerError> {
    let no_actor = |problem| Err(BrokerError::NoActor { problem });
    let may = |acting| subject.may_act().is_none_or(|claim| claim.names(subject.issuer(), acting));
    match source {
        ActorSource::Nobody if subject.may_act().is_some() => {
            no_actor("the caller's token says who may act, and nobody is named")
        }
        ActorSource::Nobody => Ok(Actor::Nobody),
        ActorSource::Gateway if !service.client_auth.names_us() => {
            no_actor("Placet can only act by name where it signs with a key")
        }
        ActorSource::Gateway => {
            // At the service that issued the token, the client is known by its name.
            let us = service.client_id.as_str();
            let acting = Acting { issuer: subject.issuer(), subject: us, client: Some(us) };
            if may(acting) {
                Ok(Actor::Assertion)
            } else {
                no_actor("the caller's token says who may act, and it is not Placet")
            }
        }
        ActorSource::Agent => match actor {
            None => no_actor("the call has no agent's token"),
            Some(actor)
                if actor == subject
                    || (actor.issuer() == subject.issuer()
                        && actor.subject() == subject.subject()) =>
            {
                no_actor("the agent's token is the subject's own")
            }
            Some(actor) if !may(acting_by(actor)) => {
                no_actor("the caller's token says who may act, and it is not this agent")
            }
            Some(_) => Ok(Actor::Token),
        },
    }
}

fn acting_by(token: &SubjectToken) -> Acting<'_> {
    Acting { issuer: token.issuer(), subject: token.subject(), client: token.client() }
}

/// Whose authority a request rides on: of whom the tokens are that are shown, or since when it is asked for in our own name.
pub(crate) struct RidesOn {
    tenant: TenantId,
    tokens: Option<CallTokens>,
    own: (String, String, Timestamp),
}

impl RidesOn {
    pub(crate) fn of(
        service: &StsConfig,
        tenant: &TenantId,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Self {
        let tokens = wanted.tokens.clone().map(|tokens| CallTokens {
            actor: tokens.actor.filter(|_| wanted.actor == Actor::Token),
            ..tokens
        });
        let own = (service.issuer.clone(), service.client_id.clone(), now);
        Self { tenant: tenant.clone(), tokens, own }
    }

    /// What is asked for was asked for at this time already, by somebody else.
    pub(crate) fn since(&mut self, begun: Timestamp) {
        self.own.2 = begun;
    }

    /// Refuses what is revoked by now.
    pub(crate) fn check(&self, revocations: &Revocations) -> Result<(), BrokerError> {
        let is_hit = |bearer| revocations.hit(&self.tenant, bearer);
        let Some(tokens) = &self.tokens else {
            let (issuer, subject, since) = &self.own;
            let own = Bearer { issuer, subject, issued_at: Some(*since) };
            // It was asked for before: it may be asked for again.
            return if revocations.hit_ours(&self.tenant, own) {
                let problem = "what was asked for was revoked meanwhile".to_owned();
                Err(BrokerError::Unavailable { problem })
            } else {
                Ok(())
            };
        };
        let mut shown = std::iter::once(&tokens.subject).chain(&tokens.actor);
        if shown.any(|token| is_hit(bearer_of(token))) {
            return Err(BrokerError::SubjectRevoked);
        }
        Ok(())
    }
}

pub(crate) fn bearer_of(token: &SubjectToken) -> Bearer<'_> {
    Bearer { issuer: token.issuer(), subject: token.subject(), issued_at: token.issued_at() }
}

/// Whose credential it is.
pub(crate) fn owner_of(service: &StsConfig, request: &GrantRequest) -> Owner {
    let subject = request.tokens.as_ref().map(|tokens| &tokens.subject);
    let subject = subject.filter(|_| request.kind == CredentialKind::TokenExchange);
    Owner {
        tenant: request.tenant.clone(),
        issuer: subject.map_or(service.issuer.as_str(), |one| one.issuer()).to_owned(),
        subject: subject.map_or(service.client_id.as_str(), |one| one.subject()).to_owned(),
    }
}

pub(crate) fn key_of(service: &Service, request: &GrantRequest, wanted: &Wanted) -> CacheKey {
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
        actor_token: actor.map(SubjectToken::digest),
        audience: wanted.audience.clone(),
        resource: wanted.resource.clone(),
        scopes: wanted.scopes.iter().cloned().collect(),
        scopes_needed: wanted.scopes_needed.iter().cloned().collect(),
        requested_type: ACCESS_TOKEN.to_owned(),
        origin: request.origin.clone(),
        revision: (request.revision, service.revision),
    }
}
