//! The JSON Schema of a capability's arguments: compiled once, applied to every call.
//!
//! Owns which schemas are accepted at all, the validation of arguments with their defaults, the problems that a caller is
//! told, and which arguments are hidden from records. It does not know tools or contracts.
//!
//! Invariants: a schema comes from a server that is not trusted, so compiling and validating never leave the process and
//! never cost more than a fixed amount; a schema that cannot be checked in full is refused, never checked in part; what a
//! caller is told is made here and never holds a value of an argument.

mod cost;
mod defaults;
mod edges;
mod index;
mod numbers;
mod phrases;
mod problem;
mod redaction;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use jsonschema::error::ValidationErrorKind;
use jsonschema::{PatternOptions, ReferencingError, ValidationError, Validator};
use serde_json::Value;

use self::cost::Cost;
use self::index::SchemaIndex;
pub use self::numbers::NUMBER_KEYWORD;
pub use self::problem::ArgumentProblem;
use crate::digest::Digest;
use crate::json::{self, JsonError, JsonLimits, canonical_digest, clip, place};

/// A schema that is larger is not accepted. A tool's schema has some kilobytes.
const SCHEMA_LIMITS: JsonLimits = JsonLimits {
    bytes_max: 256 * 1024,
    depth_max: 64,
    string_bytes_max: 64 * 1024,
    members_max: 4096,
    nodes_max: 50_000,
};

/// What the program of one compiled pattern may take.
const PATTERN_BYTES_MAX: usize = 256 * 1024;

