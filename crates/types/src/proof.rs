//! How the parties of a call were authenticated (TM-04), as the verifier found it.
//!
//! Owns the form. Verifies nothing: a proof is made from verified tokens and certificates only. Invariant: no token and nothing that
//! could serve as one is in here.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::principal::{PrincipalChain, PrincipalKind};

crate::named_enum! {
    /// How a caller or a user proved their identity.
    #[derive(JsonSchema)]
    pub enum AuthType {
        /// A bearer token of a configured issuer.
        Jwt = "jwt",
        /// A token that is bound to the client certificate of the connection (RFC 8705).
        BoundJwt = "bound_jwt",
        /// The `act` claim of the user's token (RFC 8693).
        ActorClaim = "actor_claim",
        /// A JWT-SVID of a SPIFFE trust domain.
        JwtSvid = "jwt_svid",
        /// A client certificate.
        X509 = "x509",
        /// A client certificate with a SPIFFE id (X.509-SVID).
        X509Svid = "x509_svid",
        /// A token signed with the development key.
        Development = "development",
    }
}

impl AuthType {
    /// Whether it proves by itself which workload calls: the proof is an SVID, or cannot be used without the workload's private key.
    pub const fn attests_workload(self) -> bool {
        match self {
            Self::BoundJwt | Self::JwtSvid | Self::X509 | Self::X509Svid => true,
            Self::Jwt | Self::ActorClaim | Self::Development => false,
        }
    }
}

/// Claims of a token by their names: those that its issuer's configuration shows to policies. A claim of one text is a set of one.
pub type ShownClaims = BTreeMap<String, BTreeSet<String>>;

/// One verified proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// The kind of proof.
    pub auth_type: AuthType,
    /// The subject as its issuer names it.
    pub subject: String,
    /// The scopes granted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub scopes: BTreeSet<String>,
    /// The claims that policies see.
    #[serde(default, skip_serializing_if = "ShownClaims::is_empty")]
    pub claims: ShownClaims,
}

impl Proof {
    /// The SPIFFE id, where it is an SVID: in another proof nobody vouches that a subject of this form is one.
    pub fn spiffe_id(&self) -> Option<&str> {
        let is_svid = matches!(self.auth_type, AuthType::JwtSvid | AuthType::X509Svid);
        is_svid.then_some(self.subject.as_str())
    }
}

/// How the parties of one call were authenticated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CallerProof {
    /// Whether it was verified which workload calls: by the kind of proof, or because the issuer is configured as verifying it.
    pub attested: bool,
    /// The caller's own.
    pub actor: Proof,
    /// The user's delegation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<Proof>,
}

impl CallerProof {
    /// The proof by the development key for these parties: for made-up decisions, as in policy cases and rehearsals.
    pub fn of_development(chain: &PrincipalChain) -> Self {
        let proof = |subject: &str| Proof {
            auth_type: AuthType::Development,
            subject: subject.to_owned(),
            scopes: BTreeSet::new(),
            claims: ShownClaims::new(),
        };
        Self {
            attested: chain.actor.kind != PrincipalKind::User,
            actor: proof(chain.actor.id.as_str()),
            user: chain.on_behalf_of.as_ref().map(|user| proof(user.id.as_str())),
        }
    }

    /// Whether it belongs to these parties: it has a user's proof exactly if the call is for a user.
    pub const fn fits(&self, chain: &PrincipalChain) -> bool {
        self.user.is_some() == chain.on_behalf_of.is_some()
    }
}
