//! Trust bundles from the local agent: the SPIFFE Workload API, over a Unix socket.
//!
//! Owns the request. Does not verify anything with the bundles and stores none: their freshness is the cache's concern. The library opens
//! the socket itself: it is not a network socket, leads only to the path in the configuration, and is the exception to the rule about
//! egress. Invariant: no error contains text from the agent.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::{Value, json};
use spiffe::{JwtBundleSet, WorkloadApiClient, WorkloadApiError, transport::Endpoint};
use tokio::time::timeout;

use crate::error::KeyError;

/// How long the agent may take to answer.
const ANSWER: Duration = Duration::from_secs(2);

/// The bundles of an agent, as key sets by trust domain, or why it gives none.
type Bundles = Result<BTreeMap<String, Value>, &'static str>;

/// An agent that can be asked for its bundles.
#[derive(Debug)]
pub(crate) struct WorkloadApi {
    socket: PathBuf,
    /// The response in a test.
    #[cfg(test)]
    told: parking_lot::Mutex<Option<Bundles>>,
}

impl WorkloadApi {
    pub(crate) fn at(socket: &Path) -> Self {
        Self {
            socket: socket.to_path_buf(),
            #[cfg(test)]
            told: parking_lot::Mutex::default(),
        }
    }

    /// The trust domain's current bundle from the agent, as a key set.
    pub(crate) async fn bundle(&self, trust_domain: &str) -> Result<Value, KeyError> {
        let bundles = self.bundles().await.map_err(|problem| {
            KeyError::Unavailable(format!(
                "the agent of the Workload API has no trust bundle for us: {problem}"
            ))
        })?;
        let unknown = || KeyError::NotInBundles(trust_domain.to_owned());
        bundles.get(trust_domain).cloned().ok_or_else(unknown)
    }

    async fn bundles(&self) -> Bundles {
        #[cfg(test)]
        if let Some(told) = &*self.told.lock() {
            return told.clone();
        }
        let asking = async {
            let client = WorkloadApiClient::connect(Endpoint::Unix(self.socket.clone())).await?;
            client.fetch_jwt_bundles().await
        };
        let bundles = timeout(ANSWER, asking).await.map_err(|_elapsed| "it does not answer")?;
        bundles.map(|bundles| key_sets(&bundles)).map_err(|error| words(&error))
    }
}

fn key_sets(bundles: &JwtBundleSet) -> BTreeMap<String, Value> {
    let of = |(domain, bundle): (&spiffe::TrustDomain, &std::sync::Arc<spiffe::JwtBundle>)| {
        let keys = bundle.jwt_authorities().map(|authority| authority.jwk_json());
        // The library made these bytes from JSON.
        let keys: Vec<Value> = keys.filter_map(|jwk| serde_json::from_slice(jwk).ok()).collect();
        (domain.as_str().to_owned(), json!({ "keys": keys }))
    };
    bundles.iter().map(of).collect()
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
    use std::sync::Arc;

    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;
    use crate::{
        config::{Algorithm, IdentityConfig, TrustDomainConfig},
        error::IdentityError,
        key_cache::KeyCache,
    };

    /// An agent with scripted responses, and the cache of its keys.
    fn agent() -> (Arc<WorkloadApi>, Arc<KeyCache>) {
        let domain = json!({
            "trust_domain": "prod.example", "tenant": "acme", "audiences": ["placet"],
            "bundle": "workload_api", "workloads": { "below": "/agent/" },
        });
        let domain: TrustDomainConfig = serde_json::from_value(domain).unwrap();
        let api = Arc::new(WorkloadApi::at(Path::new("/none")));
        says(&api, Err("it has not answered yet"));
        let cache = KeyCache::of_agent(
            &domain.as_issuer(),
            &api,
            domain.trust_domain.as_str(),
            &IdentityConfig::default(),
        );
        (api, Arc::new(cache))
    }

    fn says(api: &WorkloadApi, bundles: Bundles) {
        *api.told.lock() = Some(bundles);
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

    fn fresh(domain: &str, keys: &[Value]) -> Bundles {
        Ok(BTreeMap::from([(domain.to_owned(), json!({ "keys": keys }))]))
    }

    async fn found(cache: &Arc<KeyCache>, kid: &str) -> Result<(), IdentityError> {
        cache.find(kid, Algorithm::Es256).await.map(|_| ())
    }

    fn is_unavailable(answer: &Result<(), IdentityError>) -> bool {
        matches!(answer, Err(IdentityError::KeysUnavailable(_)))
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_agent_said_last_serves_on_for_an_hour_and_no_longer() {
        let (api, cache) = agent();
        assert!(is_unavailable(&found(&cache, "one").await), "it has said nothing yet");
        says(&api, fresh("prod.example", &[key("one", None)]));
        tokio::time::advance(Duration::from_secs(1)).await;
        found(&cache, "one").await.unwrap();
        says(&api, Err("gone"));
        tokio::time::advance(Duration::from_secs(3_500)).await;
        found(&cache, "one").await.unwrap();
        let other = found(&cache, "other").await;
        assert!(is_unavailable(&other), "the key may be a new one: {other:?}");
        tokio::time::advance(Duration::from_secs(200)).await;
        assert!(is_unavailable(&found(&cache, "one").await), "for ever");
        says(&api, fresh("prod.example", &[key("other", None)]));
        tokio::time::advance(Duration::from_secs(1)).await;
        found(&cache, "other").await.unwrap();
        assert!(matches!(found(&cache, "one").await, Err(IdentityError::UnknownKey { .. })));
    }

    #[tokio::test(start_paused = true)]
    async fn a_trust_domain_that_the_agent_does_not_name_any_more_is_closed_at_once() {
        let (api, cache) = agent();
        says(&api, fresh("prod.example", &[key("one", None)]));
        found(&cache, "one").await.unwrap();
        says(&api, fresh("other.example", &[key("one", None)]));
        tokio::time::advance(Duration::from_millis(1_001)).await;
        assert!(is_unavailable(&found(&cache, "one").await));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_of_the_workload_api_need_not_say_what_they_are_for_and_must_not_say_something_else()
     {
        let (api, cache) = agent();
        let keys =
            [key("one", None), key("other", Some("jwt-svid")), key("third-key", Some("x509-svid"))];
        says(&api, fresh("prod.example", &keys));
        found(&cache, "one").await.unwrap();
        found(&cache, "other").await.unwrap();
        assert!(matches!(found(&cache, "third-key").await, Err(IdentityError::UnknownKey { .. })));
    }
}
