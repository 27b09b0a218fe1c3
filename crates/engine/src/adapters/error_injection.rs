//! Errors that a contract of the environment `test` makes an adapter simulate (EN-04).
//!
//! Owns the draw and the simulated outcomes; [`crate::adapters::wrapper`] uses them. Invariant: errors are drawn independently, and of
//! several that are drawn one is chosen at random, so that the probabilities of a contract are those of its calls.

use placet_adapter::outcome::{AdapterError, Answer, Outcome, cut};
use placet_types::contract::error_injection::{
    ErrorInjectionFile, InjectedErrorFile, InjectedErrorKind,
};
use rand::{Rng as _, SeedableRng as _, rngs::StdRng, seq::IndexedRandom as _};
use serde_json::json;

/// How much of a garbled result is kept.
const GARBLED_BYTES_MAX: usize = 64;

/// The outcome of a call with this error, where its tool is not called.
pub(crate) fn without_tool(error: &InjectedErrorFile) -> Option<Outcome> {
    match error.kind {
        InjectedErrorKind::NetworkError => Some(not_asked(error, "the network failed")),
        InjectedErrorKind::SchemaViolation => {
            Some(not_asked(error, "the result does not fit its schema"))
        }
        InjectedErrorKind::UnparseableResult => None,
    }
}

/// The outcome of a call that did not reach its tool. It is a refusal, because a target that is unavailable is tried again, and another
/// attempt would hide the error.
fn not_asked(error: &InjectedErrorFile, otherwise: &str) -> Outcome {
    let message = error.message.as_deref().unwrap_or(otherwise);
    Outcome::NotExecuted(AdapterError::Refused(message.to_owned()))
}

/// The result with its structure destroyed. An outcome without a result stays as it is.
pub(crate) fn garbled(outcome: Outcome) -> Outcome {
    let Outcome::Done(answer) = outcome else { return outcome };
    let structured = answer.output.get("structured").unwrap_or(&answer.output).to_string();
    let text = format!("<garbled: {}>", cut(structured, GARBLED_BYTES_MAX));
    let output = json!({ "content": [{ "type": "text", "text": text }] });
    Outcome::Done(Answer { output, ..answer })
}

/// The error of the call with this number, if there is one.
pub(crate) fn drawn(injected: &ErrorInjectionFile, call: u64) -> Option<&InjectedErrorFile> {
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
