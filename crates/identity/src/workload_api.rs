//! Trust bundles from the agent of this machine: the SPIFFE Workload API, over a socket in the file system.
//!
//! Owns the stream of bundles, its reconnection, and the notion of how fresh they are. Does not verify anything with them. The library opens
//! the socket itself: it is no network socket, leads nowhere but to the path that the configuration names, and is the exception that the rule
//! of egress has. Invariants: an agent that is gone, or silent when asked, does not keep its bundles fresh; a trust domain that the agent no
//! longer names is taken back at once; no words of the agent's are in an error.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use serde_json::{Value, json};
use spiffe::{JwtBundleSet, WorkloadApiClient, WorkloadApiError, transport::Endpoint};
use tokio::{
    sync::watch,
    task::AbortHandle,
    time::{sleep, timeout},
};

use crate::{error::KeyError, jitter::backoff};

/// How long the agent may take to answer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long the first one who wants a bundle waits for the first answer.
const FIRST: Duration = Duration::from_secs(3);
/// How long the stream may be silent before the agent is asked whether it is still there.
const SILENCE: Duration = Duration::from_secs(20);

/// Watches the bundles of one agent, until it is dropped.
#[derive(Debug)]
pub(crate) struct WorkloadApi {
    state: watch::Receiver<State>,
    task: AbortHandle,
}

/// What the agent said last.
#[derive(Debug, Clone)]
enum State {
    /// Nothing yet.
    New,
    /// These are the bundles, by trust domain.
    Fresh(Arc<BTreeMap<String, Value>>),
    /// It cannot be asked.
    Lost(&'static str),
}

impl WorkloadApi {
    /// Begins to watch. Has to be called in a runtime.
    pub(crate) fn watch(socket: &Path) -> Self {
        let (sender, state) = watch::channel(State::New);
        let watching = watch_for_ever(socket.to_path_buf(), sender);
        Self { state, task: tokio::spawn(watching).abort_handle() }
    }

    /// The bundle of a trust domain as the agent says it now, as a key set.
    pub(crate) async fn bundle(&self, trust_domain: &str) -> Result<Value, KeyError> {
        let mut state = self.state.clone();
        let answered = timeout(FIRST, state.wait_for(|state| !matches!(state, State::New))).await;
        let state = match answered {
            Ok(Ok(state)) => state.clone(),
            Ok(Err(_)) | Err(_) => State::Lost("it has not answered yet"),
        };
        match state {
            State::Fresh(bundles) => bundles
                .get(trust_domain)
                .cloned()
                .ok_or_else(|| KeyError::NotInBundles { trust_domain: trust_domain.to_owned() }),
            State::Lost(problem) => Err(KeyError::Agent { problem }),
            State::New => Err(KeyError::Agent { problem: "it has not answered yet" }),
        }
    }
}

impl Drop for WorkloadApi {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch_for_ever(socket: PathBuf, state: watch::Sender<State>) {
    let mut failures = 0_u32;
    loop {
        let problem = follow(&socket, &state).await;
        if matches!(*state.borrow(), State::Fresh(_)) {
            failures = 0;
        }
        if failures == 0 {
            tracing::warn!(socket = %socket.display(), problem, "the agent of the Workload API cannot be asked");
        }
        state.send_replace(State::Lost(problem));
        failures = failures.saturating_add(1);
        sleep(backoff(failures)).await;
    }
}

/// Takes what the agent says until it cannot be asked any more; why.
async fn follow(socket: &Path, state: &watch::Sender<State>) -> &'static str {
    const SLOW: &str = "it does not answer";
    let connecting = WorkloadApiClient::connect(Endpoint::Unix(socket.to_path_buf()));
    let client = match timeout(ANSWER, connecting).await {
        Ok(Ok(client)) => client,
        Ok(Err(error)) => return words(&error),
        Err(_elapsed) => return SLOW,
    };
    let mut stream = match timeout(ANSWER, client.stream_jwt_bundles()).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return words(&error),
        Err(_elapsed) => return SLOW,
    };
    let mut silence = ANSWER;
    loop {
        let next = match timeout(silence, stream.next()).await {
            Ok(next) => next,
            // The first message comes at once; after it silence is as it should be, unless nobody is there.
            Err(_elapsed) if silence == ANSWER => return SLOW,
            Err(_elapsed) => match timeout(ANSWER, client.fetch_jwt_bundles()).await {
                Ok(bundles) => Some(bundles),
                Err(_elapsed) => return SLOW,
            },
        };
        match next {
            Some(Ok(bundles)) => take(&bundles, state),
            Some(Err(error)) => return words(&error),
            None => return "it ended the stream",
        }
        silence = SILENCE;
    }
}

