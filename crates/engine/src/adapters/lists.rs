//! What an endpoint lists besides tools, remembered for a moment.
//!
//! Owns that cache and the time that a listing may take. Invariant: however often callers ask, the endpoint is asked once, even one that
//! does not answer.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::{sync::Mutex, time::Instant};

use placet_types::{contract::feature::Listing, error::Refusal};

/// How long a list is valid, and how long after a failure the endpoint is not asked again.
const KEPT: Duration = Duration::from_secs(5);
/// How long listing may take.
pub(super) const LISTED_WITHIN: Duration = Duration::from_secs(5);

/// A list, or why there is none.
pub(super) type Listed = Result<Arc<Vec<Value>>, Refusal>;

/// The lists of one endpoint.
#[derive(Debug, Default)]
pub(super) struct Lists {
    resources: Mutex<Option<Known>>,
    templates: Mutex<Option<Known>>,
    prompts: Mutex<Option<Known>>,
}

#[derive(Debug)]
struct Known {
    at: Instant,
    listed: Listed,
}

impl Lists {
    /// The remembered list, else the one from `asking`.
    pub(super) async fn get(&self, what: Listing, asking: impl Future<Output = Listed>) -> Listed {
        let place = match what {
            Listing::Resources => &self.resources,
            Listing::Templates => &self.templates,
            Listing::Prompts => &self.prompts,
        };
        let mut known = place.lock().await;
        if let Some(known) = known.as_ref().filter(|known| known.at.elapsed() < KEPT) {
            return known.listed.clone();
        }
        let listed = asking.await;
        *known = Some(Known { at: Instant::now(), listed: listed.clone() });
        listed
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::Arc,
        sync::atomic::{AtomicU32, Ordering},
        time::Duration,
    };

    use placet_types::{
        contract::feature::Listing,
        error::{ErrorCode, Refusal},
    };

    use super::Lists;

    #[tokio::test(start_paused = true)]
    async fn a_list_that_cannot_be_had_is_not_asked_for_at_once_again() {
        let (lists, asked) = (Lists::default(), AtomicU32::new(0));
        let get = |what| {
            lists.get(what, async {
                asked.fetch_add(1, Ordering::SeqCst);
                Err(Refusal::new(ErrorCode::AdapterUnavailable, "gone"))
            })
        };
        get(Listing::Prompts).await.unwrap_err();
        get(Listing::Prompts).await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        get(Listing::Templates).await.unwrap_err();
        assert_eq!(asked.load(Ordering::SeqCst), 2, "another list is another question");
        tokio::time::advance(Duration::from_secs(6)).await;
        let fresh = lists.get(Listing::Prompts, async { Ok(Arc::new(Vec::new())) }).await;
        assert!(fresh.is_ok());
    }
}
