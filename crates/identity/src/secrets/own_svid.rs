//! Our own JWT-SVIDs, from the agent of the SPIFFE Workload API: they authenticate us to a token service, without a stored secret.
//!
//! Owns when one is fetched again: at half of its life. The library opens the socket, as for trust bundles. Invariants: an SVID is in
//! memory only, is not used after it expires, and is fetched for one audience, so that its recipient cannot present it to anybody else.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;

use placet_types::clock::Clock;
use secrecy::SecretString;
use spiffe::{WorkloadApiClient, transport::Endpoint};
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep, timeout},
};

use super::{LiveSecret, LiveVersion, SecretError, Secrets};
use crate::{
    jitter::{backoff, less_a_tenth},
    workload_api::words,
};

const ANSWER: Duration = Duration::from_secs(5);
/// In its last moments it might expire on its way.
const MARGIN: Duration = Duration::from_secs(10);
/// A longer life is not believed: it is fetched again by then.
const LIFE_MAX: Duration = Duration::from_hours(24);

/// Our SVID for one audience.
#[derive(Debug)]
pub(crate) struct OwnSvid {
    audience: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    token: Option<SecretString>,
    usable_until: Option<Instant>,
    /// When it expires.
    ends: Option<Instant>,
    missing: Option<&'static str>,
}

impl OwnSvid {
    pub(crate) fn new(audience: &str) -> Self {
        Self { audience: audience.to_owned(), state: Mutex::default() }
    }

    /// The SVID, while it can be used.
    pub(crate) fn live(&self, name: &str, now: Instant) -> Result<LiveSecret, SecretError> {
        let mut state = self.state.lock();
        if state.usable_until.is_some_and(|until| until <= now) {
            state.token = None;
        }
        match (&state.token, state.missing) {
            (Some(token), _) => {
                let newest = LiveVersion { value: token.clone(), ends: state.ends };
                Ok(LiveSecret { newest, previous: None })
            }
            (None, None) if state.usable_until.is_none() => {
                Err(SecretError::NotAsked { name: name.to_owned() })
            }
            (None, problem) => Err(SecretError::Agent {
                name: name.to_owned(),
                problem: problem.unwrap_or("it gave no newer one in time"),
            }),
        }
    }

    /// Stores what was fetched; returns after how long to fetch it again.
    fn take(&self, token: &str, life: Duration) -> Duration {
        let now = Instant::now();
        let ends = now.checked_add(life);
        let life = life.min(LIFE_MAX);
        let usable_until = now.checked_add(life.saturating_sub(MARGIN));
        *self.state.lock() =
            State { token: Some(SecretString::from(token)), usable_until, ends, missing: None };
        less_a_tenth(life.checked_div(2).unwrap_or_default()).max(Duration::from_secs(1))
    }

    fn fail(&self, problem: &'static str) {
        self.state.lock().missing = Some(problem);
    }
}

/// Keeps our SVIDs fresh until it is dropped.
#[derive(Debug)]
pub struct SvidKeeper {
    tasks: Vec<AbortHandle>,
}

impl SvidKeeper {
    /// Fetches every SVID that a secret is, once, and from then on keeps them fresh. Has to be called in a runtime.
    ///
    /// # Errors
    /// [`SecretError`] when the agent does not give one.
    pub async fn open(
        socket: &Path,
        secrets: &Secrets,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, SecretError> {
        let mut keeper = Self { tasks: Vec::new() };
        for (name, svid) in secrets.own_svids() {
            let source = Source { socket: socket.to_path_buf(), clock: Arc::clone(clock) };
            let problem = |problem| SecretError::Agent { name: name.to_owned(), problem };
            let wait = source.fetch(&svid).await.map_err(problem)?;
            let keeping = async move { source.keep(&svid, wait).await };
            keeper.tasks.push(tokio::spawn(keeping).abort_handle());
        }
        Ok(keeper)
    }
}

impl Drop for SvidKeeper {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
    }
}

/// Where SVIDs come from.
struct Source {
    socket: PathBuf,
    clock: Arc<dyn Clock>,
}

impl Source {
    async fn keep(&self, svid: &OwnSvid, first: Duration) {
        let (mut wait, mut failures) = (first, 0_u32);
        loop {
            sleep(wait).await;
            match self.fetch(svid).await {
                Ok(next) => (wait, failures) = (next, 0),
                Err(problem) => {
                    if failures == 0 {
                        tracing::error!(audience = %svid.audience, problem, "the agent gives no SVID of ours");
                    }
                    svid.fail(problem);
                    failures = failures.saturating_add(1);
                    wait = backoff(failures);
                }
            }
        }
    }

    /// Fetches it once, and says when to do so again.
    async fn fetch(&self, svid: &OwnSvid) -> Result<Duration, &'static str> {
        let asking = async {
            let endpoint = Endpoint::Unix(self.socket.clone());
            let client = WorkloadApiClient::connect(endpoint).await?;
            client.fetch_jwt_svid([&svid.audience], None).await
        };
        let fetched = timeout(ANSWER, asking).await.map_err(|_elapsed| "it does not answer")?;
        let fetched = fetched.map_err(|error| words(&error))?;
        if fetched.audience() != [svid.audience.as_str()] {
            return Err("its SVID is for somebody else too");
        }
        let now_s = self.clock.now().as_ms().div_euclid(1_000);
        let left = fetched.expiry().unix_timestamp().saturating_sub(now_s);
        let life = Duration::from_secs(u64::try_from(left).unwrap_or_default());
        if life <= MARGIN {
            return Err("its SVID has expired, or the clocks differ");
        }
        Ok(svid.take(fetched.token(), life))
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret as _;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_svid_is_used_until_shortly_before_it_expires_and_is_not_shown() {
        let svid = OwnSvid::new("https://sts.example");
        let live = |svid: &OwnSvid| svid.live("sts", Instant::now());
        assert_eq!(live(&svid).unwrap_err(), SecretError::NotAsked { name: "sts".to_owned() });
        let wait = svid.take("kanarienvogel", Duration::from_secs(300));
        assert!((Duration::from_secs(135)..=Duration::from_secs(150)).contains(&wait), "{wait:?}");
        svid.fail("gone");
        tokio::time::advance(Duration::from_secs(289)).await;
        let newest = live(&svid).unwrap().newest;
        assert_eq!(newest.value.expose_secret(), "kanarienvogel");
        let left = newest.ends.unwrap().duration_since(Instant::now());
        assert_eq!(
            left,
            Duration::from_secs(11),
            "it is told when it expires, not until when it is used"
        );
        assert!(!format!("{svid:?}").contains("kanarienvogel"));
        tokio::time::advance(Duration::from_secs(1)).await;
        let gone = SecretError::Agent { name: "sts".to_owned(), problem: "gone" };
        assert_eq!(live(&svid).unwrap_err(), gone);
        svid.take("newer", Duration::from_secs(300));
        assert_eq!(live(&svid).unwrap().newest.value.expose_secret(), "newer");
    }
}