fn take(bundles: &JwtBundleSet, state: &watch::Sender<State>) {
    let of = |(domain, bundle): (&spiffe::TrustDomain, &Arc<spiffe::JwtBundle>)| {
        let keys = bundle.jwt_authorities().map(|authority| authority.jwk_json());
        // The library made these bytes from JSON.
        let keys: Vec<Value> = keys.filter_map(|jwk| serde_json::from_slice(jwk).ok()).collect();
        (domain.as_str().to_owned(), json!({ "keys": keys }))
    };
    let bundles: BTreeMap<String, Value> = bundles.iter().map(of).collect();
    if !matches!(*state.borrow(), State::Fresh(_)) {
        tracing::info!(
            trust_domains = bundles.len(),
            "the agent of the Workload API gives trust bundles"
        );
    }
    state.send_replace(State::Fresh(Arc::new(bundles)));
}

/// What went wrong, in our words: the agent's could quote anything.
pub(crate) fn words(error: &WorkloadApiError) -> &'static str {
    if matches!(error, WorkloadApiError::NoIdentityIssued | WorkloadApiError::PermissionDenied(_)) {
        "it gives this process nothing: is it registered there?"
    } else if error.is_invalid_argument() {
        "it does not take the request: is it a Workload API?"
    } else if matches!(error, WorkloadApiError::Transport(_)) {
        "nobody answers at the socket"
    } else {
        "its answer is none of the Workload API's"
    }
}

#[cfg(test)]
mod tests {
    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;
    use crate::{
        config::{Algorithm, IdentityConfig, TrustDomainConfig},
        error::IdentityError,
        key_cache::KeyCache,
    };

    /// An agent that says what the test says, and the keys that come of it.
    fn agent() -> (watch::Sender<State>, Arc<KeyCache>) {
        let (says, state) = watch::channel(State::New);
        let task = tokio::spawn(std::future::pending::<()>()).abort_handle();
        let domain = json!({
            "trust_domain": "prod.example", "tenant": "acme", "audiences": ["placet"],
            "bundle": "workload_api", "workloads": { "below": "/agent/" },
        });
        let domain: TrustDomainConfig = serde_json::from_value(domain).unwrap();
        let api = Arc::new(WorkloadApi { state, task });
        let cache = KeyCache::of_agent(
            &domain.as_issuer(),
            &api,
            domain.trust_domain.as_str(),
            &IdentityConfig::default(),
        );
        (says, Arc::new(cache))
    }

    fn key(kid: &str, purpose: Option<&str>) -> Value {
        let key = p256::SecretKey::from_slice(&[kid.len().try_into().unwrap(); 32]).unwrap();
        let point = p256::ecdsa::VerifyingKey::from(key.public_key()).to_encoded_point(false);
        let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        let mut jwk = json!({
            "kty": "EC", "crv": "P-256", "kid": kid, "x": text(point.x().unwrap()), "y": text(point.y().unwrap()),
        });
        if let Some(purpose) = purpose {
            jwk["use"] = json!(purpose);
        }
        jwk
    }

    fn fresh(domain: &str, keys: &[Value]) -> State {
        State::Fresh(Arc::new(BTreeMap::from([(domain.to_owned(), json!({ "keys": keys }))])))
    }

    async fn found(cache: &Arc<KeyCache>, kid: &str) -> Result<(), IdentityError> {
        cache.find(kid, Algorithm::Es256).await.map(|_| ())
    }

    fn is_unavailable(answer: &Result<(), IdentityError>) -> bool {
        matches!(answer, Err(IdentityError::KeysUnavailable { .. }))
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_agent_said_last_serves_on_for_an_hour_and_no_longer() {
        let (says, cache) = agent();
        assert!(is_unavailable(&found(&cache, "one").await), "it has said nothing yet");
        says.send_replace(fresh("prod.example", &[key("one", None)]));
        tokio::time::advance(Duration::from_secs(1)).await;
        found(&cache, "one").await.unwrap();
        says.send_replace(State::Lost("gone"));
        tokio::time::advance(Duration::from_secs(3_500)).await;
        found(&cache, "one").await.unwrap();
        let other = found(&cache, "other").await;
        assert!(is_unavailable(&other), "the key may be a new one: {other:?}");
        tokio::time::advance(Duration::from_secs(200)).await;
        assert!(is_unavailable(&found(&cache, "one").await), "for ever");
        says.send_replace(fresh("prod.example", &[key("other", None)]));
        tokio::time::advance(Duration::from_secs(1)).await;
        found(&cache, "other").await.unwrap();
        assert!(matches!(found(&cache, "one").await, Err(IdentityError::UnknownKey { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trust_domain_that_the_agent_does_not_name_any_more_is_closed_at_once() {
        let (says, cache) = agent();
        says.send_replace(fresh("prod.example", &[key("one", None)]));
        found(&cache, "one").await.unwrap();
        says.send_replace(fresh("other.example", &[key("one", None)]));
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert!(is_unavailable(&found(&cache, "one").await));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_the_workload_api_need_not_say_what_they_are_for_and_must_not_say_something_else()
     {
        let (says, cache) = agent();
        let keys =
            [key("one", None), key("other", Some("jwt-svid")), key("third-key", Some("x509-svid"))];
        says.send_replace(fresh("prod.example", &keys));
        found(&cache, "one").await.unwrap();
        found(&cache, "other").await.unwrap();
        assert!(matches!(found(&cache, "third-key").await, Err(IdentityError::UnknownKey { .. })));
    }
}
