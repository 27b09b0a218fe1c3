//! Grants: what is asked for, and what was minted.
//!
//! Owns the binding of a credential to one host and one lifetime. Invariant: a [`Grant`] cannot be copied or printed, and yields its value
//! only for the origin that it was minted for, until it expires.

use std::{collections::BTreeSet, fmt, sync::Arc};

use placet_identity::SubjectToken;
use placet_types::{
    binding::CredentialUse,
    clock::Timestamp,
    contract::credential::{ActorSource, CachePolicy, CredentialKind},
    digest::Digest,
    ids::TenantId,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use crate::error::BrokerError;

/// The tokens of a call's callers, sealed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallTokens {
    /// Of the caller whose authority is used: the user's delegation, else the caller's own.
    pub subject: SubjectToken,
    /// Of the agent that acts for a user.
    pub actor: Option<SubjectToken>,
}

/// What a permitted call needs. Made by the engine from the contract and the permit; no argument of the call is in it.
#[derive(Debug, Clone)]
pub struct GrantRequest {
    /// In which tenant.
    pub tenant: TenantId,
    /// How the credential comes about: never a static secret.
    pub kind: CredentialKind,
    /// The token service.
    pub service: String,
    /// The caller's tokens; absent where they are gone.
    pub tokens: Option<CallTokens>,
    /// Who is named as acting.
    pub actor: ActorSource,
    /// The target's name at the token service.
    pub audience: Option<String>,
    /// The target as a URI.
    pub resource: Option<String>,
    /// The scopes requested.
    pub scopes: BTreeSet<String>,
    /// The scopes that the call cannot do without.
    pub scopes_needed: BTreeSet<String>,
    /// Whether it may be read from, and stored in, the cache.
    pub cache: CachePolicy,
    /// The only origin that it will be sent to: `https://host:port`.
    pub origin: String,
    /// The digest of the contract, so that nothing minted for an earlier one is used.
    pub revision: Digest,
    /// The call's deadline.
    pub deadline: Instant,
}

/// What a token service has issued.
pub(crate) struct Minted {
    pub(crate) value: SecretString,
    pub(crate) used: CredentialUse,
    pub(crate) expires_at: Timestamp,
    /// Until when it is valid according to its service and its own claims, however long we use it; absent: neither says so.
    pub(crate) good_until: Option<Timestamp>,
    /// Whether its service left out its type, as its configuration allows.
    pub(crate) untyped: bool,
}

impl fmt::Debug for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Minted").field("used", &self.used).finish_non_exhaustive()
    }
}

/// A credential for one call: neither `Clone` nor printable.
pub struct Grant {
    pub(crate) minted: Arc<Minted>,
    pub(crate) origin: String,
    pub(crate) key: Digest,
    pub(crate) holder: Digest,
    pub(crate) reused: bool,
}

impl fmt::Debug for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Grant")
            .field("origin", &self.origin)
            .field("expires_at", &self.minted.expires_at)
            .finish_non_exhaustive()
    }
}

impl Grant {
    /// The token, for a request to `origin`.
    ///
    /// # Errors
    /// [`BrokerError::OtherHost`] for another origin than it was minted for, [`BrokerError::GrantExpired`] once it has expired.
    pub fn value_for(&self, origin: &str, now: Timestamp) -> Result<SecretString, BrokerError> {
        if origin != self.origin {
            return Err(BrokerError::OtherHost);
        }
        if self.minted.expires_at <= now {
            return Err(BrokerError::GrantExpired);
        }
        Ok(SecretString::from(self.minted.value.expose_secret()))
    }

    /// The only origin it may be sent to.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// When it expires.
    pub fn expires_at(&self) -> Timestamp {
        self.minted.expires_at
    }

    /// Until when its target may take it, which is later than we use it; absent: nobody says so.
    pub fn good_until(&self) -> Option<Timestamp> {
        self.minted.good_until
    }

    /// What the record of the call says of it.
    pub fn used(&self) -> CredentialUse {
        CredentialUse { reused: self.reused, ..self.minted.used.clone() }
    }

    /// Whether the service left out the token's type, as its configuration allows. True only for the call that it was minted for.
    pub fn is_untyped(&self) -> bool {
        self.minted.untyped && !self.reused
    }

    /// Whom it speaks for, at which target and for what: of tenant, subject, actor, service, target, scopes and contract, and not of the
    /// tokens that it was exchanged for.
    pub fn holder(&self) -> Digest {
        self.holder
    }

    /// By what it is dropped from the cache when its target refuses it.
    pub fn key(&self) -> Digest {
        self.key
    }
}
