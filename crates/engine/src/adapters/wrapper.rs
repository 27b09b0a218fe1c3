//! The wrapper around every connection: secrets that a place was given are removed from what it returns, and errors are injected where
//! its contract says so.
//!
//! Owns the removal of secrets from answers, errors and probes before any of it is recorded (I15, TM-19), and what is done after it:
//! long reasons are cut, and results are garbled. A tool that echoes its headers or its environment is common; what it echoes would stay
//! in the ledger for as long as results are kept. [`crate::adapters::known_secrets`] knows which secrets those are, including those that
//! the same place was given by other contracts, in other calls and for other users. Not here: secrets that no target at this place ever
//! had, and which errors are injected ([`crate::adapters::error_injection`]).

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use placet_adapter::{
    adapter::{
        Adapter, Conditions, Connector, Credential, Dispatch, Inquiry, PrepareRequest, SessionLease,
    },
    outcome::{AdapterError, Answer, Outcome, Probe, Rejection, cut, shortened},
    scrub::{REMOVED, Scrub},
};
use placet_types::contract::{
    Contract, LiveTool,
    error_injection::{ErrorInjectionFile, InjectedErrorFile},
    feature::Listing,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;

use crate::{
    adapters::{error_injection, known_secrets::Given},
    result::weight,
};

/// Longer answers are searched on a thread that may block.
const INLINE_BYTES_MAX: usize = 64 * 1024;
/// The longest title of a source.
const TITLE_BYTES_MAX: usize = 512;

/// A connector whose connections redact secrets, and fail as their contract says.
#[derive(Debug)]
pub(crate) struct WrappingConnector {
    inner: Arc<dyn Connector>,
    given: Arc<Given>,
    draws: Arc<AtomicU64>,
}

impl WrappingConnector {
    /// A connector for the place that was given `given`.
    pub(crate) fn new(inner: Arc<dyn Connector>, given: Arc<Given>) -> Self {
        Self { inner, given, draws: Arc::default() }
    }
}

#[async_trait]
impl Connector for WrappingConnector {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        // Before and after: a child that is started in between may have been given either value.
        self.given.look();
        let injected = contract.error_injection.clone();
        let inner = self.inner.connect(contract).await;
        let given = Arc::clone(&self.given);
        match inner {
            Ok(inner) => {
                given.look();
                let draws = Arc::clone(&self.draws);
                Ok(Box::new(WrappedAdapter { inner, given, injected, draws }))
            }
            Err(error) => Err(given.scrub().error(error).shortened()),
        }
    }
}

/// A connection to a place that may have been handed secrets.
#[derive(Debug)]
struct WrappedAdapter {
    inner: Box<dyn Adapter>,
    given: Arc<Given>,
    injected: Option<ErrorInjectionFile>,
    /// The calls of all connections of the connector, by which errors are drawn.
    draws: Arc<AtomicU64>,
}

impl WrappedAdapter {
    /// Notes a credential to remove from what the place returns.
    fn hand(&self, credential: Option<&Credential>) {
        if let Some(one) = credential {
            let value = one.value.expose_secret();
            let value = value.strip_prefix("Bearer ").unwrap_or(value);
            self.given.hand(&SecretString::from(value), None);
        }
    }

    /// The error to inject into the next call, if there is one.
    fn drawn(&self) -> Option<&InjectedErrorFile> {
        let injected = self.injected.as_ref()?;
        error_injection::drawn(injected, self.draws.fetch_add(1, Ordering::Relaxed))
    }
}

#[async_trait]
impl Adapter for WrappedAdapter {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        let found = self.inner.discover().await;
        found.map_err(|error| self.given.scrub().error(error).shortened())
    }

    async fn list(&self, what: Listing) -> Result<Vec<Value>, AdapterError> {
        self.given.look();
        match self.inner.list(what).await {
            Ok(items) => {
                let said = Answer { output: Value::Array(items), ..Answer::default() };
                let searched = answer(self.given.scrub(), said).await.output;
                // If the search failed, it is no longer a list.
                let Value::Array(items) = searched else { return Ok(Vec::new()) };
                Ok(items)
            }
            Err(error) => Err(self.given.scrub().error(error).shortened()),
        }
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    async fn prepare(&self, approach: PrepareRequest<'_>) -> Result<SessionLease, AdapterError> {
        self.given.look();
        self.hand(approach.credential);
        let ready = self.inner.prepare(approach).await;
        ready.map_err(|error| self.given.scrub().error(error).shortened())
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        // Before and after: a secret may be rotated during the call.
        self.given.look();
        self.hand(conditions.credential.as_ref());
        let error = self.drawn();
        if let Some(error) = error {
            tracing::info!(capability = %dispatch.capability(), kind = ?error.kind, "an error is injected");
        }
        let outcome = match error.and_then(error_injection::without_tool) {
            Some(outcome) => outcome,
            None => self.inner.invoke(dispatch, conditions).await,
        };
        let outcome = redacted(self.given.scrub(), outcome).await;
        // Only then: a secret that is cut would not be recognized.
        if error.is_some() { error_injection::garbled(outcome) } else { outcome }
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        self.given.look();
        match self.inner.probe(inquiry).await {
            Probe::Committed(said) => Probe::Committed(answer(self.given.scrub(), said).await),
            other @ (Probe::NotFound | Probe::Unknown) => other,
        }
    }

    fn is_alive(&self) -> bool {
        self.inner.is_alive()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// An outcome without secrets.
async fn redacted(scrub: Arc<Scrub>, outcome: Outcome) -> Outcome {
    match outcome {
        Outcome::Done(said) => Outcome::Done(answer(scrub, said).await),
        Outcome::Failed(said) => Outcome::Failed(answer(scrub, said).await),
        Outcome::NotExecuted(error) => Outcome::NotExecuted(scrub.error(error).shortened()),
        Outcome::Rejected(Rejection { answer, error }) => {
            let error = scrub.error(error).shortened();
            Outcome::Rejected(Rejection { answer, error })
        }
        Outcome::Unknown(reason) => Outcome::Unknown(shortened(scrub.text(reason))),
    }
}

/// An answer without secrets. Searching a long one would block other tasks, so it runs on a blocking thread.
async fn answer(scrub: Arc<Scrub>, said: Answer) -> Answer {
    if scrub.is_empty() || weight(&said.output) <= INLINE_BYTES_MAX {
        return removed(&scrub, said);
    }
    let searched = tokio::task::spawn_blocking(move || removed(&scrub, said)).await;
    // If the search failed, nothing of the answer is returned.
    searched.unwrap_or_else(|_failed| Answer {
        output: Value::String(REMOVED.to_owned()),
        ..Answer::default()
    })
}

fn removed(scrub: &Scrub, said: Answer) -> Answer {
    let mut said = scrub.answer(said);
    for citation in &mut said.citations {
        citation.title = citation.title.take().map(|title| cut(title, TITLE_BYTES_MAX));
    }
    said
}

#[cfg(test)]
mod tests;
