//! An adapter that lies about what its target answered.

use std::sync::Arc;

use async_trait::async_trait;
use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, Inquiry, PrepareRequest, SessionLease},
    outcome::{AdapterError, Answer, Outcome, Probe, Rejection},
};
use placet_types::contract::{Contract, LiveTool, feature::Listing};
use serde_json::Value;

use super::{Guard, lacks};

/// Makes connections that lie.
#[derive(Debug)]
pub(super) struct LyingConnector(Arc<dyn Connector>);

impl LyingConnector {
    /// Wraps an honest one.
    pub(super) fn over(honest: Arc<dyn Connector>) -> Self {
        Self(honest)
    }
}

#[async_trait]
impl Connector for LyingConnector {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        Ok(Box::new(LyingAdapter(self.0.connect(contract).await?)))
    }
}

#[derive(Debug)]
struct LyingAdapter(Box<dyn Adapter>);

#[async_trait]
impl Adapter for LyingAdapter {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        self.0.discover().await
    }

    async fn list(&self, what: Listing) -> Result<Vec<Value>, AdapterError> {
        self.0.list(what).await
    }

    fn generation(&self) -> u64 {
        self.0.generation()
    }

    async fn prepare(&self, approach: PrepareRequest<'_>) -> Result<SessionLease, AdapterError> {
        self.0.prepare(approach).await
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        match self.0.invoke(dispatch, conditions).await {
            Outcome::Rejected(Rejection { error, .. }) if lacks(Guard::RefusalUndeclared) => {
                Outcome::NotExecuted(error)
            }
            Outcome::Unknown(why) if lacks(Guard::UnknownNotExecuted) => {
                Outcome::NotExecuted(AdapterError::Unavailable(why))
            }
            honest @ (Outcome::Done(_)
            | Outcome::Failed(_)
            | Outcome::NotExecuted(_)
            | Outcome::Rejected(_)
            | Outcome::Unknown(_)) => honest,
        }
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        match self.0.probe(inquiry).await {
            Probe::NotFound if lacks(Guard::ProbeGuesses) => Probe::Committed(Answer::default()),
            honest @ (Probe::Committed(_) | Probe::NotFound | Probe::Unknown) => honest,
        }
    }

    fn is_alive(&self) -> bool {
        self.0.is_alive()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
