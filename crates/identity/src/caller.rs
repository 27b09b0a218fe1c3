//! The caller of one request: the workload's token and the user's delegation, bound to each other.
//!
//! Owns the rules by which two verified tokens may be used together. Does not verify tokens and does not decide what the
//! pair may do. Invariant: a delegation that names an actor is only ever bound to that actor.

use placet_types::{
    clock::Timestamp,
    ids::TenantId,
    principal::{PrincipalChain, PrincipalKind, TokenAudiences},
    proof::CallerProof,
};

use crate::{
    error::IdentityError,
    sealed::{Acting, ActorClaim},
    token::{TokenRole, VerifiedToken},
};

/// Who calls, and for whom. Only [`VerifiedCaller::bind`] makes one.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct VerifiedCaller {
    /// Who calls. A user, where a person calls in their own name.
    pub actor: VerifiedToken,
    /// The user it calls for.
    pub delegation: Option<VerifiedToken>,
}

impl VerifiedCaller {
    /// Binds the two tokens of a call.
    ///
    /// # Errors
    /// [`IdentityError::BindingRefused`] when they were verified for other places, belong to different tenants, the
    /// delegation is not a user's, a user would act for a user, or the delegation names another actor or none.
    /// [`IdentityError::HeldByAgent`] when a user's token that an agent may hold is shown alone.
    pub fn bind(
        actor: VerifiedToken,
        delegation: Option<VerifiedToken>,
    ) -> Result<Self, IdentityError> {
        let refused = |problem| Err(IdentityError::BindingRefused(problem));
        if actor.role != TokenRole::Actor {
            return refused("the caller's token was verified as a delegation");
        }
        if delegation.is_none() && actor.is_held_for_user() {
            return Err(IdentityError::HeldByAgent(actor.issuer));
        }
        if let Some(user) = &delegation {
            if user.role != TokenRole::Delegation {
                return refused("the delegation was verified as a caller's token");
            }
            if user.tenant() != actor.tenant() {
                return refused("they belong to different tenants");
            }
            if user.kind() != PrincipalKind::User {
                return refused("the delegation is not a user's");
            }
            if actor.kind() == PrincipalKind::User {
                return refused("a user cannot act for a user");
            }
            if user.subject == actor.subject && user.issuer == actor.issuer {
                return refused("the actor is the user's own subject");
            }
            check_named_actor(user, &actor)?;
        }
        Ok(Self { actor, delegation })
    }

    /// The chain that policies, keys and digests refer to.
    pub fn chain(&self) -> PrincipalChain {
        PrincipalChain {
            actor: self.actor.principal.clone(),
            on_behalf_of: self.delegation.as_ref().map(|user| user.principal.clone()),
            via: self.delegation.as_ref().map(|user| user.prior_actors.clone()).unwrap_or_default(),
        }
    }

    /// How both proved who they are.
    pub fn proof(&self) -> CallerProof {
        CallerProof {
            attested: self.actor.attests_workload(),
            actor: self.actor.proof(),
            user: self.delegation.as_ref().map(VerifiedToken::proof),
        }
    }

    /// The tenant of both.
    pub fn tenant(&self) -> &TenantId {
        self.actor.tenant()
    }

    /// The audiences of each token that is for several services, for the record.
    pub fn several_audiences(&self) -> TokenAudiences {
        let tokens = std::iter::once(&self.actor).chain(&self.delegation);
        let mut several = TokenAudiences::new();
        for token in tokens.filter(|token| token.audiences.len() > 1) {
            let named = several.entry(token.token_ref()).or_default();
            named.extend(token.audiences.iter().cloned());
        }
        several
    }

    /// When the first of the two tokens expires.
    pub fn expires_at(&self) -> Timestamp {
        let delegation = self.delegation.as_ref().map(VerifiedToken::expires_at);
        delegation.map_or(self.actor.expires_at, |at| at.min(self.actor.expires_at))
    }
}

/// Where `act` and `may_act` are present, both must name the actor; otherwise the OAuth client must be the actor's.
fn check_named_actor(user: &VerifiedToken, actor: &VerifiedToken) -> Result<(), IdentityError> {
    let refused = |problem| Err(IdentityError::BindingRefused(problem));
    if user.may_act.as_ref().is_some_and(|claim| !names(claim, &user.issuer, actor)) {
        return refused("`may_act` names another actor");
    }
    if user.actor.as_ref().is_some_and(|claim| !names(claim, &user.issuer, actor)) {
        return refused("`act` names another actor");
    }
    if user.may_act.is_none() && user.actor.is_none() && !is_client_of(user, actor) {
        return refused("it names no actor, and it was not issued to the actor's client");
    }
    Ok(())
}

fn names(claim: &ActorClaim, issuer: &str, actor: &VerifiedToken) -> bool {
    let (subject, client) = (actor.subject.as_str(), actor.client.as_deref());
    claim.names(issuer, Acting { issuer: &actor.issuer, subject, client })
}

/// A delegation without a client is for nobody, unless its issuer's section says for any actor of the tenant.
fn is_client_of(user: &VerifiedToken, actor: &VerifiedToken) -> bool {
    let Some(client) = user.client.as_deref() else { return user.for_anybody };
    if let Some(principal) = &user.client_principal {
        return *principal == actor.principal.id;
    }
    user.issuer == actor.issuer
        && (actor.subject == client || actor.client.as_deref() == Some(client))
}
