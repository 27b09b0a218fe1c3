//! What a request comes to: whose tokens are shown, who is named as acting, and what the credential depends on.
//!
//! Owns the reading of a [`GrantRequest`] against a token service's section. Sends nothing. Invariant: an actor's token is never the
//! subject's own; two calls that differ in anything that a credential depends on have different keys.

use placet_identity::{Acting, SubjectToken, TokenFacts};
use placet_types::{
    clock::Timestamp,
    contract::credential::{ActorSource, CredentialKind},
    digest::{Digest, DigestBuilder},
    ids::TenantId,
};

use crate::{
    answer::MARGIN_MS,
    cache::Owner,
    config::StsConfig,
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
            if tokens.subject.facts().expires_at <= soon {
                return Err(BrokerError::SubjectExpired);
            }
            let actor = actor_of(service, request.actor, tokens.actor.as_ref(), &tokens.subject)?;
            (Some(tokens), actor)
        }
        CredentialKind::ClientCredentials => (None, Actor::Nobody),
        CredentialKind::StaticSecret => {
            return Err(BrokerError::Misconfigured("a static secret is not minted"));
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

/// Who is named as the actor: the holder of another token than the subject's, or nobody. Where the subject's token says who alone may act,
/// that actor has to be named (RFC 8693, section 4.4).
pub(crate) fn actor_of(
    service: &StsConfig,
    source: ActorSource,
    actor: Option<&SubjectToken>,
    subject: &SubjectToken,
) -> Result<Actor, BrokerError> {
    let no_actor = |problem| Err(BrokerError::NoActor(problem));
    let of = subject.facts();
    let may = |acting| of.may_act.as_ref().is_none_or(|claim| claim.names(&of.issuer, acting));
    match source {
        ActorSource::Nobody if of.may_act.is_some() => {
            no_actor("the caller's token says who may act, and nobody is named")
        }
        ActorSource::Nobody => Ok(Actor::Nobody),
        ActorSource::Gateway if !service.client_auth.names_us() => {
            no_actor("Placet can only act by name where it signs with a key")
        }
        ActorSource::Gateway => {
            // The service that issued the token knows this client by its client id.
            let us = service.client_id.as_str();
            let acting = Acting { issuer: &of.issuer, subject: us, client: Some(us) };
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
                    || (actor.facts().issuer == of.issuer
                        && actor.facts().subject == of.subject) =>
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
    let TokenFacts { issuer, subject, client, .. } = token.facts();
    Acting { issuer, subject, client: client.as_deref() }
}

/// Whose authority a request uses: that of the presented tokens, or our own since a given time.
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

    /// Joins a request that another call made at this earlier time.
    pub(crate) fn since(&mut self, begun: Timestamp) {
        self.own.2 = begun;
    }

    /// Refuses what is revoked by now.
    pub(crate) fn check(&self, revocations: &Revocations) -> Result<(), BrokerError> {
        let is_hit = |bearer| revocations.hit(&self.tenant, bearer);
        let Some(tokens) = &self.tokens else {
            let (issuer, subject, since) = &self.own;
            let own = Bearer { issuer, subject, issued_at: Some(*since) };
            // The request is older than the revocation: it may be repeated.
            return if revocations.hit_ours(&self.tenant, own) {
                let problem = "what was asked for was revoked meanwhile".to_owned();
                Err(BrokerError::Unavailable(problem))
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
    let TokenFacts { issuer, subject, issued_at, .. } = token.facts();
    Bearer { issuer, subject, issued_at: *issued_at }
}

/// Whose credential it is.
pub(crate) fn owner_of(service: &StsConfig, request: &GrantRequest) -> Owner {
    let tokens = request.tokens.as_ref();
    let tokens = tokens.filter(|_| request.kind == CredentialKind::TokenExchange);
    let subject = tokens.map(|tokens| tokens.subject.facts());
    Owner {
        tenant: request.tenant.clone(),
        issuer: subject.map_or(&service.issuer, |one| &one.issuer).clone(),
        subject: subject.map_or(&service.client_id, |one| &one.subject).clone(),
    }
}

/// What a credential depends on, as digests.
pub(crate) struct Keys {
    /// Everything: two calls that differ in any of it never share one.
    pub(crate) key: Digest,
    /// Whom it speaks for, at which target and for what: the same when it is minted again from later tokens of the same people.
    pub(crate) holder: Digest,
}

pub(crate) fn keys_of(service: &Service, request: &GrantRequest, wanted: &Wanted) -> Keys {
    let owner = owner_of(&service.config, request);
    let tokens = wanted.tokens.as_ref();
    let agent = tokens.and_then(|tokens| tokens.actor.as_ref());
    let agent = agent.filter(|_| wanted.actor == Actor::Token);
    let actor = match wanted.actor {
        Actor::Token => "token",
        Actor::Assertion => "gateway",
        Actor::Nobody => "nobody",
    };
    let agent_facts = agent.map(SubjectToken::facts);
    let holder = DigestBuilder::new("placet.grant-holder.v1")
        .field("tenant", request.tenant.as_str())
        // The service's name, its issuer and our client id are in it.
        .field("service", service.revision.as_bytes())
        .field("kind", wanted.kind.as_str())
        .field("subject_issuer", owner.issuer)
        .field("subject", owner.subject)
        .field("actor", actor)
        .optional("agent_issuer", agent_facts.map(|agent| agent.issuer.as_bytes()))
        .optional("agent", agent_facts.map(|agent| agent.subject.as_bytes()))
        .optional("audience", wanted.audience.as_deref().map(str::as_bytes))
        .optional("resource", wanted.resource.as_deref().map(str::as_bytes))
        .list("scopes", &wanted.scopes)
        .field("origin", &request.origin)
        .field("contract", request.revision.as_bytes())
        .finish();
    let subject = tokens.map(|tokens| *tokens.subject.digest().as_bytes());
    let agent = agent.map(|agent| *agent.digest().as_bytes());
    let key = DigestBuilder::new("placet.grant.v1")
        .field("holder", holder.as_bytes())
        .optional("subject_token", subject.as_ref().map(|digest| &digest[..]))
        .optional("actor_token", agent.as_ref().map(|digest| &digest[..]))
        .list("scopes_needed", &wanted.scopes_needed)
        .finish();
    Keys { key, holder }
}
