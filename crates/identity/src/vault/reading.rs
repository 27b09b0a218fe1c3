//! What was last read of one entry: the version in use, the one before, and until when they may be used.
//!
//! Owns when a version is replaced, taken back, or too old. Does not ask anybody. Invariants: nothing is used past its lease, or past the time
//! that an entry may go without being read; all fields that are given out together are of one version.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};

use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::VaultError;
use crate::secrets::{LiveSecret, LiveVersion, SecretError};

/// One entry.
#[derive(Debug)]
pub(crate) struct Reading {
    path: String,
    /// The fields that secrets of ours are: no other is kept.
    wanted: BTreeSet<String>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    newest: Option<Version>,
    previous: Option<Previous>,
    /// Why there is none. Nothing: nobody asked yet.
    missing: Option<VaultError>,
}

#[derive(Debug)]
struct Version {
    fields: BTreeMap<String, SecretString>,
    term: Term,
}

/// For how long what was read may be used.
#[derive(Debug, Clone, Copy)]
pub(super) struct Term {
    pub(super) until: Instant,
    /// Whether the vault leased it for so long. Else it is we who read it again by then, and it has no end that anybody knows.
    pub(super) is_lease: bool,
}

#[derive(Debug)]
struct Previous {
    version: Version,
    live_until: Instant,
}

impl Reading {
    pub(crate) fn new(path: &str) -> Self {
        Self { path: path.to_owned(), wanted: BTreeSet::new(), state: Mutex::default() }
    }

    pub(crate) fn want(&mut self, field: &str) {
        self.wanted.insert(field.to_owned());
    }

    pub(super) fn path(&self) -> &str {
        &self.path
    }

    pub(super) fn wanted(&self) -> impl Iterator<Item = &str> {
        self.wanted.iter().map(String::as_str)
    }

    /// Takes what was read. The version before stays live for `overlap`, if it may be used that long.
    pub(super) fn take(
        &self,
        fields: BTreeMap<String, SecretString>,
        term: Term,
        (now, overlap): (Instant, Duration),
    ) {
        let mut state = self.state();
        state.missing = None;
        match state.newest.take() {
            Some(newest) if newest.has(&fields) => {
                state.newest = Some(Version { term, ..newest });
            }
            before => {
                if let Some(version) = before {
                    tracing::info!(path = %self.path, "a secret in the vault was rotated");
                    let live_until =
                        now.checked_add(overlap).unwrap_or(now).min(version.term.until);
                    state.previous = Some(Previous { version, live_until });
                }
                state.newest = Some(Version { fields, term });
            }
        }
    }

    /// Lets the newest be used for longer: its lease was renewed.
    pub(super) fn extend(&self, until: Instant) {
        if let Some(newest) = &mut self.state().newest {
            newest.term = Term { until, is_lease: true };
        }
    }

    /// Notes why it could not be read. What is there stays until it has expired, unless it was taken back.
    pub(super) fn fail(&self, error: VaultError) {
        let mut state = self.state();
        if error.takes_back() {
            *state = State::default();
        }
        state.missing = Some(error);
    }

