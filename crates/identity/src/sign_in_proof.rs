//! The proof of a person's sign-in, for as long as their session lasts.
//!
//! Owns its stored form: sealed under the secret of the session, which only the browser has. Invariants: what is stored proves nothing by
//! itself: anyone who loads it verifies the token again, as of the moment of the sign-in; and nobody can read it without the browser.

use std::fmt;

use placet_types::clock::Timestamp;
use serde::{Deserialize, Serialize};
use zeroize::Zeroize;

use crate::{error::SetupError, sealing};

/// The purpose that the key is made for.
const PURPOSE: &str = "placet.session.v1";

/// The token of a sign-in, the nonce that it answers, and when it was verified.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignInProof {
    token: String,
    /// Only for an ID token.
    nonce: Option<String>,
    at: Timestamp,
}

impl fmt::Debug for SignInProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SignInProof").field("at", &self.at).finish_non_exhaustive()
    }
}

impl Drop for SignInProof {
    fn drop(&mut self) {
        self.token.zeroize();
    }
}

impl SignInProof {
    /// A development token that somebody signs in with at a moment.
    pub const fn of_development(token: String, at: Timestamp) -> Self {
        Self { token, nonce: None, at }
    }

    pub(crate) fn of_provider(token: &str, nonce: &str, at: Timestamp) -> Self {
        Self { token: token.to_owned(), nonce: Some(nonce.to_owned()), at }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    pub(crate) fn nonce(&self) -> Option<&str> {
        self.nonce.as_deref()
    }

    /// The moment of the sign-in.
    pub const fn at(&self) -> Timestamp {
        self.at
    }

    /// Whether it is from a provider's sign-in, and not from the development sign-in.
    pub const fn is_of_provider(&self) -> bool {
        self.nonce.is_some()
    }

    /// The proof, to be kept, sealed under a secret of at least 256 random bits that is kept nowhere.
    ///
    /// # Errors
    /// [`SetupError::NoRandomness`] when the operating system gives no random bytes.
    pub fn seal(&self, secret: &str) -> Result<Vec<u8>, SetupError> {
        sealing::seal(secret, PURPOSE, self)
    }

    /// The proof that was sealed under this secret; `None` if the secret differs, or anything was altered.
    pub fn unseal(secret: &str, sealed: &[u8]) -> Option<Self> {
        sealing::unseal(secret, PURPOSE, sealed)
    }
}
