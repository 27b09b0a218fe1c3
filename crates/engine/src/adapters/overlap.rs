//! Which of two live versions of a secret a target accepts at the moment.
//!
//! Owns what was learned about it, so that during an overlap not every call begins with the version that was just refused, and a retry
//! begins with the other one. Invariant: the newest version is tried regularly.

use std::time::Duration;

use parking_lot::Mutex;

use placet_types::digest::Digest;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

/// How often a call tries the newest version again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

/// What was learned about a target.
#[derive(Debug, Default)]
pub(crate) struct Overlap(Mutex<Option<Refused>>);

#[derive(Debug)]
struct Refused {
    newest: Digest,
    again_at: Instant,
}

impl Overlap {
    /// Whether to begin with the version before `newest`. When the newest is due to be tried again, one of the calls that ask does so.
    pub(crate) fn begins_with_previous(&self, newest: &SecretString) -> bool {
        let mut known = self.0.lock();
        let Some(refused) = known.as_mut().filter(|refused| refused.newest == digest(newest))
        else {
            return false;
        };
        let now = Instant::now();
        let waits = now < refused.again_at;
        if !waits {
            refused.again_at = now + AGAIN_AFTER;
        }
        waits
    }

    /// The target refused a version: after the newest, the previous one is tried; after any other, the newest.
    pub(crate) fn refused(&self, sent: &SecretString, newest: &SecretString) {
        let is_newest = sent.expose_secret() == newest.expose_secret();
        let again_at = Instant::now() + AGAIN_AFTER;
        *self.0.lock() = is_newest.then(|| Refused { newest: digest(newest), again_at });
    }
}

fn digest(secret: &SecretString) -> Digest {
    Digest::of(secret.expose_secret().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_version_that_is_taken_is_begun_with_and_the_newest_is_tried_again_by_one() {
        let (old, new) = (SecretString::from("old"), SecretString::from("new"));
        let overlap = Overlap::default();
        assert!(!overlap.begins_with_previous(&new));
        overlap.refused(&new, &new);
        assert!(overlap.begins_with_previous(&new));
        assert!(!overlap.begins_with_previous(&"newer".into()), "nobody has refused that one");
        tokio::time::advance(AGAIN_AFTER).await;
        assert!(!overlap.begins_with_previous(&new), "one tries it again");
        assert!(overlap.begins_with_previous(&new), "and the others do not");
        // The target has changed over: the one before was refused.
        overlap.refused(&old, &new);
        assert!(!overlap.begins_with_previous(&new));
    }
}
