//! Errors that a contract of the environment `test` makes an adapter simulate (EN-04).
//!
//! Owns the draw and the simulated outcomes. Invariant: errors are drawn independently, and of several that are drawn one is chosen at
//! random, so that the probabilities of a contract are those of its calls.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use async_trait::async_trait;
use placet_adapter::{
    adapter::{Adapter, Conditions, Connector, Dispatch, Inquiry, PrepareRequest, SessionLease},
    outcome::{AdapterError, Answer, Outcome, Probe, cut},
};
use placet_types::contract::{
    Contract, LiveTool,
    error_injection::{ErrorInjectionFile, InjectedErrorFile, InjectedErrorKind},
    feature::Listing,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::{Value, json};

/// How much of a garbled result is kept.
const GARBLED_BYTES_MAX: usize = 64;

/// A connector whose connections fail now and then.
#[derive(Debug)]
pub(crate) struct FailingConnector {
    inner: Arc<dyn Connector>,
    draws: Arc<AtomicU64>,
}

impl FailingConnector {
    /// One around `inner`.
    pub(crate) fn new(inner: Arc<dyn Connector>) -> Self {
        Self { inner, draws: Arc::default() }
    }
}

#[async_trait]
impl Connector for FailingConnector {
    async fn connect(&self, contract: Arc<Contract>) -> Result<Box<dyn Adapter>, AdapterError> {
        let injected = contract.error_injection.clone();
        let inner = self.inner.connect(contract).await?;
        Ok(match injected {
            Some(injected) => {
                Box::new(FailingAdapter { inner, injected, draws: Arc::clone(&self.draws) })
            }
            None => inner,
        })
    }
}

#[derive(Debug)]
struct FailingAdapter {
    inner: Box<dyn Adapter>,
    injected: ErrorInjectionFile,
    draws: Arc<AtomicU64>,
}

#[async_trait]
impl Adapter for FailingAdapter {
    async fn discover(&self) -> Result<Vec<LiveTool>, AdapterError> {
        self.inner.discover().await
    }

    async fn list(&self, what: Listing) -> Result<Vec<Value>, AdapterError> {
        self.inner.list(what).await
    }

    fn generation(&self) -> u64 {
        self.inner.generation()
    }

    async fn prepare(&self, approach: PrepareRequest<'_>) -> Result<SessionLease, AdapterError> {
        self.inner.prepare(approach).await
    }

    async fn invoke(&self, dispatch: Dispatch, conditions: Conditions) -> Outcome {
        let call = self.draws.fetch_add(1, Ordering::Relaxed);
        let Some(error) = drawn(&self.injected, call) else {
            return self.inner.invoke(dispatch, conditions).await;
        };
        tracing::info!(capability = %dispatch.capability(), kind = ?error.kind, "an error is injected");
        match error.kind {
            InjectedErrorKind::NetworkError => not_asked(error, "the network failed"),
            InjectedErrorKind::SchemaViolation => {
                not_asked(error, "the result does not fit its schema")
            }
            InjectedErrorKind::UnparseableResult => {
                garbled(self.inner.invoke(dispatch, conditions).await)
            }
        }
    }

    async fn probe(&self, inquiry: &Inquiry) -> Probe {
        self.inner.probe(inquiry).await
    }

    fn is_alive(&self) -> bool {
        self.inner.is_alive()
    }

    async fn close(&self) {
        self.inner.close().await;
    }
}

/// The outcome of a call that did not reach its tool. It is a refusal, because a target that is unavailable is tried again, and another
/// attempt would hide the error.
fn not_asked(error: &InjectedErrorFile, otherwise: &str) -> Outcome {
    let message = error.message.as_deref().unwrap_or(otherwise);
    Outcome::NotExecuted(AdapterError::Refused(message.to_owned()))
}

/// The result with its structure destroyed. An outcome without a result stays as it is.
fn garbled(outcome: Outcome) -> Outcome {
    let Outcome::Done(answer) = outcome else { return outcome };
    let structured = answer.output.get("structured").unwrap_or(&answer.output).to_string();
    let text = format!("<garbled: {}>", cut(structured, GARBLED_BYTES_MAX));
    let output = json!({ "content": [{ "type": "text", "text": text }] });
    Outcome::Done(Answer { output, ..answer })
}

/// The error of the call with this number, if there is one.
fn drawn(injected: &ErrorInjectionFile, call: u64) -> Option<&InjectedErrorFile> {
    // Adjacent seeds give unrelated sequences.
    let mut random = StdRng::seed_from_u64(injected.seed.rotate_left(32) ^ call);
    let errors = injected.errors.iter();
    let fired: Vec<_> = errors.filter(|error| random.random::<f64>() < error.probability).collect();
    fired.choose(&mut random).copied()
}

#[cfg(test)]
mod tests {
    use placet_types::contract::error_injection::{ErrorInjectionFile, InjectedErrorKind};
    use serde_json::{Value, json};

    use placet_adapter::outcome::{AdapterError, Outcome};

    use super::{drawn, not_asked};
    use crate::lifecycle::transitions::Reply;

    fn injected(errors: &Value) -> ErrorInjectionFile {
        serde_json::from_value(json!({ "seed": 7, "errors": errors })).unwrap()
    }

    #[test]
    fn each_error_is_drawn_for_itself_and_one_of_several_is_taken() {
        let both = injected(&json!([
            { "type": "network_error", "probability": 0.5 }, { "type": "schema_violation", "probability": 0.2 },
        ]));
        let kinds = || (0..20_000).map(|call| drawn(&both, call).map(|error| error.kind));
        let share = |wanted| {
            let count = kinds().filter(|kind| *kind == wanted).count();
            u32::try_from(count).map(f64::from).unwrap() / 20_000.0
        };
        // Alone 0.4 and 0.1; both 0.1, of which each is taken half of the time; neither 0.4.
        for (kind, wanted) in [
            (Some(InjectedErrorKind::NetworkError), 0.45),
            (Some(InjectedErrorKind::SchemaViolation), 0.15),
            (None, 0.4),
        ] {
            assert!((share(kind) - wanted).abs() < 0.02, "{kind:?}: {}", share(kind));
        }
        assert!(kinds().eq(kinds()), "the same seed gives the same errors");
    }

    #[test]
    fn what_is_certain_always_happens_and_what_is_impossible_never() {
        let always = injected(&json!([{ "type": "network_error", "probability": 1.0 }]));
        let never = injected(&json!([{ "type": "network_error", "probability": 0.0 }]));
        assert!(
            (0..1_000).all(|call| drawn(&always, call).is_some() && drawn(&never, call).is_none())
        );
    }

    #[test]
    fn a_tool_that_was_not_asked_has_not_executed_and_is_not_retried() {
        let errors =
            json!([{ "type": "network_error", "probability": 1.0, "message": "timed out" }]);
        let outcome = not_asked(&injected(&errors).errors[0], "the network failed");
        assert_eq!(Reply::of(&outcome), Reply::Conclusive);
        let Outcome::NotExecuted(AdapterError::Refused(message)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(message, "timed out");
    }
}
