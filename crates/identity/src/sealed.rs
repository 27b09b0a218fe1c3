//! A verified token, sealed: for the exchange at a token service, and for nothing else.
//!
//! Owns the only copy of an inbound token that outlives its verification. Invariant: it is in memory only, overwritten when the last
//! holder drops it, and no text that this module makes shows a byte of it.

use std::{collections::BTreeSet, fmt, sync::Arc};

use placet_types::{clock::Timestamp, digest::Digest};
use secrecy::{ExposeSecret as _, SecretString};

use crate::spiffe::SPIFFE_SCHEME;

/// An actor that a token names in `act` or `may_act` (RFC 8693).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorClaim {
    /// The issuer in whose name space the actor is; absent: the token's own.
    pub issuer: Option<String>,
    /// The actor's subject.
    pub subject: Option<String>,
    /// The actor's OAuth client.
    pub client: Option<String>,
}

/// Somebody who may be the actor that a token names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Acting<'a> {
    /// The issuer within which `subject` is unique.
    pub issuer: &'a str,
    /// Who it is.
    pub subject: &'a str,
    /// As which OAuth client.
    pub client: Option<&'a str>,
}

impl ActorClaim {
    /// Whether the whole claim, in a token of `said_by`, is true of the one who acts. An empty claim names nobody.
    pub fn names(&self, said_by: &str, acting: Acting<'_>) -> bool {
        let subject_fits = self.subject.as_deref().is_none_or(|subject| subject == acting.subject);
        let client_fits = self.client.as_deref().is_none_or(|client| Some(client) == acting.client);
        let says_something = self.subject.is_some() || self.client.is_some();
        says_something && subject_fits && client_fits && self.is_of(said_by, acting.issuer)
    }

    /// Subjects are unique within their issuer only, except SPIFFE ids.
    fn is_of(&self, said_by: &str, issuer: &str) -> bool {
        self.issuer.as_deref().map_or_else(
            || {
                let subject = self.subject.as_deref();
                subject.is_some_and(|subject| subject.starts_with(SPIFFE_SCHEME))
                    || said_by == issuer
            },
            |named| named == issuer,
        )
    }
}

/// A verified token whose text only a token service is shown. Clones share one copy.
#[derive(Clone)]
pub struct SubjectToken(Arc<Sealed>);

struct Sealed {
    value: SecretString,
    digest: Digest,
    facts: TokenFacts,
}

/// A token's facts, as far as an exchange needs them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenFacts {
    /// Who issued it.
    pub issuer: String,
    /// Its subject, unique within the issuer.
    pub subject: String,
    /// The OAuth client it was issued to.
    pub client: Option<String>,
    /// When it was issued; absent where it does not say.
    pub issued_at: Option<Timestamp>,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The scopes granted to its bearer.
    pub scopes: BTreeSet<String>,
    /// The only one who may act for its subject, where it says so (RFC 8693, section 4.4).
    pub may_act: Option<ActorClaim>,
}

impl SubjectToken {
    /// Seals a token that was verified; `facts` are what it says.
    pub fn seal(token: &str, facts: TokenFacts) -> Self {
        let digest = Digest::of(token.as_bytes());
        Self(Arc::new(Sealed { value: SecretString::from(token), digest, facts }))
    }

    /// The token, for the form that goes to a token service.
    pub fn expose_to_token_service(&self) -> &str {
        self.0.value.expose_secret()
    }

    /// The digest of the token: equal digests mean equal tokens.
    pub fn digest(&self) -> Digest {
        self.0.digest
    }

    /// The token's facts.
    pub fn facts(&self) -> &TokenFacts {
        &self.0.facts
    }

    /// Whether it is a workload's JWT-SVID: no other token that is accepted has a SPIFFE id as its subject.
    pub fn is_svid(&self) -> bool {
        self.0.facts.subject.starts_with(SPIFFE_SCHEME)
    }
}

impl fmt::Debug for SubjectToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubjectToken")
            .field("expires_at", &self.0.facts.expires_at)
            .finish_non_exhaustive()
    }
}

impl PartialEq for SubjectToken {
    fn eq(&self, other: &Self) -> bool {
        self.0.digest == other.0.digest
    }
}

impl Eq for SubjectToken {}
