//! The live versions of a secret at one moment: the value to use, the previous one, and when each of them expires.
//!
//! Owns the form. Does not read: `secrets` does. Invariant: an expiry is returned only with the value that it belongs to.

use secrecy::SecretString;
use tokio::time::Instant;

/// The values of a secret that are live at the same time.
#[derive(Debug, Clone)]
pub struct LiveSecret {
    /// The one to use.
    pub newest: LiveVersion,
    /// The one before, for ten minutes after this process saw the rotation: for a peer that does not know the newest yet.
    pub previous: Option<LiveVersion>,
}

/// One value of a secret.
#[derive(Debug, Clone)]
pub struct LiveVersion {
    /// The value.
    pub value: SecretString,
    /// When it expires, as far as is known at this moment, by the clock that nobody sets: the end of the JWT-SVID that
    /// it is. Nothing where it has no end that anybody told us, as of a file or a variable.
    pub ends: Option<Instant>,
}

impl LiveSecret {
    /// Values without a known expiry.
    pub fn endless(newest: SecretString, previous: Option<SecretString>) -> Self {
        let endless = |value| LiveVersion { value, ends: None };
        Self { newest: endless(newest), previous: previous.map(endless) }
    }

    /// The values alone: the one to use, and the one before.
    pub fn into_values(self) -> (SecretString, Option<SecretString>) {
        (self.newest.value, self.previous.map(|previous| previous.value))
    }
}
