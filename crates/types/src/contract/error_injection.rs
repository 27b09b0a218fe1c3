//! Errors that an adapter makes up, so that agents can be tested with tools that fail (EN-04).
//!
//! Owns the form and its rule: only in the environment `test`. Injects nothing.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ensure;
use crate::ids::EnvironmentName;

/// The one environment in which errors may be made up.
const ENVIRONMENT: &str = "test";
const ERRORS_MAX: usize = 16;
const MESSAGE_BYTES_MAX: usize = 512;

/// Which errors are injected, and how often.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ErrorInjectionFile {
    /// The seed of the random numbers. The same seed and the same calls in the same order get the same errors.
    #[serde(default)]
    pub seed: u64,
    /// The errors. Each is drawn independently for every call; if several are drawn, one of them is used at random.
    #[schemars(length(min = 1, max = 16))]
    pub errors: Vec<InjectedErrorFile>,
}

/// An injected error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InjectedErrorFile {
    /// The kind of error.
    #[serde(rename = "type")]
    pub kind: InjectedErrorKind,
    /// The probability of the error in one call, from 0 to 1.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub probability: f64,
    /// The message for the caller. Not for `unparseable_result`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A kind of injected error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum InjectedErrorKind {
    /// The tool is not called, and the call is refused with the message.
    NetworkError,
    /// The tool is called, and its result is garbled. The call succeeds.
    UnparseableResult,
    /// The tool is not called, and the call is refused as one whose result would not fit its schema.
    SchemaViolation,
}

impl ErrorInjectionFile {
    /// Checks it for a contract of this environment.
    pub(super) fn check(&self, environment: &EnvironmentName) -> Result<(), String> {
        let is_test = environment.as_str() == ENVIRONMENT;
        ensure(is_test, "errors are injected in the environment `test` only")?;
        ensure((1..=ERRORS_MAX).contains(&self.errors.len()), "there must be 1 to 16 errors")?;
        let is_share = |error: &InjectedErrorFile| (0.0..=1.0).contains(&error.probability);
        ensure(self.errors.iter().all(is_share), "a probability must be 0 to 1")?;
        let mut messages = self.errors.iter().filter_map(|error| error.message.as_ref());
        ensure(
            messages.all(|message| message.len() <= MESSAGE_BYTES_MAX),
            "a message must be at most 512 bytes",
        )
    }
}
