//! A token that was verified: what is known about its bearer, without the token.
//!
//! Owns the verified facts. Does not verify: only [`crate::Verifier`] makes one. Invariant: the token is in here only sealed, for a token
//! service; [`VerifiedToken::token_ref`] is a digest that cannot be reversed.

use std::collections::BTreeSet;

use placet_types::{
    clock::Timestamp,
    ids::{GroupId, PrincipalId, TenantId},
    principal::{Principal, PrincipalKind},
    proof::{AuthType, Proof, ShownClaims},
};

use crate::{
    config::ActingRule,
    error::IdentityError,
    sealed::{ActorClaim, SubjectToken, TokenFacts},
    spiffe::SPIFFE_SCHEME,
};

/// Where in a call a token is presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TokenRole {
    /// `Authorization`: who calls.
    Actor,
    /// `Placet-Delegation`: the user it calls for.
    Delegation,
}

/// The facts of a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    pub(crate) role: TokenRole,
    pub(crate) auth_type: AuthType,
    /// Whether, by the issuer's configuration, the issuer verifies which workload it gives a token to.
    pub(crate) issuer_attests: bool,
    pub(crate) principal: Principal,
    pub(crate) issuer: String,
    pub(crate) subject: String,
    /// The claims that the issuer's configuration shows to policies.
    pub(crate) claims: ShownClaims,
    /// Other names of the same bearer in the same proof, such as those of a certificate with several.
    pub(crate) further_subjects: Vec<String>,
    /// Every audience of the token; one of them is ours.
    pub(crate) audiences: BTreeSet<String>,
    pub(crate) groups: BTreeSet<GroupId>,
    pub(crate) scopes: BTreeSet<String>,
    pub(crate) issued_at: Timestamp,
    /// Whether `issued_at` is our own word: the token does not say.
    pub(crate) is_undated: bool,
    pub(crate) expires_at: Timestamp,
    pub(crate) authenticated_at: Option<Timestamp>,
    pub(crate) client: Option<String>,
    pub(crate) client_principal: Option<PrincipalId>,
    pub(crate) actor: Option<ActorClaim>,
    pub(crate) prior_actors: Vec<String>,
    pub(crate) may_act: Option<ActorClaim>,
    /// Whether an agent may hold it, so that it proves no one's presence.
    pub(crate) is_held: bool,
    /// Whether a delegation that names neither actor nor client is for every agent of the tenant.
    pub(crate) for_anybody: bool,
    /// The certificate that the token is bound to, by its thumbprint (RFC 8705).
    pub(crate) bound_to: Option<String>,
    pub(crate) token_ref: String,
    /// Only for a token service; absent if the token may not be exchanged, as for the token of a sign-in.
    pub(crate) sealed: Option<SubjectToken>,
}

/// A workload, as a trust domain or an authority names it.
pub(crate) struct Workload {
    pub(crate) role: TokenRole,
    pub(crate) auth_type: AuthType,
    pub(crate) principal: Principal,
    pub(crate) issuer: String,
    pub(crate) subject: String,
    pub(crate) issued_at: Timestamp,
    pub(crate) expires_at: Timestamp,
    pub(crate) token_ref: String,
}

impl VerifiedToken {
    /// What a workload's own proof shows: only who it is. It has no groups and speaks for nobody.
    pub(crate) fn of_workload(workload: Workload) -> Self {
        Self {
            role: workload.role,
            auth_type: workload.auth_type,
            issuer_attests: false,
            claims: ShownClaims::new(),
            principal: workload.principal,
            issuer: workload.issuer,
            subject: workload.subject,
            further_subjects: Vec::new(),
            audiences: BTreeSet::new(),
            groups: BTreeSet::new(),
            scopes: BTreeSet::new(),
            issued_at: workload.issued_at,
            is_undated: false,
            expires_at: workload.expires_at,
            authenticated_at: None,
            client: None,
            client_principal: None,
            actor: None,
            prior_actors: Vec::new(),
            may_act: None,
            is_held: false,
            for_anybody: false,
            bound_to: None,
            sealed: None,
            token_ref: workload.token_ref,
        }
    }

    /// Whether the workload was attested. A person is not a workload.
    pub fn attests_workload(&self) -> bool {
        self.kind() != PrincipalKind::User
            && (self.auth_type.attests_workload() || self.issuer_attests)
    }

    /// What the token proved, for policies and records.
    pub fn proof(&self) -> Proof {
        Proof {
            auth_type: self.auth_type,
            subject: self.subject.clone(),
            scopes: self.scopes.clone(),
            claims: self.claims.clone(),
        }
    }

    /// Who the bearer is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// What kind of principal the bearer is.
    pub fn kind(&self) -> PrincipalKind {
        self.principal.kind
    }

    /// The tenant, by the issuer's configuration.
    pub fn tenant(&self) -> &TenantId {
        &self.principal.tenant_id
    }

