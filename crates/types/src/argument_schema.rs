//! The JSON Schema of a capability's arguments: compiled once, applied to every call.
//!
//! Owns which schemas are accepted at all, the validation of arguments with their defaults, the problems reported to
//! callers, and which arguments are hidden from records. It does not know tools or contracts.
//!
//! Invariants: a schema comes from a server that is not trusted, so compiling and validating never leave the process and
//! never cost more than a fixed amount; a schema that cannot be checked in full is refused, never checked in part;
//! problems are worded here and never contain a value of an argument.

mod cost;
mod defaults;
mod edges;
mod numbers;
mod problem;
mod redaction;
mod survey;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ValidationError, Validator};
use serde_json::{Value, json};

use self::cost::cost;
pub use self::numbers::NUMBER_KEYWORD;
pub(crate) use self::survey::is_sensitive;
use crate::error::Problem;
use crate::json::{self, JsonError, JsonLimits, place};

/// A larger schema is not accepted. A tool's schema usually has a few kilobytes.
const SCHEMA_LIMITS: JsonLimits = JsonLimits {
    bytes_max: 256 * 1024,
    depth_max: 64,
    string_bytes_max: 64 * 1024,
    members_max: 4096,
    nodes_max: 50_000,
};

/// The maximum size of one compiled pattern.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// The maximum cost of a validation that collects problems, which copies values.
const EXPLAINED_COST_MAX: u64 = 200_000;

/// Why a schema is not accepted; its tool is quarantined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}: {problem}", if pointer.is_empty() { "the schema".to_owned() } else { place(pointer) })]
pub struct SchemaError {
    /// The part that is wrong, as RFC 6901 pointer.
    pointer: String,
    /// What is wrong with it.
    problem: String,
}

impl SchemaError {
    fn at(pointer: &str, problem: impl Into<String>) -> Self {
        Self { pointer: pointer.to_owned(), problem: problem.into() }
    }
}

impl From<JsonError> for SchemaError {
    fn from(error: JsonError) -> Self {
        Self { pointer: error.pointer, problem: error.problem }
    }
}

impl From<ValidationError<'_>> for SchemaError {
    fn from(error: ValidationError<'_>) -> Self {
        let pointer = error.instance_path().as_str();
        if matches!(error.kind(), ValidationErrorKind::Format { format } if format == "regex") {
            let problem = "cannot be matched in linear time (no lookaround, no backreferences)";
            return Self::at(pointer, problem);
        }
        Self::at(pointer, problem::phrase(&error))
    }
}

/// A compiled schema for the arguments of one capability.
#[derive(Clone)]
pub struct ArgumentSchema {
    inner: Arc<Compiled>,
    /// An additional schema that arguments have to pass; of its other content only the sensitive marks are used.
    also: Option<Arc<Compiled>>,
}

struct Compiled {
    source: Value,
    marks_sensitive: bool,
    validator: Validator,
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").finish_non_exhaustive()
    }
}

impl ArgumentSchema {
    /// Compiles a schema: 2020-12, or what its `$schema` says. Formats are asserted.
    ///
    /// # Errors
    /// If the schema is wrong, refers outside itself, or cannot be checked in full at a bounded price.
    pub fn compile(schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { inner: Arc::new(Compiled::of(schema)?), also: None })
    }

    /// Adds a schema that arguments have to pass as well. Its defaults are not filled in; its sensitive marks count.
    ///
    /// # Errors
    /// As for [`Self::compile`].
    pub fn and(self, schema: &Value) -> Result<Self, SchemaError> {
        Ok(Self { also: Some(Arc::new(Compiled::of(schema)?)), ..self })
    }

    /// Validates strictly parsed arguments in full, and returns them with the schema's defaults filled in. A required argument is required
    /// even if it has a default.
    ///
    /// Defaults are those of absent object properties, nested ones too; a default that would make the arguments invalid is
    /// left out.
    ///
    /// # Errors
    /// What is wrong and where, at most twenty problems, without any value of the arguments.
    pub fn validate(&self, args: &Value) -> Result<Value, Vec<Problem>> {
        if !args.is_object() {
            return Err(problem::not_an_object(args));
        }
        let schemas = || std::iter::once(&self.inner).chain(&self.also);
        schemas().try_for_each(|schema| self.check(schema, args))?;
        let permits = |args: &Value| schemas().all(|schema| schema.permits(args));
        Ok(defaults::fill(&self.inner.source, args, permits))
    }

    fn check(&self, schema: &Compiled, args: &Value) -> Result<(), Vec<Problem>> {
        let Compiled { source, validator, .. } = schema;
        let Some(cost) = cost(source, args) else {
            return Err(problem::too_complex());
        };
        if validator.is_valid(args) {
            return Ok(());
        }
        if cost > EXPLAINED_COST_MAX {
            return Err(problem::unexplained());
        }
        let hidden = self.sensitive_pointers(args);
        Err(problem::problems(source, validator, args, &hidden))
    }

    /// Where these arguments hold what the schema marks with `"x-sensitive": true` or `"format": "password"`, as RFC 6901
    /// pointers. The empty pointer stands for all of them.
    ///
    /// A mark counts in every branch of the schema, also in those that these arguments do not satisfy.
    pub fn sensitive_pointers(&self, args: &Value) -> BTreeSet<String> {
        let schemas = std::iter::once(&self.inner).chain(&self.also);
        schemas
            .filter(|schema| schema.marks_sensitive)
            .flat_map(|schema| redaction::sensitive_pointers(&schema.source, args))
            .collect()
    }

    /// The arguments with every sensitive value replaced by `[sensitive]`.
    pub fn redact(&self, args: &Value) -> Value {
        redaction::redact(args, &self.sensitive_pointers(args))
    }
}

impl Compiled {
    fn of(schema: &Value) -> Result<Self, SchemaError> {
        let source = json::check_value(schema, &SCHEMA_LIMITS)?;
        let marks_sensitive = survey::survey(&source)?;
        if cost(&source, &json!({})).is_none() {
            return Err(SchemaError::at(
                "",
                "never ends to check, or is nested too deeply by its references",
            ));
        }
        let validator = jsonschema::options()
            // The survey has refused every reference that leaves the schema; this is the second lock.
            .offline()
            .should_validate_formats(true)
            .with_keyword(NUMBER_KEYWORD, numbers::keyword)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&source)?;
        Ok(Self { source, marks_sensitive, validator })
    }

    /// Whether arguments pass, at a bounded price.
    fn permits(&self, args: &Value) -> bool {
        cost(&self.source, args).is_some() && self.validator.is_valid(args)
    }
}
