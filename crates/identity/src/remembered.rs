//! Recently verified tokens: the same token is not verified again while the basis of its verification is unchanged.
//!
//! Owns what is remembered, and for how long. Does not verify. Invariants: an entry is valid only on the same basis, which is the issuer
//! with its configuration and its loaded keys, and only until time alone would refuse the token; whether somebody is revoked or inactive is
//! not part of it and is checked for each request. No byte of a token is stored, only its digest.

use std::sync::Arc;

use moka::sync::Cache;
use placet_types::clock::Timestamp;
use ring::digest;

use crate::token::{TokenRole, VerifiedToken};

/// How many tokens are remembered; those not seen for longest are verified again.
const TOKENS_MAX: u64 = 4_096;

/// The digest of a token and the place where it was presented.
pub(crate) type Name = [u8; digest::SHA256_OUTPUT_LEN];

/// Verified tokens by their digest, each with the basis that it was verified on.
pub(crate) struct RememberedTokens<B>(Cache<Name, Arc<Remembered<B>>>);

/// The facts found in a token.
pub(crate) struct Remembered<B> {
    pub(crate) basis: B,
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
    /// The caller, or the user it calls for, without the sealed token.
    pub(crate) token: VerifiedToken,
    /// The user, where the token names both.
    pub(crate) user: Option<VerifiedToken>,
}

impl<B: Send + Sync + 'static> RememberedTokens<B> {
    pub(crate) fn new() -> Self {
        Self(Cache::new(TOKENS_MAX))
    }

    pub(crate) fn find(&self, name: &Name, now: Timestamp) -> Option<Arc<Remembered<B>>> {
        self.0.get(name).filter(|known| known.from <= now && now < known.until)
    }

    pub(crate) fn insert(&self, name: Name, remembered: Remembered<B>) {
        self.0.insert(name, Arc::new(remembered));
    }
}

/// The name of a token that is presented in this place; without a role, in `Authorization`, where it may name a user as well.
pub(crate) fn name_of(token: &str, role: Option<TokenRole>) -> Option<Name> {
    let place: &[u8] = match role {
        None => b"either",
        Some(TokenRole::Actor) => b"actor",
        Some(TokenRole::Delegation) => b"delegation",
    };
    let mut both = digest::Context::new(&digest::SHA256);
    both.update(place);
    both.update(b"\0");
    both.update(token.as_bytes());
    both.finish().as_ref().try_into().ok()
}