    /// What is live of a field.
    pub(crate) fn live(
        &self,
        name: &str,
        field: &str,
        now: Instant,
    ) -> Result<LiveSecret, SecretError> {
        let mut state = self.state();
        drop(state.previous.take_if(|previous| previous.live_until <= now));
        let missing = |cause| SecretError::Vault { name: name.to_owned(), cause };
        let Some(newest) = state.newest.as_ref().filter(|newest| newest.term.until > now) else {
            let stale = state.newest.is_some();
            // Overwritten as soon as nobody may use it.
            state.newest = None;
            if stale && state.missing.is_none() {
                state.missing = Some(VaultError::Stale { path: self.path.clone() });
            }
            return match &state.missing {
                Some(cause) => Err(missing(cause.clone())),
                None => Err(SecretError::NotAsked { name: name.to_owned() }),
            };
        };
        let problem = || VaultError::Unusable {
            path: self.path.clone(),
            problem: format!("it has no field `{field}`"),
        };
        let newest = newest.live(field).ok_or_else(|| missing(problem()))?;
        let before = state.previous.as_ref().and_then(|previous| previous.version.live(field));
        let previous =
            before.filter(|before| before.value.expose_secret() != newest.value.expose_secret());
        Ok(LiveSecret { newest, previous })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Version {
    fn live(&self, field: &str) -> Option<LiveVersion> {
        let value = self.fields.get(field)?.clone();
        Some(LiveVersion { value, ends: self.term.is_lease.then_some(self.term.until) })
    }

    fn has(&self, fields: &BTreeMap<String, SecretString>) -> bool {
        self.fields.len() == fields.len()
            && self.fields.iter().all(|(name, value)| {
                fields.get(name).is_some_and(|other| other.expose_secret() == value.expose_secret())
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn reading() -> Reading {
        let mut reading = Reading::new("database/creds/app");
        reading.want("password");
        reading
    }

    fn take(reading: &Reading, value: &str, lasts: Duration) {
        take_as(reading, value, (lasts, true));
    }

    fn take_as(reading: &Reading, value: &str, (lasts, is_lease): (Duration, bool)) {
        let now = Instant::now();
        let fields = BTreeMap::from([("password".to_owned(), SecretString::from(value))]);
        let term = Term { until: now.checked_add(lasts).unwrap(), is_lease };
        reading.take(fields, term, (now, Duration::from_mins(10)));
    }

    fn live(reading: &Reading) -> Result<(String, Option<String>), SecretError> {
        let text = |secret: SecretString| secret.expose_secret().to_owned();
        let (newest, previous) = reading.live("db", "password", Instant::now())?.into_values();
        Ok((text(newest), previous.map(text)))
    }

    /// How long each value is leased for still: the one to use, and the one before.
    fn left(reading: &Reading) -> (Option<Duration>, Option<Duration>) {
        let now = Instant::now();
        let live = reading.live("db", "password", now).unwrap();
        let left = |version: LiveVersion| Some(version.ends?.duration_since(now));
        (left(live.newest), live.previous.and_then(left))
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_given_before_it_was_read_or_after_its_time() {
        let reading = reading();
        assert_eq!(live(&reading), Err(SecretError::NotAsked { name: "db".to_owned() }));
        take(&reading, "one", MINUTE);
        reading.fail(VaultError::NotReady { status: 503 });
        assert_eq!(live(&reading).unwrap().0, "one", "an outage takes nothing back");
        tokio::time::advance(MINUTE).await;
        let cause = VaultError::NotReady { status: 503 };
        assert_eq!(live(&reading), Err(SecretError::Vault { name: "db".to_owned(), cause }));
        take(&reading, "two", MINUTE);
        assert_eq!(
            live(&reading).unwrap(),
            ("two".to_owned(), None),
            "what is over is no version before"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_version_before_is_live_for_the_overlap_and_never_past_its_own_lease() {
        let reading = reading();
        take(&reading, "one", Duration::from_mins(60));
        take(&reading, "two", Duration::from_mins(5));
        assert_eq!(live(&reading).unwrap(), ("two".to_owned(), Some("one".to_owned())));
        tokio::time::advance(Duration::from_mins(4)).await;
        take(&reading, "three", Duration::from_mins(60));
        assert_eq!(live(&reading).unwrap(), ("three".to_owned(), Some("two".to_owned())));
        tokio::time::advance(MINUTE).await;
        assert_eq!(live(&reading).unwrap(), ("three".to_owned(), None), "its lease was over");
        take(&reading, "four", Duration::from_mins(60));
        tokio::time::advance(Duration::from_mins(10)).await;
        assert_eq!(live(&reading).unwrap(), ("four".to_owned(), None), "the overlap was over");
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_lease_is_used_for_longer_and_the_same_value_is_no_rotation() {
        let reading = reading();
        take(&reading, "one", MINUTE);
        reading.extend(Instant::now().checked_add(Duration::from_mins(3)).unwrap());
        tokio::time::advance(Duration::from_mins(2)).await;
        assert_eq!(live(&reading).unwrap(), ("one".to_owned(), None));
        take(&reading, "one", Duration::from_mins(2));
        assert_eq!(live(&reading).unwrap(), ("one".to_owned(), None));
    }

    #[tokio::test(start_paused = true)]
    async fn each_value_is_told_with_the_end_of_its_own_lease_and_without_a_lease_there_is_none() {
        let reading = reading();
        take_as(&reading, "kept", (MINUTE, false));
        assert_eq!(left(&reading), (None, None), "to be read again is not to be over");
        take(&reading, "one", Duration::from_mins(5));
        assert_eq!(left(&reading), (Some(Duration::from_mins(5)), None));
        tokio::time::advance(MINUTE).await;
        reading.extend(Instant::now().checked_add(Duration::from_mins(6)).unwrap());
        assert_eq!(left(&reading).0, Some(Duration::from_mins(6)), "renewed");
        take(&reading, "two", Duration::from_mins(8));
        let both = (Some(Duration::from_mins(8)), Some(Duration::from_mins(6)));
        assert_eq!(left(&reading), both);
        // The same value without a lease, as after another engine was mounted there.
        take_as(&reading, "two", (MINUTE, false));
        assert_eq!(left(&reading), (None, Some(Duration::from_mins(6))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_deleted_or_forbidden_is_taken_back_at_once() {
        for error in [
            VaultError::Absent { path: "p".to_owned() },
            VaultError::Denied { what: "read `p`".to_owned() },
        ] {
            let reading = reading();
            take(&reading, "one", MINUTE);
            take(&reading, "two", MINUTE);
            reading.fail(error.clone());
            assert_eq!(
                live(&reading),
                Err(SecretError::Vault { name: "db".to_owned(), cause: error })
            );
            assert!(!format!("{reading:?}").contains("two"));
        }
    }
}