    /// The issuer.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The subject as the issuer names it; unique together with the issuer.
    pub fn subject(&self) -> &str {
        &self.subject
    }

    /// Each name by which the bearer can be revoked: the subject first, then the others that the same proof gives.
    pub fn subjects(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.subject).chain(&self.further_subjects).map(String::as_str)
    }

    /// Groups from the token's claims. Names that cannot be a group are left out: no policy could name them either.
    pub fn groups(&self) -> &BTreeSet<GroupId> {
        &self.groups
    }

    /// The time as of which the groups are known: when the token was issued.
    pub fn groups_as_of(&self) -> Timestamp {
        self.issued_at
    }

    /// The scopes granted.
    pub fn scopes(&self) -> &BTreeSet<String> {
        &self.scopes
    }

    /// When the token says that it was issued. Nothing where it does not, so that it may be older than anything.
    pub fn said_issued_at(&self) -> Option<Timestamp> {
        (!self.is_undated).then_some(self.issued_at)
    }

    /// When the token expires.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// When the user logged in, where the token says so.
    pub fn authenticated_at(&self) -> Option<Timestamp> {
        self.authenticated_at
    }

    /// The OAuth client the token was issued to (`client_id`, `azp`).
    pub fn client(&self) -> Option<&str> {
        self.client.as_deref()
    }

    /// Whether an agent may hold this user's token: it says who may act with it, or it was issued to a client that is not a person's. It
    /// proves then what the user lets the agent do, and not that the user is there.
    pub fn is_held_for_user(&self) -> bool {
        self.is_held && self.kind() == PrincipalKind::User
    }

    /// The token, sealed, where it may be exchanged at a token service.
    pub fn sealed(&self) -> Option<&SubjectToken> {
        self.sealed.as_ref()
    }

    /// The actor that this delegation names, as the caller: its issuer vouches for both.
    pub(crate) fn acting(&self, rule: &ActingRule) -> Result<Self, IdentityError> {
        let refused = |problem| IdentityError::ClaimRefused { claim: "act".to_owned(), problem };
        let named = self.actor.as_ref().ok_or_else(|| refused("it is not there"))?;
        if named.issuer.as_ref().is_some_and(|issuer| *issuer != self.issuer) {
            return Err(refused("the actor is of another issuer, which has not vouched for it"));
        }
        let subject = named.subject.clone().ok_or_else(|| refused("the actor has no subject"))?;
        if subject.starts_with(SPIFFE_SCHEME) {
            return Err(refused("a SPIFFE id is believed from its own trust domain alone"));
        }
        let id = rule.principal(&subject);
        let id = id.ok_or_else(|| refused("it cannot be the name of a principal"))?;
        Ok(self.as_actor(rule.kind, id, subject, named.client.clone()))
    }

    /// The agent that the client of this user's token stands for, as the caller.
    pub(crate) fn acting_by_client(&self, rule: &ActingRule) -> Option<Self> {
        let (id, client) = (self.client_principal.clone()?, self.client.clone()?);
        let is_users = self.kind() == PrincipalKind::User;
        is_users.then(|| self.as_actor(rule.kind, id, client.clone(), Some(client)))
    }

    /// The same token, as the user's delegation.
    pub(crate) fn as_delegation(&self) -> Self {
        Self { role: TokenRole::Delegation, ..self.clone() }
    }

    /// The one who sends this user's token, as the caller.
    fn as_actor(
        &self,
        kind: PrincipalKind,
        id: PrincipalId,
        subject: String,
        client: Option<String>,
    ) -> Self {
        let tenant_id = self.principal.tenant_id.clone();
        Self {
            role: TokenRole::Actor,
            // The token is bound to the key of its sender, which is the actor.
            auth_type: if self.auth_type == AuthType::Jwt {
                AuthType::ActorClaim
            } else {
                self.auth_type
            },
            principal: Principal { kind, id, tenant_id, display: None },
            subject,
            // They are about the user.
            claims: ShownClaims::new(),
            groups: BTreeSet::new(),
            scopes: BTreeSet::new(),
            authenticated_at: None,
            client,
            client_principal: None,
            actor: None,
            prior_actors: Vec::new(),
            may_act: None,
            is_held: false,
            for_anybody: false,
            sealed: None,
            ..self.clone()
        }
    }

    /// The same facts with the token that they were read from, sealed.
    pub(crate) fn sealing(mut self, token: &str) -> Self {
        let facts = TokenFacts {
            issuer: self.issuer.clone(),
            subject: self.subject.clone(),
            client: self.client.clone(),
            issued_at: self.said_issued_at(),
            expires_at: self.expires_at,
            scopes: self.scopes.clone(),
            may_act: self.may_act.clone(),
        };
        self.sealed = Some(SubjectToken::seal(token, facts));
        self
    }

    /// An opaque handle to the token for records and logs; never the token.
    pub fn token_ref(&self) -> String {
        self.token_ref.clone()
    }
}