/// Why a schema is not accepted; its tool is quarantined.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaError {
    /// It is not strict JSON, or too large.
    #[error("the schema is not accepted: {0}")]
    Json(#[from] JsonError),
    /// Its `$schema` names something else than draft 4, 6, 7, 2019-09 or 2020-12.
    #[error("the schema dialect `{dialect}` is not known, use draft 4, 6, 7, 2019-09 or 2020-12")]
    UnknownDialect {
        /// What it names, shortened.
        dialect: String,
    },
    /// It refers to something outside itself.
    #[error("{} refers to `{reference}`, a schema may refer only to itself", part(pointer))]
    ExternalReference {
        /// The schema with the reference.
        pointer: String,
        /// The reference, shortened.
        reference: String,
    },
    /// It refers to something in itself that is not there.
    #[error("{} refers to `{reference}`, which is not in the schema", part(pointer))]
    UnresolvedReference {
        /// The schema with the reference.
        pointer: String,
        /// The reference, shortened.
        reference: String,
    },
    /// It has a keyword that makes references depend on more than the place they lead to.
    #[error(
        "{} has `{keyword}`, which is not supported: refer to parts of the schema as `#/…`",
        part(pointer)
    )]
    Unsupported {
        /// The schema with the keyword.
        pointer: String,
        /// The keyword.
        keyword: &'static str,
    },
    /// It refers to itself for the same value, so that checking would never end.
    #[error("{} refers to itself without looking at a member", part(pointer))]
    EndlessReference {
        /// A schema on the circle.
        pointer: String,
    },
    /// A pattern is wrong, too large, or needs a backtracking engine.
    #[error(
        "the pattern at {} cannot be matched in linear time (no lookaround, no backreferences)",
        part(pointer)
    )]
    Pattern {
        /// The pattern.
        pointer: String,
    },
    /// It could never accept an object, and arguments are one.
    #[error("the schema does not accept objects, but arguments are an object")]
    RootNotObject,
    /// It is more than can be checked safely.
    #[error("the schema has too many {what}, at most {max} are accepted")]
    TooComplex {
        /// Of what.
        what: &'static str,
        /// The limit.
        max: usize,
    },
    /// It is not a schema of its dialect.
    #[error("not a valid schema: {}: {problem}", part(pointer))]
    Invalid {
        /// The part that is wrong.
        pointer: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// A compiled schema for the arguments of one capability.
#[derive(Clone)]
pub struct ArgumentSchema {
    inner: Arc<Compiled>,
    /// A further schema that arguments have to pass; nothing else is taken from it but its sensitive marks.
    also: Option<Arc<Compiled>>,
}

struct Compiled {
    source: Value,
    digest: Digest,
    index: SchemaIndex,
    validator: Validator,
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").field("digest", &self.inner.digest).finish_non_exhaustive()
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
    /// left out, and so are all where a further schema refuses them.
    ///
    /// # Errors
    /// What is wrong and where, at most twenty problems, without any value of the arguments.
    pub fn validate(&self, args: &Value) -> Result<Value, Vec<ArgumentProblem>> {
        if !args.is_object() {
            return Err(vec![ArgumentProblem::not_an_object(args)]);
        }
        self.check(&self.inner, args)?;
        let Compiled { source, index, validator, .. } = self.inner.as_ref();
        let Some(also) = &self.also else {
            return Ok(defaults::fill(index, source, validator, args));
        };
        self.check(also, args)?;
        let filled = defaults::fill(index, source, validator, args);
        Ok(if also.permits(&filled) { filled } else { args.clone() })
    }

    fn check(&self, schema: &Compiled, args: &Value) -> Result<(), Vec<ArgumentProblem>> {
        let Compiled { source, index, validator, .. } = schema;
        let Ok(cost) = Cost::of(index, source, args) else {
            return Err(vec![ArgumentProblem::too_complex()]);
        };
        if validator.is_valid(args) {
            return Ok(());
        }
        if !cost.permits_explanation() {
            return Err(vec![ArgumentProblem::unexplained()]);
        }
        let hidden = self.sensitive_pointers(args);
        Err(problem::problems(source, validator, args, &hidden))
    }

    /// The schema, in strict form.
    pub fn source(&self) -> &Value {
        &self.inner.source
    }

    /// The digest of the schema's canonical bytes.
    pub fn digest(&self) -> Digest {
        self.inner.digest
    }

    /// Where these arguments hold what the schema marks with `"x-sensitive": true` or `"format": "password"`, as RFC 6901
    /// pointers. The empty pointer stands for all of them.
    ///
    /// A mark counts in every branch of the schema, also in those that these arguments do not satisfy.
    pub fn sensitive_pointers(&self, args: &Value) -> BTreeSet<String> {
        let schemas = std::iter::once(&self.inner).chain(&self.also);
        schemas
            .flat_map(|schema| redaction::sensitive_pointers(&schema.index, &schema.source, args))
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
        let index = SchemaIndex::build(&source)?;
        if !index.accepts_objects(&source) {
            return Err(SchemaError::RootNotObject);
        }
        let validator = jsonschema::options()
            // The index has refused every reference that leaves the schema; this is the second lock.
            .offline()
            .should_validate_formats(true)
            .with_keyword(NUMBER_KEYWORD, numbers::keyword)
            .with_pattern_options(PatternOptions::regex().size_limit(PATTERN_BYTES_MAX))
            .build(&source)
            .map_err(|error| build_error(&error))?;
        let digest = canonical_digest(&source);
        Ok(Self { source, digest, index, validator })
    }

    /// Whether arguments pass, at a bounded price.
    fn permits(&self, args: &Value) -> bool {
        Cost::of(&self.index, &self.source, args).is_ok() && self.validator.is_valid(args)
    }
}

/// A place of the schema in a message.
fn part(pointer: &str) -> String {
    if pointer.is_empty() { "the schema".to_owned() } else { place(pointer) }
}

fn build_error(error: &ValidationError<'_>) -> SchemaError {
    let pointer = error.instance_path().as_str().to_owned();
    if let ValidationErrorKind::Referencing(error) = error.kind() {
        return reference_error(pointer, error);
    }
    if matches!(error.kind(), ValidationErrorKind::Format { format } if format == "regex") {
        return SchemaError::Pattern { pointer };
    }
    // A keyword with several forms is best described by what it may be, as for the names of types.
    let mut told = error;
    if let ValidationErrorKind::AnyOf { context } = error.kind() {
        let options =
            |inner: &&ValidationError<'_>| matches!(inner.kind(), ValidationErrorKind::Enum { .. });
        told = context.iter().flatten().find(options).unwrap_or(error);
    }
    SchemaError::Invalid { pointer, problem: phrases::phrase(told.kind(), told.instance()).text }
}

fn reference_error(pointer: String, error: &ReferencingError) -> SchemaError {
    let shorten = |text: &str| clip(text, 64);
    match error {
        ReferencingError::Unretrievable { uri, .. } => {
            SchemaError::ExternalReference { pointer, reference: shorten(uri) }
        }
        ReferencingError::UnknownSpecification { specification } => {
            SchemaError::UnknownDialect { dialect: shorten(specification) }
        }
        ReferencingError::CircularMetaschema { uri } => {
            SchemaError::UnknownDialect { dialect: shorten(uri) }
        }
        ReferencingError::PointerToNowhere { pointer: reference }
        | ReferencingError::InvalidPercentEncoding { pointer: reference, .. }
        | ReferencingError::InvalidArrayIndex { pointer: reference, .. }
        | ReferencingError::NoSuchAnchor { anchor: reference }
        | ReferencingError::InvalidAnchor { anchor: reference } => {
            SchemaError::UnresolvedReference { pointer, reference: shorten(reference) }
        }
        ReferencingError::InvalidUri(_) => SchemaError::Invalid {
            pointer,
            problem: "it holds a reference that is not a URI".to_owned(),
        },
    }
}
